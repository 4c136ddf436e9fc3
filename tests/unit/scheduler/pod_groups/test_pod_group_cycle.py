"""The scheduling cycle of pod groups, in a running scheduler: which members get a node, and what is reported."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace as structs_replace

from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import POD_GROUPS
from kubeloop.scheduler.cache.cache import CacheError
from kubeloop.scheduler.config.types import SchedulerConfiguration, default_configuration
from kubeloop.scheduler.framework.plugin_calls import SchedulingError
from kubeloop.scheduler.pod_groups import pod_group_cycle
from kubeloop.scheduler.scheduler import Scheduler
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.recording.pod_recorder import standalone_pod_recorder
from kubeloop.tracing.spans.pod_record import Phase, PodRecord, SchedulingAttempt
from kubeloop.tracing.spans.pod_spans import pod_trace
from support.scheduling.scheduler_cluster import SchedulerCluster
from support.traces.span_tree import check_spans

pytestmark = pytest.mark.virtual_time

GANGS = {"GenericWorkload": True, "GangScheduling": True}
NO_QUORUM = "pod group is unschedulable"
WAITS = (
    f"{NO_QUORUM}, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)
TOPOLOGY = GANGS | {"TopologyAwareWorkloadScheduling": True}


@pytest.fixture
async def cluster(clock: Any) -> SchedulerCluster:
    return SchedulerCluster(clock, FeatureGates(TOPOLOGY))


class GroupMetrics:
    """Records the metrics of pod groups, and ignores all others."""

    def __init__(self) -> None:
        self.groups: list[tuple[str, str]] = []
        self.algorithms = 0

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None

    def pod_group_attempt(self, result: str, profile: str, seconds: float) -> None:
        self.groups.append((result, profile))

    def pod_group_algorithm(self, seconds: float) -> None:
        self.algorithms += 1


def default_profiles(gates: dict[str, bool]) -> dict[str, Any]:
    return {"gates": gates, "profiles": default_configuration(FeatureGates(gates)).profiles}


def add_members(cluster: SchedulerCluster, group: str, names: str, **spec: Any) -> None:
    for name in names.split():
        cluster.pod(name, schedulingGroup={"podGroupName": group}, **spec)


def nodes_of(cluster: SchedulerCluster, names: str) -> list[str]:
    return [cluster.node_of(f"default/{name}") for name in names.split()]


def condition(cluster: SchedulerCluster, group: str) -> tuple[str, str, str] | None:
    """Return (status, reason, message) of the condition PodGroupScheduled."""
    stored = cluster.server.store.get(POD_GROUPS, "default", group)
    assert stored is not None
    for entry in stored.get("status", {}).get("conditions", []):
        if entry["type"] == "PodGroupScheduled":
            return entry["status"], entry["reason"], entry["message"]
    return None


def messages(cluster: SchedulerCluster, name: str) -> list[str]:
    return [message for key, reason, message in cluster.events if key == f"default/{name}"]


async def test_gang_is_scheduled_once_min_count_pods_exist(cluster: Any, scheduling: Any) -> None:
    cluster.node("n", cpu="4")
    cluster.pod_group("g", min_count=3)
    async with scheduling(**default_profiles(GANGS)) as scheduler:
        add_members(cluster, "g", "a b", cpu="1")
        await asyncio.sleep(60)
        assert nodes_of(cluster, "a b") == ["", ""]
        assert condition(cluster, "g") is None
        queue, queued = scheduler.queue.get("default/a")
        assert (queue, queued.gating_plugin) == ("gated", "GangScheduling")
        add_members(cluster, "g", "c", cpu="1")
        await asyncio.sleep(1)
        assert nodes_of(cluster, "a b c") == ["n", "n", "n"]
        assert condition(cluster, "g") == ("True", "Scheduled", "")


async def test_gang_that_does_not_fit_binds_no_pod(cluster: Any, scheduling: Any) -> None:
    cluster.node("n", cpu="2")
    cluster.pod_group("g", min_count=3)
    add_members(cluster, "g", "a b c", cpu="1")
    async with scheduling(**default_profiles(GANGS)) as scheduler:
        await asyncio.sleep(3)
        assert nodes_of(cluster, "a b c") == ["", "", ""]
        assert condition(cluster, "g") == ("False", "Unschedulable", NO_QUORUM)
        assert messages(cluster, "a")[0] == WAITS
        assert messages(cluster, "c")[0].startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert scheduler.cache.sizes() == (1, 0, 0)
        cluster.node("n", cpu="3")
        await asyncio.sleep(30)
        assert nodes_of(cluster, "a b c") == ["n", "n", "n"]
        assert condition(cluster, "g") == ("True", "Scheduled", "")
        scheduler.queue.check()
        scheduler.cache.pod_groups.check()


async def test_pods_wait_for_their_pod_group(cluster: Any, scheduling: Any) -> None:
    cluster.node("n")
    add_members(cluster, "g", "a b")
    async with scheduling(**default_profiles(GANGS)):
        await asyncio.sleep(1)
        assert nodes_of(cluster, "a b") == ["", ""]
        cluster.pod_group("g", min_count=2)
        await asyncio.sleep(1)
        assert nodes_of(cluster, "a b") == ["n", "n"]


async def test_members_beyond_min_count_are_scheduled_as_there_is_room(cluster: Any, scheduling: Any) -> None:
    cluster.node("n", cpu="3")
    cluster.pod_group("g", min_count=2)
    add_members(cluster, "g", "a b c d", cpu="1")
    async with scheduling(**default_profiles(GANGS)):
        await asyncio.sleep(1)
        assert nodes_of(cluster, "a b c d") == ["n", "n", "n", ""]
        assert condition(cluster, "g") == ("True", "Scheduled", "")
        cluster.node("m", cpu="1")
        await asyncio.sleep(30)
        assert nodes_of(cluster, "d") == ["m"]


async def test_member_that_does_not_fit_is_retried_at_once_if_the_next_one_waits(cluster: Any, scheduling: Any) -> None:
    cluster.node("n", cpu="3")
    cluster.pod_group("g", min_count=3)
    add_members(cluster, "g", "a", cpu="1", priority=3)
    add_members(cluster, "g", "large", cpu="4", priority=2)
    add_members(cluster, "g", "b c", cpu="1", priority=1)
    async with scheduling(**default_profiles(GANGS)) as scheduler:
        await asyncio.sleep(0.5)
        assert nodes_of(cluster, "a large b c") == ["n", "", "n", "n"]
        assert scheduler.queue.get("default/large")[1].attempts == 2


async def test_one_of_two_gangs_gets_the_nodes(cluster: Any, scheduling: Any) -> None:
    cluster.node("n", cpu="4")
    for group in ("g", "h"):
        cluster.pod_group(group, min_count=3)
    for g, h in ("ad", "be", "cf"):
        add_members(cluster, "g", g, cpu="1")
        add_members(cluster, "h", h, cpu="1")
    async with scheduling(**default_profiles(GANGS)):
        await asyncio.sleep(120)
        assert nodes_of(cluster, "a b c") == ["n", "n", "n"]
        assert nodes_of(cluster, "d e f") == ["", "", ""]
        for name in "abc":
            cluster.delete_pod(f"default/{name}")
        await asyncio.sleep(30)
        assert nodes_of(cluster, "d e f") == ["n", "n", "n"]


async def test_members_are_scheduled_by_priority_then_age(cluster: Any, scheduling: Any) -> None:
    cluster.node("n", cpu="1")
    cluster.pod_group("g")
    add_members(cluster, "g", "old older", cpu="2", priority=1)
    async with scheduling(**default_profiles(GANGS)):
        await asyncio.sleep(5)
        add_members(cluster, "g", "new", cpu="2", priority=1)
        add_members(cluster, "g", "important", cpu="2", priority=5)
        await asyncio.sleep(30)
        cluster.node("n", cpu="6")
        await asyncio.sleep(30)
    keys = [key for key, _ in cluster.bindings]
    assert (keys[0], set(keys[1:])) == ("default/important", {"default/old", "default/older"})


async def test_group_without_gang_policy_is_scheduled_as_there_is_room(cluster: Any, scheduling: Any) -> None:
    cluster.node("n", cpu="1")
    cluster.pod_group("g")
    add_members(cluster, "g", "a b", cpu="1")
    async with scheduling(**default_profiles(GANGS)):
        await asyncio.sleep(1)
        assert nodes_of(cluster, "a b") == ["n", ""]
        assert condition(cluster, "g") == ("True", "Scheduled", "")


async def test_generic_workload_alone_enforces_no_gang(cluster: Any, scheduling: Any) -> None:
    cluster.node("n", cpu="1")
    cluster.pod_group("g", min_count=2)
    add_members(cluster, "g", "a b", cpu="1")
    async with scheduling(**default_profiles({"GenericWorkload": True})):
        await asyncio.sleep(1)
        assert nodes_of(cluster, "a b") == ["n", ""]


async def test_without_the_gate_members_are_scheduled_one_by_one(cluster: Any, scheduling: Any) -> None:
    cluster.node("n", cpu="1")
    cluster.pod_group("g", min_count=2)
    add_members(cluster, "g", "a b", cpu="1")
    async with scheduling() as scheduler:
        await asyncio.sleep(1)
        assert nodes_of(cluster, "a b") == ["n", ""]
        assert scheduler.queue.get("default/b")[0] == "unschedulable"
        assert condition(cluster, "g") is None
    assert "podgroups" not in cluster.fetched


async def test_group_waits_for_preemption(cluster: Any, scheduling: Any) -> None:
    cluster.node("n", cpu="3")
    cluster.pod("low", cpu="2", priority=1, nodeName="n")
    cluster.pod_group("g", min_count=2)
    add_members(cluster, "g", "a b", cpu="1", priority=5)
    metrics = GroupMetrics()
    async with scheduling(**default_profiles(GANGS), metrics=metrics):
        await asyncio.sleep(0.5)
        waiting = f"{NO_QUORUM}, pod group is waiting for preemption to complete"
        assert condition(cluster, "g") == ("False", "Unschedulable", waiting)
        assert messages(cluster, "a") == [waiting]
        assert messages(cluster, "b")[0].startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert [name for name in "ab" if cluster.stored_pod(f"default/{name}")["status"].get("nominatedNodeName")]
        await asyncio.sleep(30)
        assert cluster.stored_pod("default/low") is None
        assert nodes_of(cluster, "a b") == ["n", "n"]
        assert condition(cluster, "g") == ("True", "Scheduled", "")
    assert metrics.groups[0] == ("waiting_on_preemption", "default-scheduler")
    assert metrics.groups[-1] == ("scheduled", "default-scheduler")
    assert metrics.algorithms == len(metrics.groups)


async def test_members_of_one_group_have_one_scheduler(cluster: Any, scheduling: Any) -> None:
    cluster.node("n")
    cluster.pod_group("g", min_count=2)
    add_members(cluster, "g", "a")
    add_members(cluster, "g", "b", schedulerName="other")
    options = default_profiles(GANGS)
    (profile,) = options["profiles"]
    options["profiles"] = (profile, structs_replace(profile, scheduler_name="other"))
    async with scheduling(**options) as scheduler:
        await asyncio.sleep(0.5)
        assert nodes_of(cluster, "a b") == ["", ""]
        (message,) = messages(cluster, "a")
        assert message.startswith("all pods in a single pod group should have the same .spec.schedulerName set, got: ")
        assert messages(cluster, "b") == [message]
        assert scheduler.queue.in_flight.keys() == []


async def test_deleted_member_is_skipped(cluster: Any, scheduling: Any) -> None:
    cluster.node("n")
    cluster.pod_group("g", min_count=2)
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/x"]}
    add_members(cluster, "g", "a", metadata=deleted)
    add_members(cluster, "g", "b c")
    async with scheduling(**default_profiles(GANGS)) as scheduler:
        await asyncio.sleep(1)
        assert nodes_of(cluster, "a b c") == ["", "n", "n"]
        assert messages(cluster, "a") == ["skip schedule deleting pod: default/a"]
        assert scheduler.queue.in_flight.keys() == []


async def test_error_of_a_plugin_fails_the_whole_group(cluster: Any, scheduling: Any) -> None:
    cluster.node("n")
    cluster.pod_group("g", min_count=2)
    add_members(cluster, "g", "a b c")
    async with scheduling(**default_profiles(GANGS)) as scheduler:
        broken = scheduler.frameworks["default-scheduler"].filters.run_filters

        def fail_for_b(state: Any, pod: Any, *args: Any) -> Any:
            if pod.pod.metadata.name == "b":
                raise SchedulingError("broken")
            return broken(state, pod, *args)

        scheduler.frameworks["default-scheduler"].filters.run_filters = fail_for_b
        await asyncio.sleep(0.5)
        assert nodes_of(cluster, "a b c") == ["", "", ""]
        group_message = "failed to schedule other pod from a pod group: broken"
        assert [messages(cluster, name) for name in "abc"] == [[group_message], ["broken"], [group_message]]
        assert condition(cluster, "g") == ("False", "SchedulerError", group_message)
        scheduler.frameworks["default-scheduler"].filters.run_filters = broken
        await asyncio.sleep(10)
        assert nodes_of(cluster, "a b c") == ["n", "n", "n"]


async def test_cycle_leaves_the_snapshot_as_the_cache(cluster: Any, scheduling: Any) -> None:
    for name in "nm":
        cluster.node(name, cpu="2")
    for group, cpu in (("g", "1"), ("h", "500m")):
        cluster.pod_group(group, min_count=3)
        add_members(cluster, group, f"{group}1 {group}2 {group}3", cpu=cpu)
    async with scheduling(**default_profiles(GANGS)) as scheduler:
        await asyncio.sleep(120)
        scheduler.cache.update_snapshot(scheduler.snapshot)
        pods = {info.name: set(info.pods) for info in scheduler.cache.nodes()}
        assert {info.name: set(info.pods) for info in scheduler.snapshot.node_infos} == pods
        assert scheduler.snapshot.columns.pod_count.tolist() == [
            len(pods[info.name]) for info in scheduler.snapshot.node_infos
        ]
        assert sum(map(len, pods.values())) == 3
        assert not scheduler.awaits_call


@pytest.mark.parametrize("class_cache", [True, False])
async def test_class_cache_changes_no_result(cluster: Any, scheduling: Any, class_cache: bool) -> None:
    """Filter results and scores are cached within the cycle of a group: members see the nodes of those before them."""
    for number in range(4):
        cluster.node(f"n{number}", cpu="4")
    cluster.pod_group("g", min_count=6)
    add_members(cluster, "g", "a b c d e f", cpu="2")
    gates = GANGS | {"OpportunisticBatching": class_cache}
    async with scheduling(**default_profiles(gates)):
        await asyncio.sleep(1)
        nodes = nodes_of(cluster, "a b c d e f")
        assert sorted(nodes.count(f"n{number}") for number in range(4)) == [1, 1, 2, 2]


# --- placements ------------------------------------------------------------------------------------------------------


def add_racks(cluster: SchedulerCluster, cpu_by_rack: dict[str, str], nodes: int = 2) -> None:
    for rack, cpu in cpu_by_rack.items():
        for number in range(nodes):
            cluster.node(f"{rack}-{number}", cpu=cpu, labels={"rack": rack})


def racks_of(cluster: SchedulerCluster, names: str) -> list[str]:
    return [node.partition("-")[0] for node in nodes_of(cluster, names)]


async def test_group_is_placed_within_one_domain(cluster: Any, scheduling: Any) -> None:
    add_racks(cluster, {"r1": "1", "r2": "2", "r3": "1"})
    cluster.pod_group("g", min_count=4, topology_key="rack")
    add_members(cluster, "g", "a b c d", cpu="1")
    async with scheduling(**default_profiles(TOPOLOGY)):
        await asyncio.sleep(1)
        assert racks_of(cluster, "a b c d") == ["r2"] * 4
        assert condition(cluster, "g") == ("True", "Scheduled", "")


async def test_placement_with_room_for_most_pods_is_preferred(cluster: Any, scheduling: Any) -> None:
    add_racks(cluster, {"r1": "1", "r2": "4", "r3": "1"})
    cluster.pod_group("g", min_count=2, topology_key="rack")
    add_members(cluster, "g", "a b c d", cpu="1")
    async with scheduling(**default_profiles(TOPOLOGY)):
        await asyncio.sleep(1)
        assert racks_of(cluster, "a b c d") == ["r2"] * 4


async def test_fuller_placement_is_preferred_if_all_pods_fit(cluster: Any, scheduling: Any) -> None:
    add_racks(cluster, {"r1": "4", "r2": "4", "r3": "4"})
    cluster.pod("other", cpu="2", nodeName="r2-0")
    cluster.pod_group("g", min_count=2, topology_key="rack")
    add_members(cluster, "g", "a b", cpu="1")
    async with scheduling(**default_profiles(TOPOLOGY)):
        await asyncio.sleep(1)
        assert racks_of(cluster, "a b") == ["r2", "r2"]


async def test_later_members_go_to_the_domain_of_the_group(cluster: Any, scheduling: Any) -> None:
    add_racks(cluster, {"r1": "1", "r2": "2"})
    cluster.pod_group("g", min_count=3, topology_key="rack")
    add_members(cluster, "g", "a b c", cpu="1")
    async with scheduling(**default_profiles(TOPOLOGY)):
        await asyncio.sleep(1)
        add_members(cluster, "g", "d e", cpu="1")
        await asyncio.sleep(1)
        assert racks_of(cluster, "a b c d e") == ["r2"] * 4 + [""]
        assert messages(cluster, "e")[0].startswith("0/2 nodes are available: 2 Insufficient cpu.")
        assert condition(cluster, "g") == ("True", "Scheduled", "")


async def test_group_that_fits_in_no_domain(cluster: Any, scheduling: Any) -> None:
    add_racks(cluster, {"r1": "1", "r2": "1"})
    cluster.pod_group("g", min_count=3, topology_key="rack")
    add_members(cluster, "g", "a b c", cpu="1")
    async with scheduling(**default_profiles(TOPOLOGY)):
        await asyncio.sleep(1)
        assert nodes_of(cluster, "a b c") == ["", "", ""]
        first = "0/2 placements are available, first placement status: pod group is unschedulable"
        assert condition(cluster, "g") == ("False", "Unschedulable", first)
        assert messages(cluster, "a")[0] == WAITS
        assert messages(cluster, "c")[0].startswith("0/2 nodes are available: 2 Insufficient cpu.")


async def test_no_node_has_the_topology_label(cluster: Any, scheduling: Any) -> None:
    cluster.node("n")
    cluster.pod_group("g", min_count=2, topology_key="rack")
    add_members(cluster, "g", "a b")
    async with scheduling(**default_profiles(TOPOLOGY)):
        await asyncio.sleep(0.5)
        assert condition(cluster, "g") == ("False", "Unschedulable", "no feasible placements found")
        assert messages(cluster, "a") == ["no feasible placements found"]


async def test_group_without_topology_constraint_may_use_all_nodes(cluster: Any, scheduling: Any) -> None:
    add_racks(cluster, {"r1": "1", "r2": "1"})
    cluster.pod_group("g", min_count=4)
    add_members(cluster, "g", "a b c d", cpu="1")
    async with scheduling(**default_profiles(TOPOLOGY)):
        await asyncio.sleep(1)
        assert sorted(racks_of(cluster, "a b c d")) == ["r1", "r1", "r2", "r2"]


# --- concurrent changes ----------------------------------------------------------------------------------------------


async def test_other_tasks_run_during_a_long_cycle(cluster: Any, scheduling: Any, monkeypatch: Any) -> None:
    """A member that is deleted meanwhile is tried to the end, and then not reserved."""
    monkeypatch.setattr(pod_group_cycle, "_TURN_NS", 0)
    cluster.node("n")
    cluster.pod_group("g", min_count=3)
    add_members(cluster, "g", "a b c d")
    async with scheduling(**default_profiles(GANGS)) as scheduler:
        while not scheduler.awaits_call:
            await asyncio.sleep(0)
        cluster.delete_pod("default/b")
        turns = 0
        while scheduler.awaits_call:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 8  # four members are tried, then four are reserved
        await asyncio.sleep(1)
        assert nodes_of(cluster, "a b c d") == ["n", "", "n", "n"]
        assert scheduler.cache.sizes() == (1, 3, 0)
        scheduler.cache.check()
        scheduler.cache.pod_groups.check()
        assert scheduler.queue.in_flight.keys() == []


async def test_member_of_an_unknown_group_fails(cluster: Any, scheduling: Any) -> None:
    cluster.node("n")
    cluster.pod_group("g")
    async with scheduling(**default_profiles(GANGS)) as scheduler:
        add_members(cluster, "g", "a")
        get = scheduler.cache.pod_groups.get
        scheduler.cache.pod_groups.get = lambda key: None
        await asyncio.sleep(0.5)
        scheduler.cache.pod_groups.get = get
        text = "error while retrieving pod group state: pod group state not found for pod group default/g"
        assert messages(cluster, "a") == [text]
        await asyncio.sleep(5)
        assert nodes_of(cluster, "a") == ["n"]


async def test_gang_waits_on_permit_for_a_member_that_is_not_reserved(cluster: Any, scheduling: Any) -> None:
    """Permit of the members that wait activates the one that failed; its cycle reaches minCount and allows them."""
    cluster.node("n", cpu="3")
    cluster.pod_group("g", min_count=3)
    add_members(cluster, "g", "a b c", cpu="1")
    async with scheduling(**default_profiles(GANGS)) as scheduler:
        assume, refused = scheduler.cache.assume_pod, []

        def refuse_once(info: Any) -> None:
            if info.pod.metadata.name == "b" and not refused:
                refused.append(info)
                raise CacheError("refused")
            assume(info)

        scheduler.cache.assume_pod = refuse_once
        await asyncio.sleep(0.5)
        assert nodes_of(cluster, "a b c") == ["n", "n", "n"]
        assert [key for key, reason, message in cluster.events if message == "refused"] == ["default/b"]


async def test_pods_that_wait_too_long_on_permit_return_their_nodes(cluster: Any, scheduling: Any) -> None:
    cluster.node("n", cpu="2")
    cluster.pod_group("g", min_count=2)
    add_members(cluster, "g", "a b", cpu="1")
    async with scheduling(**default_profiles(GANGS)) as scheduler:
        assume = scheduler.cache.assume_pod

        def refuse(info: Any) -> None:
            if info.pod.metadata.name == "b":
                raise CacheError("refused")
            assume(info)

        scheduler.cache.assume_pod = refuse
        await asyncio.sleep(299)
        assert [pod.metadata.name for pod in scheduler.cache.assumed_pods()] == ["a"]
        await asyncio.sleep(2)
        timeout = "rejected due to timeout after waiting 5m0s at plugin GangScheduling"
        assert any(timeout in message for message in messages(cluster, "a"))
        scheduler.cache.assume_pod = assume
        await asyncio.sleep(30)
        assert nodes_of(cluster, "a b") == ["n", "n"]


# --- traces ----------------------------------------------------------------------------------------------------------


async def test_trace_facts_of_members(cluster: Any, scheduling: Any, clock: Any) -> None:
    finished: list[PodRecord] = []
    traces = standalone_pod_recorder(OpenPodRecords(clock=clock, on_finished=finished.append), rng=random.Random(1))
    cluster.node("n", cpu="2")
    cluster.pod_group("g", min_count=3)
    async with scheduling(**default_profiles(GANGS), traces=traces):
        add_members(cluster, "g", "a b c", cpu="1")
        for pod in cluster.pods():
            traces.observed(pod)
        await asyncio.sleep(0.5)
        cluster.node("n", cpu="3")
        await asyncio.sleep(10)
        for pod in cluster.pods():
            traces.observed(pod)
    assert {record.name: record.node for record in finished} == {"a": "n", "b": "n", "c": "n"}
    for record in finished:
        check_spans(pod_trace(record))
        attempts = [fact for fact in record.facts if isinstance(fact, SchedulingAttempt)]
        assert [attempt.number for attempt in attempts] == list(range(1, len(attempts) + 1))
        assert all(attempt.end_ns for attempt in attempts)
        results = [attempt.result for attempt in attempts if attempt.result is not None]
        *failed, last = [(result.result, result.node) for result in results]
        assert failed == [("unschedulable", "")] * (len(attempts) - 1)
        assert failed
        assert last == ("scheduled", "n")
        phases = [fact.name for fact in record.facts if isinstance(fact, Phase)]
        assert phases == (["reserve", "bind"] if phases[1:] == ["bind"] else ["reserve", "permit", "bind"])


async def test_nominated_members_do_not_keep_room_from_each_other(cluster: Any, scheduling: Any) -> None:
    """There is room for one member on "n", where all three are nominated."""
    cluster.pod_group("g", min_count=1)
    async with scheduling(**default_profiles(GANGS)):
        add_members(cluster, "g", "a b c", cpu="1", priority=10, preemptionPolicy="Never")
        await asyncio.sleep(0.5)
        for name in "abc":
            cluster.change_pod(f"default/{name}", status={"phase": "Pending", "nominatedNodeName": "n"})
        cluster.node("n", cpu="1")
        await asyncio.sleep(30)
        assert sorted(nodes_of(cluster, "a b c")) == ["", "", "n"]


async def test_status_update_during_the_cycle_restores_no_nomination(
    cluster: Any, scheduling: Any, monkeypatch: Any
) -> None:
    """A nomination of one member arrives while the others are tried; its failed attempt makes it effective."""
    monkeypatch.setattr(pod_group_cycle, "_TURN_NS", 0)
    cluster.node("n", cpu="1")
    cluster.pod_group("g", min_count=1)
    add_members(cluster, "g", " ".join(f"m{number}" for number in range(20)), cpu="1", preemptionPolicy="Never")
    uid = cluster.stored_pod("default/m19")["metadata"]["uid"]
    nominations = []
    async with scheduling(**default_profiles(GANGS)) as scheduler:
        while not scheduler.awaits_call:
            await asyncio.sleep(0)
        cluster.change_pod("default/m19", status={"phase": "Pending", "nominatedNodeName": "n"})
        while uid in scheduler.queue.in_flight:
            if scheduler.listers.pods.get("default/m19").status.nominated_node_name:
                nominations.append(scheduler.queue.nominator.node_of(uid))
            await asyncio.sleep(0)
        assert scheduler.queue.nominator.node_of(uid) == "n"
    assert set(nominations) == {""}


# --- dry runs ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def idle_scheduler(cluster: SchedulerCluster, gates: dict[str, bool]) -> AsyncIterator[Scheduler]:
    """A scheduler whose cache and queue are filled, but which schedules no pod."""
    informers = InformerFactory(cluster.server.client, clock=cluster.clock, rng=random.Random(1))
    config = SchedulerConfiguration(profiles=default_configuration(FeatureGates(gates)).profiles)
    scheduler = cluster.scheduler(config, informers, feature_gates=FeatureGates(gates))
    running = asyncio.create_task(informers.run())
    await informers.wait_synced()
    await asyncio.sleep(0)
    yield scheduler
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("gates", [GANGS, TOPOLOGY])
@pytest.mark.parametrize(
    ("members", "expected"),
    [
        pytest.param("", None, id="no pods"),
        pytest.param("a b c", ("scheduled", 3, 3, "", ""), id="all fit"),
        pytest.param(
            "a b c d", ("unschedulable", 4, 0, "3 of 4 pods fit; d: 0/1 nodes are available", "d"), id="3 fit"
        ),
        pytest.param("a b", None, id="gated: fewer than minCount"),
    ],
)
async def test_dry_run_returns_the_result_of_an_attempt_and_changes_nothing(
    cluster: Any, gates: dict[str, bool], members: str, expected: Any
) -> None:
    cluster.node("n", cpu="3")
    cluster.pod_group("g", min_count=4 if "d" in members else 3)
    add_members(cluster, "g", members, cpu="1")
    async with idle_scheduler(cluster, gates) as scheduler:
        cycle = scheduler.pod_group_cycle
        assert cycle is not None
        requests = len(cluster.server.requests)
        for _ in range(2):
            facts = await cycle.dry_run("default/g")
            if expected is None:
                assert facts is None
                continue
            assert facts is not None
            result, pods, scheduled, message, unfit = expected
            assert (facts.result, facts.pods, facts.scheduled_pods, facts.unfit_pod) == (result, pods, scheduled, unfit)
            assert facts.message.startswith(message)
            assert not facts.preemption, "without preemption"
        await asyncio.sleep(1)
        assert len(cluster.server.requests) == requests
        assert cycle.failed == {}
        assert scheduler.cache.sizes() == (1, 0, 0)
        scheduler.queue.check()


async def test_dry_run_of_a_group_that_no_profile_schedules(cluster: Any) -> None:
    cluster.node("n", cpu="3")
    for group in ("g", "other"):
        cluster.pod_group(group, min_count=1)
    add_members(cluster, "other", "x", schedulerName="another")
    add_members(cluster, "g", "a", cpu="1")
    async with idle_scheduler(cluster, GANGS) as scheduler:
        assert scheduler.pod_group_cycle is not None
        assert await scheduler.pod_group_cycle.dry_run("default/other") is None
        assert await scheduler.pod_group_cycle.dry_run("default/unknown") is None
        facts = await scheduler.pod_group_cycle.dry_run("default/g")
        assert facts is not None
        assert (facts.pods, facts.result) == (1, "scheduled")


async def test_dry_run_leaves_out_gated_and_bound_members(cluster: Any) -> None:
    cluster.node("n", cpu="3")
    cluster.pod_group("g", min_count=2)
    add_members(cluster, "g", "bound", cpu="1", nodeName="n")
    add_members(cluster, "g", "a", cpu="1")
    add_members(cluster, "g", "gated", cpu="1", schedulingGates=[{"name": "example.com/quota"}])
    async with idle_scheduler(cluster, GANGS) as scheduler:
        assert scheduler.pod_group_cycle is not None
        facts = await scheduler.pod_group_cycle.dry_run("default/g")
        assert facts is not None
        assert (facts.result, facts.pods, facts.scheduled_pods) == ("scheduled", 1, 1)


class RecordedGroupTraces:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def attempt_started(self, key: str) -> None:
        self.calls.append(("attempt started", key))

    def attempt_finished(self, key: str, facts: Any) -> None:
        self.calls.append(("attempt finished", key, facts.result))

    def permit_started(self, pod: Any) -> None:
        self.calls.append(("permit started", pod.metadata.name))

    def permit_finished(self, pod: Any, error: str | None) -> None:
        self.calls.append(("permit finished", pod.metadata.name, error))

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


async def test_attempts_and_waits_of_a_group_are_traced(cluster: Any, scheduling: Any) -> None:
    traces = RecordedGroupTraces()
    cluster.node("n", cpu="1")
    cluster.pod_group("g", min_count=2)
    add_members(cluster, "g", "a b", cpu="1")
    async with scheduling(**default_profiles(GANGS), group_traces=traces) as scheduler:
        await asyncio.sleep(0.5)
        failed = [("attempt started", "default/g"), ("attempt finished", "default/g", "unschedulable")]
        assert traces.calls == failed
        assert [*scheduler.pod_group_cycle.failed] == ["default/g"]
        cluster.node("m", cpu="1")
        await asyncio.sleep(10)
        assert nodes_of(cluster, "a b") in (["n", "m"], ["m", "n"])
    assert traces.calls[2:4] == [("attempt started", "default/g"), ("attempt finished", "default/g", "scheduled")]
    assert traces.calls[4:] == [("permit started", "a"), ("permit finished", "a", None)]  # until b is reserved
    assert scheduler.pod_group_cycle.failed == {}
