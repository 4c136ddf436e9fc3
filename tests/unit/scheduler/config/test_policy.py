"""Legacy configuration: algorithm provider names, and Policy documents with predicates and priorities."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kubeloop.kube.errors import UserError
from kubeloop.kube.objects.resources import SERVICES
from kubeloop.scheduler.config.load import load_configuration
from kubeloop.scheduler.config.policy import PREDICATES, PRIORITIES, provider_configuration
from kubeloop.scheduler.config.types import SchedulerConfiguration


def policy(**fields: Any) -> SchedulerConfiguration:
    return load_configuration(json.dumps({"kind": "Policy", "apiVersion": "v1", **fields}))


def test_policy_translates_all_predicates_and_priorities():
    # These and LeastRequestedPriority all set the scoring strategy of NodeResourcesFit.
    others = ("MostRequestedPriority", "RequestedToCapacityRatioPriority")
    config = policy(
        predicates=[{"name": name} for name in PREDICATES],
        priorities=[{"name": name, "weight": 2} for name in PRIORITIES if name not in others],
        hardPodAffinitySymmetricWeight=7,
    )
    (profile,) = config.profiles
    weights = {ref.name: ref.weight for ref in profile.multi_point.enabled}
    assert {plugin for plugins in PREDICATES.values() for plugin in plugins} <= weights.keys()
    assert weights["SelectorSpread"] == 4  # the sum of two priorities
    assert weights["NodeResourcesFit"] == 2
    assert profile.args["InterPodAffinity"].hard_pod_affinity_weight == 7


def test_policy_without_lists_uses_legacy_defaults():
    (profile,) = policy().profiles
    weights = {ref.name: ref.weight for ref in profile.multi_point.enabled}
    assert weights["NodePreferAvoidPods"] == 10000
    assert weights["SelectorSpread"] == 1
    assert "VolumeBinding" in weights


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"predicates": [{"name": "Fits"}]}, "invalid configuration: predicate type not found for 'Fits'"),
        ({"priorities": [{"name": "Best", "weight": 1}]}, "invalid configuration: priority type not found for 'Best'"),
        ({"priorities": [{"name": "EqualPriority"}]}, "priority EqualPriority should have a positive weight"),
        ({"hardPodAffinitySymmetricWeight": 101}, "invalid hardPodAffinitySymmetricWeight: 101"),
    ],
)
def test_invalid_policy_error(fields, problem):
    with pytest.raises(UserError) as error:
        policy(**fields)
    assert str(error.value).startswith(problem)


def test_algorithm_provider_names():
    assert provider_configuration("DefaultProvider") == SchedulerConfiguration()
    (profile,) = provider_configuration("ClusterAutoscalerProvider").profiles
    assert profile.args["NodeResourcesFit"].scoring_strategy.type == "MostAllocated"
    with pytest.raises(UserError, match='"Mine" is not registered'):
        provider_configuration("Mine")


def with_profile(config: SchedulerConfiguration) -> dict[str, Any]:
    return {"profiles": config.profiles}


@pytest.mark.virtual_time
async def test_only_listed_predicates_filter(cluster, scheduling):
    cluster.node("small", cpu="1")
    config = policy(predicates=[{"name": "PodFitsHost"}], priorities=[{"name": "EqualPriority", "weight": 1}])
    async with scheduling(**with_profile(config)):
        cluster.pod("big", cpu="2")
        await asyncio.sleep(0.5)
        assert cluster.bindings == [("default/big", "small")]


@pytest.mark.virtual_time
async def test_always_check_all_predicates_reports_all_reasons(cluster, scheduling):
    cluster.node("n", cpu="1", unschedulable=True)
    predicates = [{"name": "GeneralPredicates"}]
    async with scheduling(**with_profile(policy(predicates=predicates, alwaysCheckAllPredicates=True))):
        cluster.pod("p", cpu="2")
        await asyncio.sleep(0.5)
        assert cluster.events[0][2].startswith(
            "0/1 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
        )


@pytest.mark.virtual_time
async def test_node_pressure_predicates(cluster, scheduling):
    for pressure in ("MemoryPressure", "DiskPressure"):
        cluster.node("n", status={"conditions": [{"type": pressure, "status": "True"}]})
        name = pressure.lower()
        async with scheduling(**with_profile(policy(predicates=[{"name": f"CheckNode{pressure}"}]))):
            cluster.pod(f"requesting-{name}", cpu="100m")
            cluster.pod(f"best-effort-{name}", cpu="")
            await asyncio.sleep(0.5)
    assert cluster.bindings == [("default/requesting-memorypressure", "n")]


@pytest.mark.virtual_time
async def test_selector_spread_spreads_over_zones(cluster, scheduling):
    for zone, name in (("x", "a"), ("x", "b"), ("y", "c")):
        cluster.node(name, labels={"topology.kubernetes.io/zone": zone})
    cluster.put(SERVICES, {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}}})
    priorities = [{"name": "SelectorSpreadPriority", "weight": 1}]
    async with scheduling(**with_profile(policy(priorities=priorities))):
        for number in range(4):
            cluster.pod(f"p{number}", metadata={"labels": {"app": "web"}})
            await asyncio.sleep(0.1)
    zones = ["y" if node == "c" else "x" for _, node in cluster.bindings]
    assert sorted(zones[:2]) == ["x", "y"]
    assert sorted(zones[2:]) == ["x", "y"]


@pytest.mark.virtual_time
async def test_node_prefer_avoid_pods(cluster, scheduling):
    avoid_pods = {"preferAvoidPods": [{"podSignature": {"podController": {"kind": "ReplicaSet", "uid": "rs"}}}]}
    cluster.node("plain")
    annotations = {"scheduler.alpha.kubernetes.io/preferAvoidPods": json.dumps(avoid_pods)}
    cluster.node("avoiding", annotations=annotations)
    priorities = [{"name": "NodePreferAvoidPodsPriority", "weight": 1}]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    async with scheduling(**with_profile(policy(priorities=priorities))):
        for number in range(5):
            cluster.pod(f"p{number}", metadata={"ownerReferences": [owner]})
        await asyncio.sleep(1)
    assert {node for _, node in cluster.bindings} == {"plain"}
