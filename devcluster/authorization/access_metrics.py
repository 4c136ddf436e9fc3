"""Counts and durations of authorization and impersonation, by kube-apiserver's labels.

`server.metrics_page` writes them. Source: apiserver pkg/endpoints/filters/metrics.go,
pkg/authorization/metrics, pkg/endpoints/filters/impersonation/metrics of v1.36.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

import msgspec

ACCESS_SECONDS = tuple(0.001 * 2**exponent for exponent in range(15))

Labels = tuple[str, ...]


class Durations(msgspec.Struct):
    """A histogram by labels. limits: upper limits of its buckets in seconds."""

    limits: tuple[float, ...]
    buckets: dict[Labels, list[int]] = msgspec.field(default_factory=dict)
    seconds: Counter[Labels] = msgspec.field(default_factory=Counter)

    def observe(self, labels: Labels, seconds: float) -> None:
        counts = self.buckets.setdefault(labels, [0] * (len(self.limits) + 1))
        counts[bisect_left(self.limits, seconds)] += 1
        self.seconds[labels] += seconds  # type: ignore[assignment]

    def count(self, labels: Labels) -> int:
        return sum(self.buckets.get(labels, ()))


class AccessMetrics:
    """Metrics of one server. Requests of members of system:masters are not observed, as they are always allowed."""

    def __init__(self) -> None:
        self.requests = Durations(ACCESS_SECONDS)
        """Authorization of requests, by result: "allowed" or "no-opinion"."""
        self.decisions: Counter[Labels] = Counter()
        """Allowed by an authorizer, by its type and name."""
        self.impersonations = Durations(ACCESS_SECONDS)
        """By mode, "" if none is allowed, and decision: "allowed" or "denied"."""
        self.impersonation_checks = Durations(ACCESS_SECONDS)
        """Decisions of the authorizers for impersonation, by mode and decision."""

    def allowed_by(self, authorizer: str) -> None:
        self.decisions[authorizer, authorizer.lower()] += 1

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]
