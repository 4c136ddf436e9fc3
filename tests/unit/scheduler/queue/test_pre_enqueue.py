"""PreEnqueue plugins of the scheduling queue (queue/pre_enqueue.py)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.queue.pre_enqueue import PreEnqueue
from kubeloop.scheduler.queue.queueing_hints import QueueingHintMap, Registration

HINTS = QueueingHintMap([Registration("Second", events.NODE_ADD, None)])


class Gate:
    """Rejects pods while it is closed. calls: the names of the plugins that were called."""

    def __init__(self, name: str, calls: list[str], *, closed: bool) -> None:
        self.name = name
        self.calls = calls
        self.closed = closed

    def pre_enqueue(self, pod: Pod) -> Status | None:
        self.calls.append(self.name)
        return Status(Code.UNSCHEDULABLE, ("closed",)) if self.closed else Status(Code.SUCCESS)


def test_plugin_that_gated_the_pod_is_called_first(queued: Any) -> None:
    calls: list[str] = []
    first, second = Gate("First", calls, closed=False), Gate("Second", calls, closed=True)
    pre_enqueue, pod = PreEnqueue({"": [first, second]}, {"": HINTS}, lambda *_: None), queued("a")
    pre_enqueue.run(pod)
    assert (calls, pod.gating_plugin, pod.gating_events) == (["First", "Second"], "Second", [events.NODE_ADD])
    assert pod.unschedulable_plugins == {"Second"}
    calls.clear()
    pre_enqueue.run(pod)
    assert calls == ["Second"]
    second.closed = False
    pre_enqueue.run(pod)
    assert (calls, pod.gating_plugin, pod.gating_events) == (["Second", "Second", "First"], "", ())


def test_plugin_that_raises_gates_the_pod_and_is_reported(queued: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        name = "Broken"

        def pre_enqueue(self, pod: Pod) -> Status | None:
            raise ValueError("no answer")

    messages: list[str] = []
    pod = queued("a")
    PreEnqueue({"": [Broken()]}, {}, lambda _, message: messages.append(message)).run(pod)
    assert (pod.gated, pod.gating_plugin, pod.gating_events) == (True, "Broken", ())
    assert messages == ['running PreEnqueue plugin "Broken": no answer']
    assert [record.message for record in caplog.records] == ["PreEnqueue failed"]


def test_pod_of_another_profile_is_not_gated(queued: Any) -> None:
    pod = queued("a")
    PreEnqueue({"other": [Gate("First", [], closed=True)]}, {}, lambda *_: None).run(pod)
    assert not pod.gated
