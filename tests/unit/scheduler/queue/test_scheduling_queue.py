"""The scheduling queue: no pod is lost or in two places, whatever happens; and how long pods wait."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.events import ClusterEvent, Hint
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.queue.queueing_hints import QueueingHintMap, Registration
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue

SECOND = 1_000_000_000


class Gates:
    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Status | None:
        return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("gated",)) if pod.spec.scheduling_gates else None


class Driven:
    """A queue with a clock and a lister."""

    def __init__(self, hint: Any = None) -> None:
        self.now_ns = 1000 * SECOND
        self.pods: dict[str, Pod] = {}
        self.version = 0
        registered = [
            Registration("NodeResourcesFit", events.NODE_ADD, hint),
            Registration("SchedulingGates", ClusterEvent("Pod", events.UPDATE_POD), None),
        ]
        self.queue = SchedulingQueue(
            sort_key=lambda queued: (-(queued.pod.spec.priority or 0), queued.timestamp_ns),
            hint_maps={"s": QueueingHintMap(registered)},
            pre_enqueue={"s": [Gates()]},
            lookup=self.pods.get,
            now_ns=lambda: self.now_ns,
        )

    def pod(self, name: str, **spec: Any) -> Pod:
        self.version += 1
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(self.version), "namespace": "n"}
        pod = convert(Pod, {"metadata": metadata, "spec": {"schedulerName": "s", **spec}})
        self.pods[pod.key] = pod
        return pod

    def fail(self, rejected_by: str = "") -> str:
        queued = self.queue.pop()
        queued.unschedulable_plugins = {rejected_by} if rejected_by else set()
        self.queue.add_unschedulable_if_not_present(queued)
        return queued.key

    def where(self, name: str) -> str:
        found = self.queue.get(f"n/{name}")
        return found[0] if found else ""


NAMES = st.sampled_from(["a", "b", "c", "d"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "gate", "ungate", "delete", "pop", "reject", "error", "bind", "node", "flush", "wait"]),
        NAMES,
        st.integers(0, 20),
    ),
    max_size=80,
)


@settings(max_examples=200)
@given(steps=STEPS)
def test_no_pod_is_lost_or_in_two_places(steps):
    driven = Driven()
    queue, in_flight = driven.queue, {}
    for step, name, amount in steps:
        key = f"n/{name}"
        known = driven.pods.get(key)
        popped = next(iter(in_flight.values()), None)
        match step:
            case "add" | "gate" if known is None and key not in in_flight:
                gates = [{"name": "g"}] if step == "gate" else []
                queue.add(driven.pod(name, priority=amount % 3, schedulingGates=gates))
            case "ungate" if known is not None:
                queue.update(known, driven.pod(name, priority=known.spec.priority))
            case "delete" if known is not None:
                queue.delete(driven.pods.pop(key))
            case "pop":
                queued = queue.pop()
                if queued is not None:
                    in_flight[queued.key] = queued
            case "reject" | "error" if popped is not None:
                del in_flight[popped.key]
                if popped.key in driven.pods:
                    popped.update(driven.pods[popped.key])
                    popped.unschedulable_plugins = {"NodeResourcesFit"} if step == "reject" else set()
                    queue.add_unschedulable_if_not_present(popped)
                else:
                    queue.done(popped.uid)
            case "bind" if popped is not None:
                del in_flight[popped.key]
                driven.pods.pop(popped.key, None)
                queue.done(popped.uid)
            case "node":
                queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
            case "flush":
                queue.flush_backoff_completed()
                queue.flush_unschedulable_leftover()
            case "wait":
                driven.now_ns += amount * SECOND
        queue.check()
        assert sorted(queue.in_flight_keys()) == sorted(in_flight)
        for key in driven.pods:
            assert (queue.get(key) is not None) != (key in in_flight), key
    waiting = [*queue.active_pods(), *queue.backoff_pods(), *queue.error_backoff_pods(), *queue.unschedulable_pods()]
    assert {queued.key for queued in waiting} == driven.pods.keys() - in_flight.keys()
    if not in_flight:
        assert queue.in_flight_log() == []


def test_backoff_doubles_up_to_its_maximum():
    driven = Driven()
    driven.queue.add(driven.pod("p"))
    waited = []
    for _ in range(6):
        driven.fail()
        start = driven.now_ns
        while driven.where("p") == "backoff":
            driven.now_ns += SECOND
            driven.queue.flush_backoff_completed()
        waited.append((driven.now_ns - start) // SECOND)
    # a whole second more than 1, 2, 4, 8, 10, 10: pods of one second leave together, at its end
    assert waited == [2, 3, 5, 9, 11, 11]


def test_a_rejected_pod_waits_for_an_event_that_helps_it():
    answers = {"helps": Hint.QUEUE, "does not": Hint.SKIP}
    driven = Driven(hint=lambda pod, old, new: answers[new.metadata.name])
    driven.queue.add(driven.pod("p"))
    driven.fail("NodeResourcesFit")
    driven.now_ns += 20 * SECOND
    for name, queue in (("does not", "unschedulable"), ("helps", "active")):
        node = convert(Node, {"metadata": {"name": name}})
        driven.queue.move_all_to_active_or_backoff(events.NODE_ADD, None, node)
        assert driven.where("p") == queue


def test_a_hint_that_raises_counts_as_help():
    def broken(pod: Pod, old: Any, new: Any) -> Hint:
        raise RuntimeError("broken")

    driven = Driven(hint=broken)
    driven.queue.add(driven.pod("p"))
    driven.fail("NodeResourcesFit")
    driven.now_ns += 20 * SECOND
    driven.queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
    assert driven.where("p") == "active"


def test_an_event_during_the_attempt_is_not_missed():
    driven = Driven()
    driven.queue.add(driven.pod("p"))
    queued = driven.queue.pop()
    driven.queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
    queued.unschedulable_plugins = {"NodeResourcesFit"}
    driven.queue.add_unschedulable_if_not_present(queued)
    assert driven.where("p") == "backoff"


def test_after_five_minutes_an_unschedulable_pod_is_tried_again():
    driven = Driven()
    driven.queue.add(driven.pod("p"))
    driven.fail("NodeResourcesFit")
    driven.now_ns += 300 * SECOND
    driven.queue.flush_unschedulable_leftover()
    assert driven.where("p") == "unschedulable"
    driven.now_ns += SECOND
    driven.queue.flush_unschedulable_leftover()
    assert driven.where("p") == "active"


def test_replicas_share_the_answer_of_a_hint():
    asked = []

    def hint(pod: Pod, old: Any, new: Any) -> Hint:
        asked.append(pod.metadata.name)
        return Hint.SKIP

    driven = Driven(hint=hint)
    for number in range(50):
        driven.queue.add(driven.pod(f"p{number}"))
        driven.fail("NodeResourcesFit")
    driven.queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
    assert asked == ["p0"]


async def test_an_event_for_very_many_pods_gives_others_their_turn_and_pods_their_order():
    driven, count = Driven(), 2500
    queue = driven.queue
    for number in range(count):
        queue.add(driven.pod(f"p{number}", priority=number))
    for _ in range(count):
        driven.fail("NodeResourcesFit")
    first_woken = queue.unschedulable_pods()[0].pod.metadata.name
    queue.delete(driven.pods[f"n/p{count - 1}"])
    driven.now_ns += 60 * SECOND
    running = asyncio.create_task(queue.run())
    await asyncio.sleep(0)
    queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
    assert first_woken == f"p{count - 1}"
    assert 0 < len(queue.unschedulable_pods()) < count - 1
    assert queue.pop() is None, "among those that are not moved yet may be the most important one"
    await asyncio.wait_for(queue.wait(), 5)
    popped = queue.pop()
    assert popped is not None
    assert popped.pod.metadata.name == f"p{count - 2}"
    assert not queue.unschedulable_pods()
    queue.check()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_without_anybody_to_finish_it_an_event_for_very_many_pods_is_done_at_once():
    driven, count = Driven(), 2500
    for number in range(count):
        driven.queue.add(driven.pod(f"p{number}"))
    for _ in range(count):
        driven.fail("NodeResourcesFit")
    driven.now_ns += 60 * SECOND
    driven.queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
    assert not driven.queue.unschedulable_pods()
