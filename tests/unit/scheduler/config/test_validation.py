"""Validation of the scheduler configuration and of plugin arguments."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES
from kubeloop.scheduler.config.plugin_args import ARGS_TYPES
from kubeloop.scheduler.config.plugin_sets import PluginRef, PluginSet
from kubeloop.scheduler.config.types import (
    ClientConnectionConfiguration,
    ExtenderConfiguration,
    LeaderElectionConfiguration,
    ManagedResource,
    Profile,
    SchedulerConfiguration,
)
from kubeloop.scheduler.config.validation import validate_args, validate_configuration

NODE_NAME = PluginRef("NodeName")


@pytest.mark.parametrize(
    ("config", "errors"),
    [
        pytest.param({}, [], id="default"),
        pytest.param(
            {"parallelism": 0},
            ["parallelism: Invalid value: 0: should be an integer value greater than zero"],
            id="parallelism",
        ),
        pytest.param(
            {"client_connection": ClientConnectionConfiguration(burst=-1)},
            ["clientConnection.burst: Invalid value: -1: must be non-negative"],
            id="burst",
        ),
        pytest.param(
            {"leader_election": LeaderElectionConfiguration(lease_duration_seconds=10.0, resource_lock="endpoints")},
            [
                'leaderElection.leaseDuration: Invalid value: "10s": must be greater than `RenewDeadline`',
                'leaderElection.resourceLock: Invalid value: "endpoints": resourceLock value must be "leases"',
            ],
            id="leader election",
        ),
        pytest.param(
            {"leader_election": LeaderElectionConfiguration(leader_elect=False, resource_lock="endpoints")},
            [],
            id="leader election is off",
        ),
        pytest.param({"max_bindings_in_flight": 1, "assumed_pod_ttl_seconds": 0.5}, [], id="least own settings"),
        pytest.param(
            {"max_bindings_in_flight": 0, "assumed_pod_ttl_seconds": 0},
            [
                "kubeloop.maxBindingsInFlight: Invalid value: 0: must be greater than 0",
                "kubeloop.assumedPodTTLSeconds: Invalid value: 0: must be greater than 0",
            ],
            id="own settings",
        ),
        pytest.param({"profiles": ()}, ["profiles: Required value"], id="no profiles"),
        pytest.param(
            {
                "profiles": (
                    Profile("a", percentage_of_nodes_to_score=0),
                    Profile("b", percentage_of_nodes_to_score=100),
                )
            },
            [],
            id="limits of percentageOfNodesToScore",
        ),
        pytest.param(
            {"profiles": (Profile("a"), Profile("a", percentage_of_nodes_to_score=101))},
            [
                "profiles[1].percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
                'profiles[1].schedulerName: Duplicate value: "profiles[0].schedulerName"',
            ],
            id="two profiles of one name",
        ),
        pytest.param(
            {"profiles": (Profile("a", points={"filter": PluginSet(enabled=(NODE_NAME, NODE_NAME))}),)},
            ['profiles[0].plugins.filter.enabled[1]: Duplicate value: "NodeName"'],
            id="plugin enabled twice",
        ),
        pytest.param(
            {"profiles": (Profile("a", points={"queueSort": PluginSet(enabled=(NODE_NAME, PluginRef("Other")))}),)},
            ["profiles[0].plugins.queueSort.Enabled: Invalid value: 2: only one queue sort plugin can be enabled"],
            id="two queue sort plugins",
        ),
        pytest.param(
            {
                "profiles": (
                    Profile(
                        "a",
                        points={"filter": PluginSet(enabled=(NODE_NAME, PluginRef("EBSLimits")))},
                        args={"CinderLimits": {}},
                    ),
                )
            },
            [
                f'profiles[0].{field}: Invalid value: "{name}": was invalid in version '
                '"kubescheduler.config.k8s.io/v1" (KubeSchedulerConfiguration is version '
                '"kubescheduler.config.k8s.io/v1")'
                for field, name in (("plugins.filter.enabled[1]", "EBSLimits"), ("pluginConfig", "CinderLimits"))
            ],
            id="removed plugins",
        ),
        pytest.param(
            {
                "extenders": (
                    ExtenderConfiguration(
                        "http://a",
                        filter_verb="f",
                        managed_resources=(ManagedResource("example.com/gpu"), ManagedResource("example.com/nic")),
                    ),
                    ExtenderConfiguration(
                        "http://b", filter_verb="f", managed_resources=(ManagedResource("example.com/gpu"),)
                    ),
                )
            },
            [
                'extenders[1].managedResources[0].name: Invalid value: "example.com/gpu": '
                "duplicate extender managed resource name"
            ],
            id="resource managed by two extenders",
        ),
        pytest.param(
            {"profiles": (Profile("a"), Profile("b", points={"queueSort": PluginSet(disabled=("*",))}))},
            [
                "profiles[1].plugins.queueSort: Invalid value: "
                '{"enabled":[],"disabled":["*"]}: must be the same for all profiles'
            ],
            id="different queue sort",
        ),
        pytest.param(
            {"pod_initial_backoff_seconds": 5.0, "pod_max_backoff_seconds": 1.0},
            ["podMaxBackoffSeconds: Invalid value: 1.0: must be greater than or equal to PodInitialBackoffSeconds"],
            id="backoff",
        ),
        pytest.param({"pod_initial_backoff_seconds": 2.0, "pod_max_backoff_seconds": 2.0}, [], id="equal backoffs"),
        pytest.param(
            {"pod_initial_backoff_seconds": 0.0},
            ["podInitialBackoffSeconds: Invalid value: 0.0: must be greater than 0"],
            id="no backoff",
        ),
        pytest.param(
            {"profiles": (Profile("a", points={"queueSort": PluginSet(enabled=(NODE_NAME,))}),)},
            [],
            id="one queue sort plugin",
        ),
        pytest.param(
            {
                "extenders": (
                    ExtenderConfiguration("http://a", prioritize_verb="p", bind_verb="b"),
                    ExtenderConfiguration("http://b", bind_verb="b", managed_resources=(ManagedResource("cpu"),)),
                )
            },
            [
                "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
                'extenders[1].managedResources[0].name: Invalid value: "cpu": is an invalid extended resource name',
                'extenders: Invalid value: "found 2 extenders implementing bind": only one extender can implement bind',
            ],
            id="extenders",
        ),
    ],
)
def test_validate_configuration(config: dict[str, Any], errors: list[str]) -> None:
    assert [str(error) for error in validate_configuration(SchedulerConfiguration(**config))] == errors


@pytest.mark.parametrize(
    ("plugin", "args", "fields"),
    [
        pytest.param(
            "DefaultPreemption",
            {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
            ["minCandidateNodesPercentage", "minCandidateNodesAbsolute"],
            id="no candidates",
        ),
        pytest.param(
            "PodTopologySpread",
            {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}},
                    {"maxSkew": 1, "topologyKey": "", "whenUnsatisfiable": "Never"},
                ],
            },
            [
                "defaultConstraints[0].maxSkew",
                "defaultConstraints[1].labelSelector",
                "defaultConstraints[1]",
                "defaultConstraints[2].topologyKey",
                "defaultConstraints[2].whenUnsatisfiable",
            ],
            id="spread constraints",
        ),
        pytest.param(
            "PodTopologySpread",
            {"defaultConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]},
            ["defaultingType"],
            id="constraints with type System",
        ),
        pytest.param(
            "NodeResourcesFit",
            {
                "ignoredResourceGroups": ["example.com/a"],
                "scoringStrategy": {"type": "Best", "resources": [{"name": "cpu", "weight": 101}]},
            },
            ["ignoredResourceGroups[0]", "scoringStrategy.type", "scoringStrategy.resources[0].weight"],
            id="scoring strategy",
        ),
        pytest.param(
            "NodeResourcesFit",
            {
                "scoringStrategy": {
                    "type": "RequestedToCapacityRatio",
                    "requestedToCapacityRatio": {
                        "shape": [{"utilization": 50, "score": 11}, {"utilization": 50, "score": 0}]
                    },
                }
            },
            ["scoringStrategy.shape[1].utilization", "scoringStrategy.shape[0].score"],
            id="shape",
        ),
        *(
            pytest.param(
                "NodeResourcesFit",
                {"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": weight}]}},
                [] if 1 <= weight <= 100 else ["scoringStrategy.resources[0].weight"],
                id=f"weight {weight}",
            )
            for weight in (-1, 0, 1, 100, 101)
        ),
        *(
            pytest.param(
                "NodeResourcesFit",
                {
                    "scoringStrategy": {
                        "type": "RequestedToCapacityRatio",
                        "requestedToCapacityRatio": {"shape": [{"utilization": utilization, "score": score}]},
                    }
                },
                fields,
                id=f"utilization {utilization}, score {score}",
            )
            for utilization, score, fields in (
                (0, 0, []),
                (100, 10, []),
                (-1, 0, ["scoringStrategy.shape[0].utilization"]),
                (101, 0, ["scoringStrategy.shape[0].utilization"]),
                (0, -1, ["scoringStrategy.shape[0].score"]),
                (0, 11, ["scoringStrategy.shape[0].score"]),
            )
        ),
        pytest.param(
            "NodeResourcesFit",
            {"scoringStrategy": {"type": "RequestedToCapacityRatio"}},
            ["scoringStrategy.requestedToCapacityRatio"],
            id="no shape",
        ),
        pytest.param(
            "NodeResourcesBalancedAllocation",
            {"resources": [{"name": "cpu"}, {"name": "cpu", "weight": 2}]},
            ["resources[1].name", "resources[1].weight"],
            id="balanced allocation",
        ),
        *(
            pytest.param(
                "RequestedToCapacityRatio",
                {"shape": [{"utilization": 0}], "resources": [{"name": "cpu", "weight": weight}]},
                fields,
                id=f"ratio with weight {weight}",
            )
            for weight, fields in ((1, []), (-1, ["resources[0].weight"]))
        ),
        pytest.param("VolumeBinding", {"bindTimeoutSeconds": -1}, ["bindTimeoutSeconds"], id="bind timeout"),
        pytest.param("InterPodAffinity", {"hardPodAffinityWeight": 0}, [], id="lowest weight"),
        pytest.param("InterPodAffinity", {"hardPodAffinityWeight": 100}, [], id="highest weight"),
        pytest.param("InterPodAffinity", {"hardPodAffinityWeight": 101}, ["hardPodAffinityWeight"], id="weight"),
        pytest.param(
            "DefaultPreemption",
            {"minCandidateNodesPercentage": 100, "minCandidateNodesAbsolute": 0},
            [],
            id="limits of candidate nodes",
        ),
        pytest.param(
            "DefaultPreemption",
            {"minCandidateNodesPercentage": 101, "minCandidateNodesAbsolute": -1},
            ["minCandidateNodesPercentage", "minCandidateNodesAbsolute"],
            id="candidate nodes",
        ),
        pytest.param("DynamicResources", {"bindingTimeout": "100ms"}, ["bindingTimeout"], id="binding timeout"),
        pytest.param("DynamicResources", {"bindingTimeout": "1s"}, [], id="least binding timeout"),
        pytest.param("DynamicResources", {"filterTimeout": "-1s"}, ["filterTimeout"], id="filter timeout"),
        pytest.param("DynamicResources", {"filterTimeout": "0s"}, [], id="no filter timeout"),
        pytest.param("PodTopologySpread", {"defaultingType": "None"}, ["defaultingType"], id="defaulting type"),
        pytest.param(
            "PodTopologySpread",
            {
                "defaultingType": "List",
                "defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": ""}],
            },
            ["defaultConstraints[0].whenUnsatisfiable"],
            id="constraint without whenUnsatisfiable",
        ),
        pytest.param("NodeName", {}, [], id="no arguments"),
    ],
)
def test_validate_args_reports_fields(plugin: str, args: dict[str, Any], fields: list[str]) -> None:
    errors: Any = validate_args(plugin, msgspec.convert(args, ARGS_TYPES[plugin]), "args", DEFAULT_FEATURE_GATES)
    assert [error.field for error in errors] == [f"args.{field}" for field in fields]
