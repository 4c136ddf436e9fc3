"""Event handlers: effects of pod, node and other events on the cache and the scheduling queue."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.results import unresolvable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.cache import SchedulerCache
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_groups import PodGroupStates
from kubeloop.scheduler.event_handlers import (
    EventDurations,
    NodeEvents,
    OtherEvents,
    PodEvents,
    is_terminated,
    other_resources,
)
from kubeloop.scheduler.queue.nominator import Nominator
from kubeloop.scheduler.queue.queueing_hints import QueueingHintMap, Registration
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue
from support.scheduling.plugin_cluster import make_member, make_node, make_pod

SCHEDULER = "default-scheduler"


class IncompleteGang:
    name = "GangScheduling"

    def pre_enqueue(self, pod: Pod) -> Status | None:
        return unresolvable(self.name, "too few pods")


class HandledEvents:
    """Cache and queue with their event handlers; each plugin is registered for the events of one resource."""

    def __init__(self, *, gangs: bool = False) -> None:
        """gangs: the feature gate GangScheduling, and the one that it depends on."""
        self.pods: dict[str, Pod] = {}
        self.version = 0
        self.handled: list[str] = []
        self.waiting: set[str] = set()
        self.pre_enqueue: list[Any] = []
        registrations = [
            Registration("NodeResourcesFit", events.ASSIGNED_POD_DELETE, None),
            Registration("NodeName", events.NODE_ADD, None),
            Registration("VolumeBinding", events.cluster_event("PersistentVolume", events.UPDATE), None),
            Registration("VolumeRestrictions", events.cluster_event("PersistentVolume", events.ADD), None),
            Registration("InterPodAffinity", events.cluster_event("Pod", events.ADD), None),
            Registration("GangScheduling", events.cluster_event("Pod", events.ADD), None),
        ]
        self.cache = SchedulerCache(lambda: 0.0, pod_groups=PodGroupStates() if gangs else None)
        self.queue = SchedulingQueue(
            sort_key=lambda queued: queued.key,
            hint_maps={SCHEDULER: QueueingHintMap(registrations)},
            pre_enqueue={SCHEDULER: self.pre_enqueue},
            nominator=Nominator(self.pods.get),
            now_ns=lambda: 10**12,
        )
        durations = EventDurations(self, lambda: 0)  # type: ignore[arg-type]
        self.pod_events = PodEvents(
            self.cache,
            self.queue,
            scheduler_names={SCHEDULER},
            reject_waiting_pod=lambda uid: uid in self.waiting,
            durations=durations,
            completes_gang=(lambda pod: pod.metadata.name == "last") if gangs else None,
        )
        self.node_events = NodeEvents(self.cache, self.queue, durations)

    def event_handled(self, label: str, seconds: float) -> None:
        self.handled.append(label)

    def pod(self, name: str, node_name: str = "", **fields: Any) -> Pod:
        """Return a new version of a pod."""
        self.version += 1
        pod = make_pod(name, node_name, **fields)
        return replace(pod, metadata=replace(pod.metadata, resource_version=str(self.version)))

    def add(self, pod: Pod) -> Pod:
        self.pods[pod.key] = pod
        self.pod_events.on_add(pod, False)
        return pod

    def update(self, old: Pod, new: Pod) -> None:
        self.pods[new.key] = new
        self.pod_events.on_update(old, new)

    def reject(self, plugin: str) -> str:
        """Let the plugin reject the next pod; return its key."""
        queued = self.queue.pop()
        assert queued is not None
        queued.unschedulable_plugins = {plugin}
        self.queue.add_unschedulable_if_not_present(queued)
        return queued.key

    def queue_of(self, name: str) -> str:
        entry = self.queue.get(f"default/{name}")
        return entry[0] if entry else ""


@pytest.fixture
def handlers() -> HandledEvents:
    return HandledEvents()


@pytest.mark.parametrize(
    ("fields", "queue", "cached"),
    [
        pytest.param({}, "active", [], id="pending"),
        pytest.param({"schedulerName": "other"}, "", [], id="pod of another scheduler"),
        pytest.param({"node_name": "n"}, "", ["p"], id="bound"),
        pytest.param({"node_name": "n", "schedulerName": "other"}, "", ["p"], id="bound by another scheduler"),
        pytest.param({"node_name": "n", "status": {"phase": "Succeeded"}}, "", [], id="terminated"),
    ],
)
def test_added_pod_is_queued_cached_or_ignored(
    handlers: HandledEvents, fields: dict[str, Any], queue: str, cached: list[str]
) -> None:
    handlers.add(handlers.pod("p", **fields))
    assert (handlers.queue_of("p"), sorted(handlers.cache.pods())) == (queue, cached)


def test_bound_pod_leaves_queue_and_deletion_wakes_others(handlers: HandledEvents) -> None:
    handlers.add(waiting := handlers.pod("waiting"))
    assert handlers.reject("NodeResourcesFit") == waiting.key
    pending = handlers.add(handlers.pod("p"))
    bound = handlers.pod("p", "n")
    handlers.update(pending, bound)
    assert (handlers.queue_of("p"), sorted(handlers.cache.pods())) == ("", ["p"])
    assert handlers.queue_of("waiting") == "unschedulable"
    handlers.pod_events.on_delete(bound, False)
    assert (handlers.queue_of("waiting"), handlers.cache.pods()) == ("backoff", {})
    assert handlers.handled == ["UnschedulablePodAdd", "UnschedulablePodAdd", "AssignedPodAdd", "AssignedPodDelete"]


def test_terminated_pod_is_handled_as_deleted_once(handlers: HandledEvents) -> None:
    bound = handlers.add(handlers.pod("p", "n"))
    done = handlers.pod("p", "n", status={"phase": "Failed"})
    handlers.update(bound, done)
    assert handlers.cache.pods() == {}
    handlers.pod_events.on_delete(done, False)
    assert handlers.handled == ["AssignedPodAdd", "AssignedPodDelete"]
    assert [is_terminated(bound), is_terminated(done)] == [False, True]


def test_recreated_pod_replaces_old_one_in_cache(handlers: HandledEvents) -> None:
    old = handlers.add(handlers.pod("p", "n", uid="old"))
    handlers.update(old, handlers.pod("p", uid="new"))
    assert handlers.cache.pods() == {}
    assert handlers.queue_of("p") == "active"


def test_repeated_event_does_not_queue_finished_pod_again(handlers: HandledEvents) -> None:
    pending = handlers.add(handlers.pod("p"))
    queued = handlers.queue.pop()
    assert queued is not None
    handlers.queue.done(queued.uid)
    handlers.update(pending, pending)
    assert handlers.queue_of("p") == ""
    handlers.update(pending, handlers.pod("p"))
    assert handlers.queue_of("p") == "active"


@pytest.mark.parametrize(
    ("waits", "assumed"),
    [
        pytest.param(False, [], id="forgotten at once"),
        pytest.param(True, ["p"], id="rejected by its permit, which forgets it later"),
    ],
)
def test_deleted_assumed_pod_frees_its_room(handlers: HandledEvents, waits: bool, assumed: list[str]) -> None:
    pending = handlers.add(handlers.pod("p"))
    handlers.cache.assume_pod(PodInfo(make_pod("p", "n")))
    handlers.waiting = {"p"} if waits else set()
    handlers.pod_events.on_delete(pending, False)
    assert [pod.metadata.uid for pod in handlers.cache.assumed_pods()] == assumed


@pytest.mark.parametrize(
    ("priority", "queue"),
    [
        pytest.param(5, "backoff", id="same priority"),
        pytest.param(6, "unschedulable", id="higher priority"),
    ],
)
def test_released_nomination_wakes_pods_up_to_its_priority(handlers: HandledEvents, priority: int, queue: str) -> None:
    handlers.add(handlers.pod("waiting", priority=priority))
    handlers.reject("NodeResourcesFit")
    nominated = handlers.add(handlers.pod("p", priority=5, status={"nominatedNodeName": "n"}))
    handlers.pod_events.on_delete(nominated, False)
    assert handlers.queue_of("waiting") == queue


def test_node_events_update_cache_and_wake_pods(handlers: HandledEvents) -> None:
    handlers.add(handlers.pod("waiting"))
    handlers.reject("NodeName")
    node = make_node("n")
    handlers.node_events.on_add(node, False)
    assert handlers.queue_of("waiting") == "backoff"
    cordoned = make_node("n", unschedulable=True, labels={"a": "b"})
    handlers.node_events.on_update(node, cordoned)
    assert [info.node for info in handlers.cache.nodes()] == [cordoned]
    handlers.node_events.on_delete(cordoned, False)
    assert list(handlers.cache.nodes()) == []
    assert handlers.handled[1:] == ["NodeAdd", "NodeUpdateNodeLabel", "NodeDelete"]


def test_other_events_wake_pods_for_registered_actions_only(handlers: HandledEvents) -> None:
    handlers.add(handlers.pod("waiting"))
    handlers.reject("VolumeBinding")
    volumes = OtherEvents(handlers.queue, "PersistentVolume", events.UPDATE)
    volumes.on_add(object(), False)
    volumes.on_delete(object(), False)
    assert handlers.queue_of("waiting") == "unschedulable"
    volumes.on_update(object(), object())
    assert handlers.queue_of("waiting") == "backoff"


def test_other_resources_exclude_pods_and_nodes() -> None:
    registered = dict.fromkeys(["Pod", "AssignedPod", "UnschedulablePod", "Node", "*", "CSINode"], events.ADD)
    assert other_resources(registered) == {"CSINode": events.ADD}


@pytest.mark.parametrize(("gangs", "queue"), [(True, "backoff"), (False, "unschedulable")])
def test_new_pending_pod_may_make_others_schedulable(gangs: bool, queue: str) -> None:
    handlers = HandledEvents(gangs=gangs)
    handlers.add(waiting := handlers.pod("waiting"))
    assert handlers.reject("InterPodAffinity") == waiting.key
    handlers.add(handlers.pod("new"))
    assert handlers.queue_of("waiting") == queue


def test_pods_that_wait_for_their_gang_are_queued_when_it_is_complete() -> None:
    handlers = HandledEvents(gangs=True)
    handlers.pre_enqueue.append(IncompleteGang())
    handlers.add(handlers.pod("first"))
    handlers.pre_enqueue.clear()
    handlers.add(handlers.pod("second"))
    assert handlers.queue_of("first") == "gated"
    handlers.add(handlers.pod("last"))
    assert handlers.queue_of("first") == "active"


def test_pods_of_groups_are_counted_from_their_creation_to_their_deletion() -> None:
    handlers = HandledEvents(gangs=True)
    groups = handlers.cache.pod_groups
    assert groups is not None

    def counts() -> tuple[int, int] | None:
        group = groups.get("default/g")
        return None if group is None else (len(group.pods), group.scheduled_count)

    member = {"schedulingGroup": {"podGroupName": "g"}}
    pending = [handlers.add(handlers.pod(name, **member)) for name in "ab"]
    handlers.add(handlers.pod("of another scheduler", schedulerName="other", **member))
    assert counts() == (2, 0)
    labelled = handlers.pod("a", labels={"x": "y"}, **member)
    handlers.update(pending[0], labelled)
    assert groups.get("default/g").pods["a"] is labelled  # type: ignore[union-attr]
    bound = handlers.pod("a", "n", **member)
    handlers.update(labelled, bound)
    assert counts() == (2, 1)
    handlers.pod_events.on_delete(pending[1], False)
    assert counts() == (1, 1)
    handlers.update(bound, replace(bound, status=replace(bound.status, phase="Succeeded")))
    assert counts() is None
    handlers.pod_events.on_delete(make_member("unknown"), True)
    assert counts() is None


def test_update_of_a_bound_pod_replaces_it_in_the_cache(handlers: HandledEvents) -> None:
    bound = handlers.add(handlers.pod("p", "n", labels={"version": "1"}))
    handlers.update(bound, changed := handlers.pod("p", "n", labels={"version": "2"}))
    assert handlers.cache.pods() == {"p": changed}


def test_pod_whose_termination_is_revoked_is_added_again(handlers: HandledEvents) -> None:
    handlers.add(handlers.pod("waiting"))
    handlers.reject("InterPodAffinity")
    done = handlers.pod("p", "n", status={"phase": "Succeeded"})
    handlers.add(done)
    assert handlers.cache.pods() == {}
    handlers.update(done, handlers.pod("p", "n"))
    assert sorted(handlers.cache.pods()) == ["p"]
    assert handlers.queue_of("waiting") == "backoff"


@pytest.mark.parametrize(("initial", "queue"), [(True, "unschedulable"), (False, "backoff")])
@pytest.mark.parametrize("added", ["node", "bound pod", "pending pod", "volume"])
def test_objects_of_a_first_list_wake_no_pods(added: str, initial: bool, queue: str) -> None:
    handlers = HandledEvents(gangs=True)
    handlers.add(handlers.pod("waiting"))
    if added == "node":
        handlers.reject("NodeName")
        handlers.node_events.on_add(make_node("n"), initial)
        assert [info.name for info in handlers.cache.nodes()] == ["n"]
    elif added == "volume":
        handlers.reject("VolumeRestrictions")
        OtherEvents(handlers.queue, "PersistentVolume", events.ADD).on_add(object(), initial)
    else:
        handlers.reject("InterPodAffinity")
        pod = handlers.pod("p", "n" if added == "bound pod" else "")
        handlers.pod_events.on_add(pod, initial)
        assert (sorted(handlers.cache.pods()), handlers.queue_of("p")) == (
            (["p"], "") if added == "bound pod" else ([], "active")
        )
    assert handlers.queue_of("waiting") == queue
