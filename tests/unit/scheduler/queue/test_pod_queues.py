"""Moves of pods between the active, backoff and unschedulable pods (queue/pod_queues.py)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.queue.nominator import Nominator
from kubeloop.scheduler.queue.pod_queues import PodQueues
from kubeloop.scheduler.queue.pre_enqueue import PreEnqueue
from kubeloop.scheduler.queue.queue_settings import QueueObserver, QueueSettings
from kubeloop.scheduler.queue.queueing_hints import QueueingStrategy


class Queues(PodQueues):
    """Queues at the time 0 with a plugin that can gate pods. entered: (pod, queue, event)."""

    def __init__(self, *, pops_from_backoff: bool = True) -> None:
        self.name = "Gate"
        self.closed = False
        self.entered: list[tuple[str, str, str]] = []
        super().__init__(
            lambda queued: queued.info.priority,
            lambda: 0,
            PreEnqueue({"": [self]}, {}, lambda *_: None),
            Nominator(lambda key: None),
            QueueSettings(pops_from_backoff=pops_from_backoff),
            QueueObserver(queued=lambda pod, queue, event: self.entered.append((pod.metadata.name, queue, event))),
        )

    def pre_enqueue(self, pod: Pod) -> Status | None:
        return Status(Code.UNSCHEDULABLE, ("closed",)) if self.closed else None


@pytest.mark.parametrize(
    ("strategy", "failures", "closed", "queue"),
    [
        pytest.param(QueueingStrategy.SKIP, 1, False, "unschedulable", id="no event that helps"),
        pytest.param(QueueingStrategy.AFTER_BACKOFF, 1, False, "backoff", id="backs off"),
        pytest.param(QueueingStrategy.AFTER_BACKOFF, 0, False, "active", id="has no backoff"),
        pytest.param(QueueingStrategy.IMMEDIATELY, 1, False, "active", id="immediately"),
        pytest.param(QueueingStrategy.AFTER_BACKOFF, 1, True, "gated", id="gated before the backoff"),
        pytest.param(QueueingStrategy.IMMEDIATELY, 1, True, "gated", id="gated"),
    ],
)
def test_requeued_pod_enters_the_queue_of_the_strategy(
    queued: Any, strategy: QueueingStrategy, failures: int, closed: bool, queue: str
) -> None:
    queues, pod = Queues(), queued("a", unschedulable_count=failures)
    queues.closed = closed
    returned = queues.requeue(pod, strategy, "Event")
    assert (queues.get(pod.key), queues.entered) == ((queue, pod), [("a", queue, "Event")])
    assert returned == ("unschedulable" if closed else queue)
    assert queues.may_pop.is_set() == (queue in ("active", "backoff"))
    queues.check()


@pytest.mark.parametrize("pops_from_backoff", [True, False])
def test_pod_is_gated_after_the_backoff_only_without_early_pops(queued: Any, pops_from_backoff: bool) -> None:
    queues, pod = Queues(pops_from_backoff=pops_from_backoff), queued("a", unschedulable_count=1)
    queues.requeue(pod, QueueingStrategy.AFTER_BACKOFF, "Event")
    queues.closed = True
    assert queues.backoff.discard(pod.key) is pod
    assert queues.to_active(pod, "BackoffComplete", from_backoff=True) is pops_from_backoff
    assert queues.get(pod.key) == ("active" if pops_from_backoff else "gated", pod)


def test_pod_is_popped_from_the_backoff_queue_only_if_none_is_active(queued: Any) -> None:
    queues = Queues()
    rejected, new = queued("r", unschedulable_count=1, unschedulable_plugins={"Fit"}), queued("n", priority=1)
    queues.requeue(rejected, QueueingStrategy.AFTER_BACKOFF, "Event")
    queues.to_active(new, "Event")
    assert (queues.pop(), queues.pop(), queues.pop()) == (new, rejected, None)
    assert queues.entered[-1] == ("r", "active", "PopFromBackoffQ")


def test_pending_pods_are_in_the_order_of_pops(queued: Any) -> None:
    queues = Queues()
    pods = {name: queued(name, priority=priority) for name, priority in (("b", 2), ("a", 1), ("u", 0))}
    for name in "ba":
        queues.to_active(pods[name], "Event")
    failed = queued("e", consecutive_errors_count=1)
    queues.requeue(failed, QueueingStrategy.AFTER_BACKOFF, "Event")
    queues.requeue(pods["u"], QueueingStrategy.SKIP, "Event")
    assert queues.pending() == ([pods["a"], pods["b"]], [], [failed], [pods["u"]])
