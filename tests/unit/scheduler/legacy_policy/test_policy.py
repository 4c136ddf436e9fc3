"""Legacy configuration: algorithm provider names, and Policy documents with predicates and priorities."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kubeloop.kube.objects.resources import SERVICES
from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.config.load import load_configuration, read_configuration
from kubeloop.scheduler.config.plugin_args import (
    CPU_AND_MEMORY,
    NodeLabelArgs,
    RequestedToCapacityRatioArgs,
    ResourceSpec,
    ServiceAffinityArgs,
    UtilizationShapePoint,
)
from kubeloop.scheduler.config.types import DEFAULT_EXTENDER_TIMEOUT_SECONDS, SchedulerConfiguration
from kubeloop.scheduler.config.v1 import configuration_text
from kubeloop.scheduler.legacy_policy.policy import (
    POLICY_KIND,
    PREDICATES,
    PRIORITIES,
    RATIO_PRIORITY,
    decode_policy,
    load_policy,
    provider_configuration,
    with_policy,
)

PREFERS_SSD = {"labelPreference": {"label": "ssd", "presence": True}}
RATIO = {"requestedToCapacityRatioArguments": {"shape": [{"utilization": 0}, {"utilization": 100, "score": 10}]}}


def policy(**fields: Any) -> SchedulerConfiguration:
    return decode_policy({"kind": "Policy", "apiVersion": "v1", **fields})


def test_policy_translates_all_predicates_and_priorities():
    config = policy(
        predicates=[{"name": name} for name in PREDICATES],
        priorities=[
            {"name": name, "weight": 2} | ({"argument": RATIO} if name == RATIO_PRIORITY else {}) for name in PRIORITIES
        ],
        hardPodAffinitySymmetricWeight=7,
    )
    (profile,) = config.profiles
    weights = {ref.name: ref.weight for ref in profile.multi_point.enabled}
    assert {plugin for plugins in PREDICATES.values() for plugin in plugins} <= weights.keys()
    assert {plugin for plugin in PRIORITIES.values() if plugin} <= {
        name for name, weight in weights.items() if weight == 2
    }
    assert profile.args["PodTopologySpread"].defaulting_type == "List"
    assert profile.args["InterPodAffinity"].hard_pod_affinity_weight == 7


def test_policy_without_lists_uses_legacy_defaults():
    (profile,) = policy().profiles
    weights = {ref.name: ref.weight for ref in profile.multi_point.enabled}
    assert weights["NodePreferAvoidPods"] == 10000
    assert weights["SelectorSpread"] == 1
    assert weights["BalancedResourceAllocation"] == 1
    assert {"VolumeBinding", "MaxEBSVolumeCount", "NodeVolumeLimits"} <= weights.keys()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"predicate": []}, 'strict decoding error: unknown field "predicate"'),
        ({"apiVersion": "v2"}, 'apiVersion: no kind "Policy" is registered for version "v2"'),
        (
            {"extenders": [{"urlPrefix": "http://x", "filterverb": "filter"}]},
            'strict decoding error: unknown field "extenders[0].filterverb"',
        ),
        (
            {"predicates": [{"name": "Zone", "argument": {"serviceAffinity": {"label": "zone"}}}]},
            'strict decoding error: unknown field "predicates[0].argument.serviceAffinity.label"',
        ),
        (
            {"predicates": [{"name": "Zone", "argument": {"labelPreference": {"label": "zone"}}}]},
            'strict decoding error: unknown field "predicates[0].argument.labelPreference"',
        ),
        (
            {"predicates": [{"name": "PodFitsResources", "argument": {"serviceAffinity": {"labels": ["zone"]}}}]},
            "predicates[0].argument.serviceAffinity: PodFitsResources takes no argument",
        ),
        (
            {"predicates": [{"name": "Zone", "argument": {}}]},
            "predicates[0].argument: exactly 1 predicate argument is required, numArgs: 0, predicate 'Zone'",
        ),
        (
            {"priorities": [{"name": "ImageLocalityPriority", "weight": 1, "argument": PREFERS_SSD}]},
            "priorities[0].argument.labelPreference: ImageLocalityPriority takes no such argument",
        ),
        (
            {
                "priorities": [
                    {"name": "A", "weight": 1, "argument": PREFERS_SSD},
                    {"name": "B", "weight": 2, "argument": PREFERS_SSD},
                ]
            },
            "priorities[1].weight: labelPreference priority 'B' has a different weight with 'A'",
        ),
        (
            {
                "priorities": [
                    {"name": "RequestedToCapacityRatioPriority", "weight": 1, "argument": RATIO},
                    {"name": "Mine", "weight": 1, "argument": RATIO},
                ]
            },
            "priorities[1].argument.requestedToCapacityRatioArguments: priority 'Mine' redeclares custom priority",
        ),
        (
            {
                "predicates": [
                    {"name": "A", "argument": {"labelsPresence": {"labels": ["gpu"], "presence": True}}},
                    {"name": "B", "argument": {"labelsPresence": {"labels": ["gpu"]}}},
                ]
            },
            'NodeLabel.absentLabels: Invalid value: "gpu": is also in presentLabels',
        ),
        ({"predicates": [{"name": "Fits"}]}, "invalid configuration: predicate type not found for 'Fits'"),
        ({"priorities": [{"name": "Best", "weight": 1}]}, "invalid configuration: priority type not found for 'Best'"),
        (
            {"priorities": [{"name": "RequestedToCapacityRatioPriority", "weight": 1}]},
            "RequestedToCapacityRatioPriority needs requestedToCapacityRatioArguments",
        ),
        ({"priorities": [{"name": "EqualPriority"}]}, "priority EqualPriority should have a positive weight"),
        (
            {"hardPodAffinitySymmetricWeight": 101, "priorities": [{"name": "ImageLocalityPriority"}]},
            "priority ImageLocalityPriority should have a positive weight applied to it or it has overflown; "
            "hardPodAffinitySymmetricWeight: Invalid value: 101: not in valid range [0-100]",
        ),
        (
            {"priorities": [{"name": "Packed", "weight": 1, "argument": {"requestedToCapacityRatioArguments": {}}}]},
            "RequestedToCapacityRatio.shape: Required value: at least one point must be specified",
        ),
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


def test_arguments_under_custom_names():
    (profile,) = policy(
        predicates=[
            {"name": "SameZone", "argument": {"serviceAffinity": {"labels": ["zone"]}}},
            {"name": "SameRack", "argument": {"serviceAffinity": {"labels": ["rack"]}}},
            {"name": "HasGpu", "argument": {"labelsPresence": {"labels": ["gpu"], "presence": True}}},
            {"name": "NotRetiring", "argument": {"labelsPresence": {"labels": ["retiring"]}}},
        ],
        priorities=[
            {"name": "OverZones", "weight": 2, "argument": {"serviceAntiAffinity": {"label": "zone"}}},
            {"name": "OverRacks", "weight": 2, "argument": {"serviceAntiAffinity": {"label": "rack"}}},
            {"name": "Ssd", "weight": 3, "argument": PREFERS_SSD},
            {"name": "NotOld", "weight": 3, "argument": {"labelPreference": {"label": "old"}}},
            {"name": "Packed", "weight": 5, "argument": RATIO},
        ],
    ).profiles
    weights = {ref.name: ref.weight for ref in profile.multi_point.enabled if ref.weight}
    assert weights == {"ServiceAffinity": 4, "NodeLabel": 6, "RequestedToCapacityRatio": 5}
    assert profile.args["ServiceAffinity"] == ServiceAffinityArgs(
        affinity_labels=("zone", "rack"), anti_affinity_labels_preference=("zone", "rack")
    )
    assert profile.args["NodeLabel"] == NodeLabelArgs(
        present_labels=("gpu",),
        absent_labels=("retiring",),
        present_labels_preference=("ssd",),
        absent_labels_preference=("old",),
    )
    shape = (UtilizationShapePoint(), UtilizationShapePoint(utilization=100, score=10))
    assert profile.args["RequestedToCapacityRatio"] == RequestedToCapacityRatioArgs(shape=shape)


def test_resources_without_weight_have_weight_1():
    resources = [{"name": "cpu", "weight": 0}, {"name": "memory", "weight": 500}]
    arguments = {
        "requestedToCapacityRatioArguments": RATIO["requestedToCapacityRatioArguments"] | {"resources": resources}
    }
    (profile,) = policy(priorities=[{"name": "Packed", "weight": 1, "argument": arguments}]).profiles
    expected = (CPU_AND_MEMORY[0], ResourceSpec(name="memory", weight=500))
    assert profile.args["RequestedToCapacityRatio"].resources == expected


def test_last_priority_of_a_plugin_sets_its_weight():
    repeated = [("SelectorSpreadPriority", 1), ("ImageLocalityPriority", 4), ("ServiceSpreadingPriority", 2**31 - 1)]
    (profile,) = policy(priorities=[{"name": name, "weight": weight} for name, weight in repeated]).profiles
    weights = {ref.name: ref.weight for ref in profile.multi_point.enabled if ref.weight}
    assert weights == {"SelectorSpread": 2**31 - 1, "ImageLocality": 4}


def test_hard_pod_affinity_weight_0_is_the_default():
    (profile,) = policy(hardPodAffinitySymmetricWeight=0).profiles
    assert "InterPodAffinity" not in profile.args


def test_filters_run_in_the_order_of_v1_20():
    predicates = ["MatchInterPodAffinity", "NoVolumeZoneConflict", "PodToleratesNodeTaints", "GeneralPredicates"]
    gpu = {"name": "HasGpu", "argument": {"labelsPresence": {"labels": ["gpu"], "presence": True}}}
    listed = [{"name": name} for name in predicates]
    (profile,) = policy(predicates=[gpu, *listed, {"name": "MaxEBSVolumeCount"}], priorities=[]).profiles
    general = ["NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity"]
    others = ["TaintToleration", "NodeLabel", "MaxEBSVolumeCount", "VolumeZone", "InterPodAffinity"]
    assert [ref.name for ref in profile.multi_point.enabled][2:-2] == ["NodeUnschedulable", *general, *others]


def test_translated_policy_is_equal_when_read_again():
    config = policy(
        predicates=[
            {"name": "MaxEBSVolumeCount"},
            {"name": "SameZone", "argument": {"serviceAffinity": {"labels": ["zone"]}}},
        ],
        priorities=[
            {"name": "Ssd", "weight": 3, "argument": PREFERS_SSD},
            {"name": "BalancedResourceAllocation", "weight": 2},
            {"name": "Packed", "weight": 5, "argument": RATIO},
        ],
        kubeloop={"tieBreak": "roundRobin"},
    )
    again = load_configuration(configuration_text(config))
    (profile,), (profile_again,) = config.profiles, again.profiles
    assert profile_again.multi_point == profile.multi_point
    disabled = {point: plugin_set for point, plugin_set in profile.points.items() if plugin_set.disabled}
    assert profile_again.points == disabled
    own = ("NodeLabel", "RequestedToCapacityRatio", "ServiceAffinity")
    assert [profile_again.args[name] for name in own] == [profile.args[name] for name in own]
    assert again.tie_break == "roundRobin"


def test_empty_predicates_are_the_mandatory_ones():
    (profile,) = policy(predicates=[], priorities=[]).profiles
    names = {ref.name for ref in profile.multi_point.enabled}
    others = {"SchedulingGates", "PrioritySort", "DefaultPreemption", "DefaultBinder"}
    assert names - others == {"NodeUnschedulable", "TaintToleration"}


def test_extender_without_timeout_has_the_default():
    (extender,) = policy(extenders=[{"urlPrefix": "http://x", "filterVerb": "filter"}]).extenders
    assert extender.http_timeout_seconds == DEFAULT_EXTENDER_TIMEOUT_SECONDS


def test_policy_has_kubeloop_settings():
    assert policy(kubeloop={"tieBreak": "roundRobin"}).tie_break == "roundRobin"
    with pytest.raises(UserError, match=r'unknown field "kubeloop\.tiebreak"'):
        policy(kubeloop={"tiebreak": "roundRobin"})


def test_policy_applies_to_all_profiles():
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    profiles = [{"schedulerName": "a", "percentageOfNodesToScore": 20}, {"schedulerName": "b"}]
    config = read_configuration(head | {"profiles": profiles, "kubeloop": {"tieBreak": "roundRobin"}})
    extender = {"urlPrefix": "http://x", "filterVerb": "f"}
    rules = policy(predicates=[{"name": "PodFitsResources"}], extenders=[extender], alwaysCheckAllPredicates=True)
    combined = with_policy(config, rules)
    assert [(profile.scheduler_name, profile.percentage_of_nodes_to_score) for profile in combined.profiles] == [
        ("a", 20),
        ("b", None),
    ]
    assert {profile.multi_point for profile in combined.profiles} == {rules.profiles[0].multi_point}
    assert all(profile.check_all_filters for profile in combined.profiles)
    assert (combined.extenders, combined.tie_break) == (rules.extenders, "roundRobin")  # the file's tieBreak
    assert with_policy(config, policy(kubeloop={"classCache": False})).class_cache is False
    own = read_configuration(head | {"profiles": [{"plugins": {"filter": {"disabled": [{"name": "NodeName"}]}}}]})
    with pytest.raises(UserError, match="using Plugins or PluginConfig and Policy simultaneously is not supported"):
        with_policy(own, rules)


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


def test_policy_is_read_from_yaml_with_other_configurations():
    text = "kind: Policy\npredicates: [{name: PodFitsHost}]\n"
    config = load_configuration(text, other_kinds=POLICY_KIND)
    assert config == load_policy(text) == decode_policy({"kind": "Policy", "predicates": [{"name": "PodFitsHost"}]})
    with pytest.raises(UserError, match="Policy"):
        load_configuration(text)
    with pytest.raises(UserError, match='kind: no Policy, but ""'):
        load_policy("predicates: []")
