"""Victims of a preemption for a pod group. Rows as in podgrouppreemption_test.go and types_test.go of v1.36."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import PodDisruptionBudget, convert
from kubeloop.kube.objects.resources import POD_GROUPS
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.scheduler.api.results import unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config.load import read_configuration
from kubeloop.scheduler.config.types import default_configuration
from kubeloop.scheduler.plugins.preemption.disruption_budgets import Budget
from kubeloop.scheduler.plugins.preemption.executor import Preemptor
from kubeloop.scheduler.plugins.preemption.pod_group_preemption import (
    possible_victims,
    select_victims,
    split_by_violation,
)
from support.scheduling.plugin_cluster import PluginCluster, make_node, make_pod
from support.scheduling.scheduler_cluster import SchedulerCluster

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TOO_SMALL = unschedulable("", "the group does not fit")


def pod_group(name: str, mode: str | None = "PodGroup", priority: int | None = None) -> PodGroup:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return convert(PodGroup, {"metadata": metadata, "spec": {"disruptionMode": mode, "priority": priority}})


def placed(name: str, node: str, priority: int, group: str = "", day: int = 0, **spec: Any) -> Any:
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    if day:
        spec["status"] = {"startTime": f"2026-01-{day:02}T00:00:00Z"}
    return make_pod(name, node, priority=priority, **spec)


def cluster_of(pods: Iterable[Any], groups: Iterable[PodGroup] = ()) -> PluginCluster:
    pods = list(pods)
    names = sorted({pod.spec.node_name for pod in pods} | {"a", "b", "c"})
    cluster = PluginCluster([make_node(name) for name in names], pods)
    cluster.put("pod_groups", *groups)
    return cluster


def victims_of(cluster: PluginCluster, below: int = 100) -> list[Any]:
    groups = cluster.listers.pod_groups
    return possible_victims(cluster.snapshot.node_infos, groups, below_priority=below, now=NOW)


def names_of(pods: Iterable[Any]) -> list[str]:
    return [info.pod.metadata.name for info in pods]


@pytest.mark.parametrize(
    ("group", "together"),
    [
        pytest.param(None, False, id="the group does not exist"),
        pytest.param(pod_group("g", mode=None), False, id="no disruption mode"),
        pytest.param(pod_group("g", mode="Pod"), False, id="mode Pod"),
        pytest.param(pod_group("g"), True, id="mode PodGroup"),
    ],
)
def test_pods_of_a_group_are_one_victim_in_mode_pod_group(group: PodGroup | None, together: bool) -> None:
    pods = [placed("g-1", "a", 1, "g"), placed("g-2", "b", 1, "g"), placed("single", "a", 1)]
    victims = victims_of(cluster_of(pods, [group] if group else []))
    expected = [["g-1", "g-2"], ["single"]] if together else [["g-1"], ["single"], ["g-2"]]
    assert [names_of(victim.pods) for victim in victims] == expected


def test_priority_of_a_group_in_mode_pod_group_replaces_that_of_its_pods() -> None:
    pods = [placed("low-1", "a", 500, "low"), placed("high-1", "a", 1, "high"), placed("single", "b", 100)]
    groups = [pod_group("low", priority=10), pod_group("high", priority=500)]
    assert [(names_of(victim.pods), victim.priority) for victim in victims_of(cluster_of(pods, groups))] == [
        (["low-1"], 10)
    ]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param([("x", 2, "", 9)], [("y", 1, "", 1)], id="higher priority"),
        pytest.param([("x", 1, "pods", 9)], [("y", 1, "", 1)], id="pod of a group before a single pod"),
        pytest.param([("x", 1, "", 1)], [("y", 1, "", 2)], id="earlier start"),
        pytest.param([("x", 1, "", 1)], [("y", 1, "", 0)], id="started before not started"),
        pytest.param([("x1", 1, "g", 9), ("x2", 1, "g", 9)], [("y", 1, "h", 1)], id="more pods"),
        pytest.param([("x", 1, "g", 1)], [("y", 1, "h", 2)], id="groups of one size: earlier start"),
    ],
)
def test_victims_by_importance(better: list[Any], worse: list[Any]) -> None:
    pods = [placed(name, "a", priority, group, day) for name, priority, group, day in (*worse, *better)]
    groups = [pod_group("pods", mode="Pod"), *(pod_group(name, priority=1) for name in ("g", "h"))]
    ordered = sorted(victims_of(cluster_of(pods, groups)), key=lambda victim: victim.importance)
    assert [names_of(victim.pods) for victim in ordered] == [
        [name for name, *_ in better],
        [name for name, *_ in worse],
    ]


def test_order_of_victims_does_not_depend_on_the_order_of_arrival() -> None:
    pods = [
        *(placed(name, "a", 1) for name in ("s", "r")),
        *(placed(name, "a", 1, "g", day) for name, day in (("g-2", 1), ("g-1", 2))),
        *(placed(name, "a", 1, "h", 2) for name in ("h-2", "h-1")),
    ]
    groups = [pod_group(name, priority=1) for name in "gh"]
    orders = set()
    for order in itertools.permutations(pods):
        victims = sorted(victims_of(cluster_of(order, groups)), key=lambda victim: victim.importance)
        orders.add(tuple((*names_of(victim.pods), victim.start.day) for victim in victims))
    assert len(orders) == 1


def test_start_of_a_group_is_that_of_its_first_pod_by_node() -> None:
    pods = [placed("g-1", "a", 1, "g", day=5), placed("g-2", "b", 1, "g", day=1)]
    (victim,) = victims_of(cluster_of(pods, [pod_group("g")]))
    assert victim.start == datetime(2026, 1, 5, tzinfo=UTC)


def budget(allowed: int, **labels: str) -> Budget:
    body = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }
    return Budget(convert(PodDisruptionBudget, body))


def test_one_violation_of_a_group_counts_for_all_its_pods() -> None:
    labels = {"app": "db"}
    pods = [placed("g-1", "a", 1, "g"), placed("g-2", "b", 1, "g", labels=labels), placed("s", "c", 1, labels=labels)]
    victims = victims_of(cluster_of(pods, [pod_group("g")]))
    violating, others = split_by_violation(victims, [budget(1, app="db")])
    assert [names_of(victim.pods) for victim in violating] == [["s"]]
    assert [names_of(victim.pods) for victim in others] == [["g-1", "g-2"]]
    violating, others = split_by_violation(victims, [budget(0, app="db")])
    assert (len(violating), others) == (2, [])


def test_budgets_after_a_violated_one_do_not_count_the_pod() -> None:
    pods = [placed("x", "a", 1, labels={"app": "db", "tier": "1"}), placed("y", "b", 1, labels={"tier": "1"})]
    victims = victims_of(cluster_of(pods))
    violating, others = split_by_violation(victims, [budget(0, app="db"), budget(1, tier="1")])
    assert ([names_of(victim.pods) for victim in violating], names_of(others[0].pods)) == ([["x"]], ["y"])


class Places:
    """Schedules a group of `size`: each node has one place that is free while none of `blocked[node]` is there."""

    def __init__(self, cluster: PluginCluster, size: int, blocked: dict[str, set[str]]) -> None:
        self.snapshot, self.size, self.blocked, self.calls = cluster.snapshot, size, blocked, 0

    async def __call__(self) -> Status | None:
        self.calls += 1
        names = {node.name: set(names_of(node.pods.values())) for node in self.snapshot.node_infos}
        free = [node for node, blocking in self.blocked.items() if not names[node] & blocking]
        return None if len(free) >= self.size else TOO_SMALL


async def select(
    cluster: PluginCluster, blocked: dict[str, set[str]], *, size: int = 1, budgets: Any = (), priority: int = 100
) -> list[str] | Status:
    """Return the names of the victims, or the status, after checking that the snapshot is unchanged."""
    before = list(cluster.snapshot.node_infos)
    pods = {node.name: list(node.pods) for node in before}
    members = [make_pod(f"member-{index}", priority=priority) for index in range(size)]
    result = await select_victims(
        Preemptor.of_group(pod_group("preemptor", priority=priority), members),
        cluster.snapshot,
        cluster.listers.pod_groups,
        budgets,
        Places(cluster, size, blocked),
        NOW,
        "DefaultPreemption",
    )
    assert all(one is other for one, other in zip(before, cluster.snapshot.node_infos, strict=True))
    assert {node.name: list(node.pods) for node in before} == pods
    return result if isinstance(result, Status) else names_of(result)


async def test_least_important_victims_are_selected() -> None:
    pods = [
        placed("g1-new", "a", 1, "g1", day=2),
        placed("g1-old", "b", 1, "g1", day=1),
        placed("g2", "c", 1, "g2", day=1),
        placed("mid", "d", 50),
        placed("high", "e", 100),
    ]
    groups = [pod_group("g1", mode="Pod"), pod_group("g2", mode="Pod")]
    blocked = {pod.spec.node_name: {pod.metadata.name} for pod in pods}
    cluster = cluster_of(pods, groups)
    assert await select(cluster, blocked) == ["g1-new"]
    assert await select(cluster, blocked, size=3) == ["g1-old", "g2", "g1-new"]
    assert await select(cluster, blocked, size=4) == ["mid", "g1-old", "g2", "g1-new"]
    assert await select(cluster, blocked, size=5) == TOO_SMALL


async def test_group_is_evicted_as_a_whole_on_all_its_nodes() -> None:
    pods = [placed("g-1", "a", 1, "g"), placed("g-2", "b", 1, "g"), placed("other", "a", 1)]
    cluster = cluster_of(pods, [pod_group("g")])
    assert await select(cluster, {"a": {"g-1"}}) == ["g-1", "g-2"]
    assert await select(cluster, {"a": {"other"}}) == ["other"]


async def test_claims_of_victims_are_free_for_the_group_and_in_use_afterwards() -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    cluster = cluster_of([placed("p", "a", 1, volumes=[volume])])
    snapshot = cluster.snapshot

    async def schedule() -> Status | None:
        member = PodInfo(make_pod("member", "a"))
        snapshot.assume_pod(member)
        used = snapshot.is_claim_used("default/data")
        snapshot.forget_pod("member")
        return TOO_SMALL if used else None

    preemptor = Preemptor.of_group(pod_group("preemptor", priority=9), [make_pod("member")])
    victims = await select_victims(preemptor, snapshot, cluster.listers.pod_groups, (), schedule, NOW, "D")
    assert not isinstance(victims, Status)
    assert names_of(victims) == ["p"]
    assert snapshot.is_claim_used("default/data")


async def test_victims_that_violate_no_budget_are_preferred() -> None:
    pods = [placed("covered", "a", 1, labels={"app": "db"}), placed("other", "b", 50)]
    cluster = cluster_of(pods)
    blocked = {"a": {"covered"}, "b": {"other"}}
    assert await select(cluster, blocked, budgets=[budget(0, app="db")]) == ["other"]
    assert await select(cluster, blocked) == ["covered"]
    assert await select(cluster, blocked, size=2, budgets=[budget(0, app="db")]) == ["other", "covered"]


@pytest.mark.parametrize("priority", [1, 0])
async def test_there_are_no_victims_of_the_same_or_a_higher_priority(priority: int) -> None:
    status = await select(cluster_of([placed("p", "a", 1)]), {"a": {"p"}}, priority=priority)
    assert isinstance(status, Status)
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.reasons == ("No preemption victims found for incoming preemptor",)


async def test_one_pod_with_policy_never_forbids_the_preemption() -> None:
    cluster = cluster_of([placed("p", "a", 1)])
    schedule = Places(cluster, 1, {"a": {"p"}})
    members = [make_pod("m-1", preemptionPolicy="Never"), make_pod("m-2", preemptionPolicy="PreemptLowerPriority")]
    preemptor = Preemptor.of_group(pod_group("g", priority=9), members)
    status = await select_victims(preemptor, cluster.snapshot, cluster.listers.pod_groups, (), schedule, NOW, "D")
    assert status == unschedulable("D", "not eligible due to preemptionPolicy=Never.")
    assert schedule.calls == 0


async def test_snapshot_is_restored_after_an_error() -> None:
    cluster = cluster_of([placed("p", "a", 1)])
    before = list(cluster.snapshot.node_infos)

    async def fail() -> Status | None:
        raise RuntimeError

    preemptor = Preemptor.of_group(pod_group("g", priority=9), [make_pod("member")])
    with pytest.raises(RuntimeError):
        await select_victims(preemptor, cluster.snapshot, cluster.listers.pod_groups, (), fail, NOW, "D")
    assert all(one is other for one, other in zip(before, cluster.snapshot.node_infos, strict=True))


# --- in a running scheduler --------------------------------------------------------------------------------------


GATES = dict.fromkeys(("GenericWorkload", "GangScheduling", "WorkloadAwarePreemption"), True)


@pytest.fixture
async def cluster(clock: Any) -> SchedulerCluster:
    return SchedulerCluster(clock, FeatureGates(GATES | {"TopologyAwareWorkloadScheduling": True}))


def default_profiles(**gates: bool) -> dict[str, Any]:
    return {"gates": GATES | gates, "profiles": default_configuration(FeatureGates(GATES | gates)).profiles}


def full_node(cluster: SchedulerCluster, min_count: int = 2, mode: str = "Pod", topology_key: str = "") -> None:
    """Add the gang "new", and a node that the pods "low-1" and "low-2" of the group "old" fill."""
    cluster.node("n", cpu="2")
    cluster.pod_group("old", min_count=1, priority=10, disruptionMode=mode)
    cluster.pod_group("new", min_count=min_count, priority=100, topology_key=topology_key)
    for name in ("low-1", "low-2"):
        cluster.pod(name, cpu="1", nodeName="n", priority=10, schedulingGroup={"podGroupName": "old"})


def add_gang(cluster: SchedulerCluster, *names: str, **spec: Any) -> None:
    for name in names:
        cluster.pod(name, **({"cpu": "1", "priority": 100, "schedulingGroup": {"podGroupName": "new"}} | spec))


@pytest.mark.virtual_time
@pytest.mark.parametrize("in_background", [True, False])
async def test_gang_replaces_pods_of_lower_priority(in_background: bool, cluster: Any, scheduling: Any) -> None:
    full_node(cluster)
    async with scheduling(**default_profiles(SchedulerAsyncPreemption=in_background)) as scheduler:
        add_gang(cluster, "a", "b")
        await asyncio.sleep(0.5)
        facts = scheduler.pod_group_cycle.failed["default/new"]
        assert (facts.result, facts.victims) == ("preempting", 2)
        await asyncio.sleep(30)
        assert [cluster.node_of(f"default/{name}") for name in ("a", "b")] == ["n", "n"]
    preempted = {key: message for key, reason, message in cluster.events if reason == "Preempted"}
    assert preempted.keys() == {"default/low-1", "default/low-2"}
    assert all(
        message.startswith("Preempted by podgroup ") and message.endswith(" on node cluster")
        for message in preempted.values()
    )
    failures = {message for key, reason, message in cluster.events if reason == "FailedScheduling"}
    assert any("preemption: not eligible due to workload aware preemption enabled" in message for message in failures)


@pytest.mark.virtual_time
async def test_one_pod_less_than_min_count_preempts_no_pod(cluster: Any, scheduling: Any) -> None:
    full_node(cluster)
    async with scheduling(**default_profiles()):
        add_gang(cluster, "a", "b", cpu="2")
        await asyncio.sleep(30)
        assert {key for key, reason, _ in cluster.events if reason == "Preempted"} == set()
        stored = cluster.server.store.get(POD_GROUPS, "default", "new")
        assert [entry["message"] for entry in stored["status"]["conditions"]] == [
            "pod group is unschedulable, pod group is unschedulable"
        ]


@pytest.mark.virtual_time
@pytest.mark.parametrize(("mode", "victims"), [("PodGroup", 2), ("Pod", 1)])
async def test_group_is_evicted_by_its_disruption_mode(mode: str, victims: int, cluster: Any, scheduling: Any) -> None:
    full_node(cluster, min_count=1, mode=mode)
    async with scheduling(**default_profiles()):
        add_gang(cluster, "a")
        await asyncio.sleep(30)
        assert cluster.node_of("default/a") == "n"
    assert len([reason for _, reason, _ in cluster.events if reason == "Preempted"]) == victims


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("topology_key", "profile", "reason"),
    [
        pytest.param(
            "rack",
            {},
            "workload aware preemption is not supported for pod groups with scheduling constraints",
            id="constraints",
        ),
        pytest.param(
            "",
            {"plugins": {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}]}}},
            "default preemption plugin is not registered, workload aware preemption is disabled",
            id="plugin disabled",
        ),
    ],
)
async def test_condition_says_why_the_group_cannot_preempt(
    topology_key: str, profile: dict[str, Any], reason: str, cluster: Any, scheduling: Any
) -> None:
    full_node(cluster, topology_key=topology_key)
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler"} | profile],
    }
    profiles = read_configuration(document, FeatureGates(GATES)).profiles
    async with scheduling(gates=GATES, profiles=profiles):
        add_gang(cluster, "a", "b")
        await asyncio.sleep(3)
        stored = cluster.server.store.get(POD_GROUPS, "default", "new")
        assert [entry["message"] for entry in stored["status"]["conditions"]] == [
            f"pod group is unschedulable, {reason}"
        ]
