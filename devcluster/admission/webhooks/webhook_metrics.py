"""Counts and durations of webhook calls, by the labels of kube-apiserver; `server.metrics_page` writes them.

Source: apiserver pkg/admission/metrics/metrics.go.
"""

from __future__ import annotations

from collections import Counter

from kubeloop.devcluster.authorization.access_metrics import Durations, Labels

CALL_SECONDS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0)
CONDITION_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25)
_MAX_CODE = 600


class WebhookMetrics:
    """Metrics of the webhooks of one server. Labels begin with name and type ("admit" or "validating")."""

    def __init__(self) -> None:
        self.requests: Counter[Labels] = Counter()
        """By name, type, operation, code and rejected."""
        self.rejections: Counter[Labels] = Counter()
        """By name, type, operation, error_type and rejection_code."""
        self.fail_open: Counter[Labels] = Counter()
        self.condition_errors: Counter[Labels] = Counter()
        """By name, kind, type ("admit" or "validate") and operation, as the exclusions."""
        self.condition_exclusions: Counter[Labels] = Counter()
        self.durations = Durations(CALL_SECONDS)
        self.condition_durations = Durations(CONDITION_SECONDS)

    def called(self, labels: Labels, seconds: float, code: int, *, rejected: bool) -> None:
        """Count a call. labels: name, type, operation."""
        text = "true" if rejected else "false"
        self.requests[*labels, str(min(code, _MAX_CODE)), text] += 1
        self.durations.observe((*labels, text), seconds)

    def rejected(self, labels: Labels, error_type: str, code: int) -> None:
        self.rejections[*labels, error_type, str(min(code, _MAX_CODE))] += 1

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]
