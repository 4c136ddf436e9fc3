"""Metrics of webhook calls."""

from __future__ import annotations

from kubeloop.devcluster.admission.webhooks.webhook_metrics import CALL_SECONDS, WebhookMetrics

CALL = ("a", "admit", "CREATE")


def test_calls_are_counted_by_code_and_duration():
    metrics = WebhookMetrics()
    metrics.called(CALL, 0.02, 200, rejected=False)
    metrics.called(CALL, 100.0, 700, rejected=True)
    assert metrics.requests == {(*CALL, "200", "false"): 1, (*CALL, "600", "true"): 1}
    buckets = metrics.durations.buckets
    assert buckets[*CALL, "false"] == [0, 1, *[0] * (len(CALL_SECONDS) - 1)]
    assert buckets[*CALL, "true"][-1] == 1
    assert metrics.durations.seconds[*CALL, "true"] == 100.0


def test_reset_removes_all_counts():
    metrics = WebhookMetrics()
    metrics.rejected(CALL, "no_error", 999)
    assert metrics.rejections == {(*CALL, "no_error", "600"): 1}
    metrics.reset()
    assert metrics.rejections == {}
