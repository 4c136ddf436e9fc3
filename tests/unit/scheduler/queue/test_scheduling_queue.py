"""Scheduling queue: invariants under any sequence of events, backoff, queueing hints and flushes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.events import ActionType, ClusterEvent, Hint
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.queue.nominator import Nominator
from kubeloop.scheduler.queue.queue_settings import QueueObserver, QueueSettings
from kubeloop.scheduler.queue.queueing_hints import QueueingHintMap, Registration
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue

SECOND = 1_000_000_000


class Gates:
    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Status | None:
        return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("gated",)) if pod.spec.scheduling_gates else None


class QueueModel:
    """A queue with a fake clock and a pod lister."""

    def __init__(
        self,
        hint: Any = None,
        *,
        registrations: Sequence[Registration] = (),
        queued: Callable[[Pod, str, str], None] | None = None,
        pops_from_backoff: bool = True,
        pod_groups: bool = False,
    ) -> None:
        """registrations: of plugins, in addition to those for new nodes and updated pods. queued: called for moves."""
        self.now_ns = 1000 * SECOND
        self.pods: dict[str, Pod] = {}
        self.version = 0
        registrations = [
            *registrations,
            Registration("NodeResourcesFit", events.NODE_ADD, hint),
            Registration("SchedulingGates", ClusterEvent("Pod", events.UPDATE_POD), None),
        ]
        self.queue = SchedulingQueue(
            sort_key=lambda queued: (-(queued.pod.spec.priority or 0), queued.timestamp_ns),
            hint_maps={"s": QueueingHintMap(registrations)},
            pre_enqueue={"s": [Gates()]},
            nominator=Nominator(self.pods.get),
            now_ns=lambda: self.now_ns,
            settings=QueueSettings(pops_from_backoff=pops_from_backoff, pod_groups=pod_groups),
            **({} if queued is None else {"observer": QueueObserver(queued=queued)}),
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

    def queue_of(self, name: str) -> str:
        entry = self.queue.get(f"n/{name}")
        return entry[0] if entry else ""


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
@given(steps=STEPS, pops_from_backoff=st.booleans())
def test_each_pod_is_in_exactly_one_queue(steps, pops_from_backoff):
    model = QueueModel(pops_from_backoff=pops_from_backoff)
    queue, in_flight = model.queue, {}
    for step, name, number in steps:
        key = f"n/{name}"
        pod = model.pods.get(key)
        popped = next(iter(in_flight.values()), None)
        match step:
            case "add" | "gate" if pod is None and key not in in_flight:
                gates = [{"name": "g"}] if step == "gate" else []
                queue.add(model.pod(name, priority=number % 3, schedulingGates=gates))
            case "ungate" if pod is not None:
                queue.update(pod, model.pod(name, priority=pod.spec.priority))
            case "delete" if pod is not None:
                queue.delete(model.pods.pop(key))
            case "pop":
                queued = queue.pop()
                if queued is not None:
                    in_flight[queued.key] = queued
            case "reject" | "error" if popped is not None:
                del in_flight[popped.key]
                if popped.key in model.pods:
                    popped.update(model.pods[popped.key])
                    popped.unschedulable_plugins = {"NodeResourcesFit"} if step == "reject" else set()
                    queue.add_unschedulable_if_not_present(popped)
                else:
                    queue.done(popped.uid)
            case "bind" if popped is not None:
                del in_flight[popped.key]
                model.pods.pop(popped.key, None)
                queue.done(popped.uid)
            case "node":
                queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
            case "flush":
                queue.flush_backoff_completed()
                queue.flush_unschedulable_leftover()
            case "wait":
                model.now_ns += number * SECOND
        queue.check()
        assert sorted(queue.in_flight.keys()) == sorted(in_flight)
        for key in model.pods:
            assert (queue.get(key) is not None) != (key in in_flight), key
    waiting = [*chain.from_iterable(queue.pending_pods())]
    assert {queued.key for queued in waiting} == model.pods.keys() - in_flight.keys()
    if not in_flight:
        assert list(queue.in_flight.log()) == []


def test_backoff_doubles_up_to_maximum():
    model = QueueModel()
    model.queue.add(model.pod("p"))
    waited = []
    for _ in range(6):
        model.fail()
        start = model.now_ns
        while model.queue_of("p") == "backoff":
            model.now_ns += SECOND
            model.queue.flush_backoff_completed()
        waited.append((model.now_ns - start) // SECOND)
    # one second more than 1, 2, 4, 8, 10, 10: backoff is flushed at the end of each second
    assert waited == [2, 3, 5, 9, 11, 11]


def test_rejected_pod_waits_for_hint_queue():
    hints = {"helps": Hint.QUEUE, "does not": Hint.SKIP}
    model = QueueModel(hint=lambda pod, old, new: hints[new.metadata.name])
    model.queue.add(model.pod("p"))
    model.fail("NodeResourcesFit")
    model.now_ns += 20 * SECOND
    for name, queue in (("does not", "unschedulable"), ("helps", "active")):
        node = convert(Node, {"metadata": {"name": name}})
        model.queue.move_all_to_active_or_backoff(events.NODE_ADD, None, node)
        assert model.queue_of("p") == queue


def test_hint_that_raises_counts_as_queue():
    def broken(pod: Pod, old: Any, new: Any) -> Hint:
        raise RuntimeError("broken")

    model = QueueModel(hint=broken)
    model.queue.add(model.pod("p"))
    model.fail("NodeResourcesFit")
    model.now_ns += 20 * SECOND
    model.queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
    assert model.queue_of("p") == "active"


def test_event_during_the_attempt_is_replayed():
    model = QueueModel()
    model.queue.add(model.pod("p"))
    queued = model.queue.pop()
    model.queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
    queued.unschedulable_plugins = {"NodeResourcesFit"}
    model.queue.add_unschedulable_if_not_present(queued)
    assert model.queue_of("p") == "backoff"


def test_unschedulable_pod_is_flushed_after_five_minutes():
    model = QueueModel()
    model.queue.add(model.pod("p"))
    model.fail("NodeResourcesFit")
    model.now_ns += 300 * SECOND
    model.queue.flush_unschedulable_leftover()
    assert model.queue_of("p") == "unschedulable"
    model.now_ns += SECOND
    model.queue.flush_unschedulable_leftover()
    assert model.queue_of("p") == "active"


def test_hint_result_is_shared_by_pods_of_a_class():
    hinted_pods = []

    def hint(pod: Pod, old: Any, new: Any) -> Hint:
        hinted_pods.append(pod.metadata.name)
        return Hint.SKIP

    model = QueueModel(hint=hint)
    for number in range(50):
        model.queue.add(model.pod(f"p{number}"))
        model.fail("NodeResourcesFit")
    model.queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
    assert hinted_pods == ["p0"]


async def test_event_for_many_pods_is_processed_in_slices():
    model, count = QueueModel(), 2500
    queue = model.queue
    for number in range(count):
        queue.add(model.pod(f"p{number}", priority=number))
    for _ in range(count):
        model.fail("NodeResourcesFit")
    first_unschedulable = queue.pending_pods().unschedulable[0].pod.metadata.name
    queue.delete(model.pods[f"n/p{count - 1}"])
    model.now_ns += 60 * SECOND
    running = asyncio.create_task(queue.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the tasks of run() start
    queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
    assert first_unschedulable == f"p{count - 1}"
    assert 0 < len(queue.pending_pods().unschedulable) < count - 1
    assert queue.pop() is None, "pods that are not moved yet may have a higher priority"
    while (popped := queue.pop()) is None:
        await asyncio.wait_for(queue.wait(), 60)
    assert popped.pod.metadata.name == f"p{count - 2}"
    assert not queue.pending_pods().unschedulable
    queue.check()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_event_is_processed_at_once_if_run_is_not_running():
    model, count = QueueModel(), 2500
    for number in range(count):
        model.queue.add(model.pod(f"p{number}"))
    for _ in range(count):
        model.fail("NodeResourcesFit")
    model.now_ns += 60 * SECOND
    model.queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
    assert not model.queue.pending_pods().unschedulable


def test_pod_is_popped_from_backoff_only_if_the_gate_is_on():
    for pops_from_backoff in (True, False):
        model = QueueModel(pops_from_backoff=pops_from_backoff)
        model.queue.add(model.pod("p"))
        model.fail("NodeResourcesFit")
        model.queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
        assert model.queue_of("p") == "backoff"
        assert (model.queue.pop() is not None) is pops_from_backoff


def test_pre_enqueue_runs_after_the_backoff_if_pods_are_not_popped_from_it():
    outcomes = []
    for pops_from_backoff in (True, False):
        model = QueueModel(pops_from_backoff=pops_from_backoff)
        pod = model.pod("p")
        model.queue.add(pod)
        queued = model.queue.pop()
        queued.update(model.pod("p", schedulingGates=[{"name": "g"}]))
        queued.unschedulable_plugins = {"NodeResourcesFit"}
        model.queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
        model.queue.add_unschedulable_if_not_present(queued)
        before = model.queue_of("p")
        model.now_ns += 2 * SECOND
        model.queue.flush_backoff_completed()
        outcomes.append((before, model.queue_of("p")))
        model.queue.check()
    assert outcomes == [("gated", "gated"), ("backoff", "gated")]


GROUP = {"podGroupName": "g"}


def test_specific_pod_is_popped_from_any_queue():
    model = QueueModel(pod_groups=True)
    names = ("active", "backoff", "unschedulable", "gated")
    for name in names:
        model.queue.add(model.pod(name, schedulingGates=[{"name": "g"}] if name == "gated" else []))
    for name in ("backoff", "unschedulable"):
        queued = model.queue.pop_specific(model.pods[f"n/{name}"])
        assert queued is not None
        queued.unschedulable_plugins = {"NodeResourcesFit"}
        model.queue.add_unschedulable_if_not_present(queued)
    model.queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node(), lambda queued: queued.key == "n/backoff")
    assert [model.queue_of(name) for name in names] == list(names)
    popped = [model.queue.pop_specific(model.pods[f"n/{name}"]) for name in names]
    assert [queued is not None and queued.attempts for queued in popped] == [1, 2, 2, False]
    assert model.queue.in_flight.keys() == ["n/active", "n/backoff", "n/unschedulable"]
    assert model.queue.pop_specific(model.pods["n/active"]) is None
    assert model.queue.scheduling_cycle == 5
    model.queue.check()


def test_member_of_a_group_backs_off_whatever_events_there_were():
    for pod_groups in (True, False):
        model = QueueModel(pod_groups=pod_groups)
        model.queue.add(model.pod("p", schedulingGroup=GROUP))
        model.fail("NodeResourcesFit")
        assert model.queue_of("p") == ("backoff" if pod_groups else "unschedulable")
        assert model.queue.pop() is None
        model.now_ns += 2 * SECOND
        model.queue.flush_backoff_completed()
        assert (model.queue.pop() is not None) is pod_groups


def test_activating_a_member_in_flight_logs_no_event():
    for group in (None, GROUP):
        model = QueueModel(pod_groups=True)
        model.queue.add(model.pod("p", schedulingGroup=group))
        model.queue.pop()
        model.queue.activate([model.pods["n/p"]])
        logged = [kind for kind, _ in model.queue.in_flight.log()]
        assert logged == (["pod", "event"] if group is None else ["pod"])


def test_update_changes_the_order_of_active_pods():
    model = QueueModel()
    model.queue.add(model.pod("first"))
    old = model.pod("second")
    model.queue.add(old)
    model.queue.update(old, model.pod("second", priority=9))
    model.queue.check()
    assert [model.queue.pop().key for _ in range(2)] == ["n/second", "n/first"]


def nominated(pod: Pod, node: str) -> Pod:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=node))


def test_update_follows_the_nomination_of_queued_pods():
    for rejected_by in ("", "NodeResourcesFit"):
        model = QueueModel()
        old = model.pod("p")
        model.queue.add(old)
        if rejected_by:
            model.fail(rejected_by)
        model.queue.update(old, nominated(model.pod("p"), "node"))
        assert model.queue.nominator.node_of("uid-p") == "node"
        assert model.queue_of("p") == ("unschedulable" if rejected_by else "active")
        queued = model.queue.get("n/p")
        assert queued is not None
        assert queued[1].pod.status.nominated_node_name == "node"


def test_update_of_an_unknown_pod_adds_it():
    model = QueueModel()
    model.queue.update(model.pod("p"), model.pod("p"))
    assert model.queue_of("p") == "active"


def test_update_that_helps_queues_an_unschedulable_pod_once():
    moves = []
    registrations = [
        Registration("NodeResourcesFit", ClusterEvent("Pod", kind), None)
        for kind in (ActionType.UPDATE_POD_LABEL, ActionType.UPDATE_POD_TOLERATION)
    ]
    model = QueueModel(registrations=registrations, queued=lambda pod, queue, event: moves.append((queue, event)))
    old = model.pod("p")
    model.queue.add(old)
    model.fail("NodeResourcesFit")
    new = model.pod("p", tolerations=[{"key": "t"}])
    labelled = msgspec.structs.replace(new, metadata=msgspec.structs.replace(new.metadata, labels={"a": "b"}))
    model.now_ns += 60 * SECOND
    moves.clear()
    model.queue.update(old, labelled)
    assert moves == [("active", "UnschedulablePodUpdatePodLabel")]


def test_update_without_effect_tries_the_other_events():
    registrations = [Registration("NodeResourcesFit", ClusterEvent("Pod", ActionType.UPDATE_POD_TOLERATION), None)]
    model = QueueModel(registrations=registrations)
    old = model.pod("p")
    model.queue.add(old)
    model.fail("NodeResourcesFit")
    new = model.pod("p", tolerations=[{"key": "t"}])
    labelled = msgspec.structs.replace(new, metadata=msgspec.structs.replace(new.metadata, labels={"a": "b"}))
    model.now_ns += 60 * SECOND
    model.queue.update(old, labelled)
    assert model.queue_of("p") == "active"


def test_activate_moves_all_pods_whatever_their_queue():
    model = QueueModel()
    for name in ("flying", "rejected", "backing off", "gated", "absent"):
        pod = model.pod(name, schedulingGates=[{"name": "g"}] if name == "gated" else [])
        if name != "absent":
            model.queue.add(pod)
            if name in ("rejected", "backing off"):
                model.queue.pop_specific(pod)
                queued = QueuedPodInfo(PodInfo(pod), model.now_ns)
                queued.unschedulable_plugins = {"NodeResourcesFit"}
                model.queue.add_unschedulable_if_not_present(queued)
    model.queue.move_all_to_active_or_backoff(
        events.NODE_ADD, None, Node(), lambda queued: queued.key == "n/backing off"
    )
    assert model.queue.pop_specific(model.pods["n/flying"]) is not None
    model.queue.activate(model.pods.values())
    states = {name: model.queue_of(name) for name in ("rejected", "backing off", "gated", "absent")}
    assert states == {"rejected": "active", "backing off": "active", "gated": "gated", "absent": ""}
    model.queue.check()


@pytest.mark.parametrize("queue", ["active", "backoff", "unschedulable"])
def test_pod_that_is_added_again_is_in_the_active_queue_only(queue: str):
    """A handler may add a pod that an update has queued before."""
    model = QueueModel()
    pod = model.pod("p")
    model.queue.add(pod)
    if queue != "active":
        model.fail("NodeResourcesFit" if queue == "unschedulable" else "")
    assert model.queue_of("p") == queue
    model.queue.add(pod)
    assert model.queue_of("p") == "active"
    model.queue.check()


def test_default_settings_are_those_of_kube_scheduler() -> None:
    settings = QueueSettings()
    assert (settings.initial_backoff_seconds, settings.max_backoff_seconds) == (1, 10)
    assert settings.max_in_unschedulable_seconds == 300
    assert settings.pops_from_backoff
    assert not settings.pod_groups


def test_pod_whose_attempt_runs_is_not_popped_again(caplog):
    """An update during the attempt may have queued it."""
    model = QueueModel()
    pod = model.pod("p")
    for pop in (model.queue.pop, lambda: model.queue.pop_specific(pod)):
        model.queue.add(pod)
        model.queue.in_flight.start(pod.metadata.uid, pod.key)
        assert pop() is None
        assert model.queue_of("p") == ""
        model.queue.done(pod.metadata.uid)
    assert caplog.messages == ["dropped a pod that is being scheduled already"] * 2


@pytest.mark.parametrize(
    ("pending_plugins", "outcomes", "queue"),
    [
        pytest.param(set(), [Hint.SKIP, Hint.QUEUE], "backoff", id="an event helps"),
        pytest.param(set(), [Hint.SKIP, Hint.SKIP], "unschedulable", id="no event helps"),
        pytest.param({"NodeResourcesFit"}, [Hint.SKIP, Hint.QUEUE], "active", id="the plugin was waiting for it"),
    ],
)
def test_missed_events_decide_the_queue_after_an_attempt(pending_plugins, outcomes, queue):
    remaining = iter(outcomes)
    model = QueueModel(hint=lambda *_: next(remaining))
    model.queue.add(model.pod("p"))
    queued = model.queue.pop()
    for _ in outcomes:
        model.queue.move_all_to_active_or_backoff(events.NODE_ADD, None, Node())
    queued.unschedulable_plugins, queued.pending_plugins = {"NodeResourcesFit"} - pending_plugins, pending_plugins
    model.queue.add_unschedulable_if_not_present(queued)
    assert model.queue_of("p") == queue


@pytest.mark.virtual_time
async def test_queue_flushes_in_virtual_time_only_when_time_moves_a_pod(monkeypatch):
    time, flushes = asyncio.get_running_loop().time, []
    now_ns = property(lambda model: 1000 * SECOND + round(time() * SECOND), lambda model, value: None)
    monkeypatch.setattr(QueueModel, "now_ns", now_ns, raising=False)
    model = QueueModel()
    model.queue.add(model.pod("p"))
    model.fail("NodeResourcesFit")
    flush = model.queue.flush_backoff_completed
    monkeypatch.setattr(model.queue, "flush_backoff_completed", lambda: flush() or flushes.append(time()))
    task = asyncio.create_task(model.queue.run())
    await asyncio.sleep(310.0)
    assert model.queue_of("p") == "unschedulable"
    await asyncio.sleep(30.0)
    assert model.queue_of("p") == "active"
    assert len(flushes) < 10
    task.cancel()


def test_event_of_a_claim_moves_only_pods_that_use_it():
    """The hint, which would move any pod, is called for one."""
    event = events.cluster_event("resource.k8s.io/ResourceClaim", events.ADD)
    registered = Registration("DynamicResources", event, lambda *_: Hint.QUEUE, claim=lambda old, new: new)
    model = QueueModel(registrations=[registered])
    for name in ("user", "other"):
        model.queue.add(model.pod(name, resourceClaims=[{"name": "c", "resourceClaimName": f"claim-of-{name}"}]))
        model.fail("DynamicResources")
    model.queue.check()
    model.queue.move_all_to_active_or_backoff(event, None, "n/claim-of-user")
    assert (model.queue_of("user") == "unschedulable", model.queue_of("other")) == (False, "unschedulable")
    model.queue.move_all_to_active_or_backoff(event, None, None)  # frees devices
    assert model.queue_of("other") != "unschedulable"
