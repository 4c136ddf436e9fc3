"""Safe sort keys: pods whose queue sort fails are sorted last."""

from __future__ import annotations

from typing import Any

from kubeloop.scheduler.queue.safe_sort import safe_sort_key


def test_pods_whose_sort_key_raises_are_last(queued: Any) -> None:
    failures = []

    def sort_key(pod: Any) -> int:
        if pod.key == "n/bad":
            raise RuntimeError("broken")
        priority: int = pod.pod.spec.priority
        return -priority

    key = safe_sort_key(sort_key, lambda pod, error: failures.append((pod.key, str(error))))
    pods = [queued("bad"), queued("low", 1), queued("high", 2)]
    assert [pod.key for pod in sorted(pods, key=key)] == ["n/high", "n/low", "n/bad"]
    assert failures == [("n/bad", "broken")]


def test_keys_that_cannot_be_compared_keep_their_order(queued: Any) -> None:
    key = safe_sort_key(lambda pod: 1 if pod.key == "n/number" else "text", lambda pod, error: None)
    pods = [queued("number"), queued("text")]
    assert sorted(pods, key=key) == pods
