"""The scheduler configuration beside kube-scheduler --write-config-to: what one accepts and completes, the other does.

Skipped if kube-scheduler is not installed. tests/unit/scheduler/config states the same rules without it.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.config.load import read_configuration
from kubeloop.scheduler.config.v1 import configuration_document
from kubeloop.scheduler.framework.profile_plugins import check_profiles
from kubeloop.scheduler.plugins.registry import IN_TREE_PLUGINS
from support.comparison.real_apiserver import why_missing
from support.comparison.real_scheduler import complete_configuration, refusal

pytestmark = pytest.mark.skipif(
    why_missing("kube-scheduler") is not None, reason=why_missing("kube-scheduler") or "installed"
)

JSON = dict[str, Any]
HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
COMPARED = (
    "parallelism",
    "percentageOfNodesToScore",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
    "profiles",
    "extenders",
)

VALID = {
    "default": "{}",
    "plugins changed everywhere": """
        profiles:
        - plugins:
            multiPoint:
              enabled: [{name: ImageLocality, weight: 5}]
              disabled: [{name: NodeName}]
            filter: {disabled: [{name: TaintToleration}]}
            score:
              enabled: [{name: NodeAffinity, weight: 9}, {name: ImageLocality}]
              disabled: [{name: "*"}]
    """,
    "only a few plugins": """
        profiles:
        - plugins:
            multiPoint:
              enabled: [{name: PrioritySort}, {name: DefaultBinder}, {name: NodeResourcesFit, weight: 4}]
              disabled: [{name: "*"}]
    """,
    "points without an implementation of ours": """
        profiles:
        - plugins:
            preScore: {enabled: [{name: TaintToleration}]}
            placementGenerate: {enabled: [{name: TopologyPlacementGenerator}]}
            placementScore: {enabled: [{name: NodeResourcesFit, weight: 2}, {name: PodGroupPodsCount}]}
            permit: {enabled: [{name: GangScheduling}]}
    """,
    "points of single plugins": """
        profiles:
        - plugins:
            postFilter: {disabled: [{name: DefaultPreemption}]}
            reserve: {enabled: [{name: VolumeBinding}]}
            preEnqueue: {enabled: [{name: DefaultPreemption}, {name: DynamicResources}]}
            preBind: {enabled: [{name: DynamicResources}]}
    """,
    "two profiles": """
        percentageOfNodesToScore: 33
        parallelism: 4
        podInitialBackoffSeconds: 2
        podMaxBackoffSeconds: 30
        profiles:
        - {schedulerName: first, percentageOfNodesToScore: 7}
        - schedulerName: second
          pluginConfig:
          - name: PodTopologySpread
            args:
              defaultingType: List
              defaultConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
    """,
    "arguments of many plugins": """
        profiles:
        - pluginConfig:
          - name: NodeAffinity
            args:
              addedAffinity:
                requiredDuringSchedulingIgnoredDuringExecution:
                  nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]
                preferredDuringSchedulingIgnoredDuringExecution:
                - {weight: 4, preference: {matchFields: [{key: metadata.name, operator: In, values: [b]}]}}
          - {name: InterPodAffinity, args: {hardPodAffinityWeight: 0, ignorePreferredTermsOfExistingPods: true}}
          - {name: DefaultPreemption, args: {minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 5}}
          - {name: VolumeBinding, args: {bindTimeoutSeconds: 0}}
          - {name: DynamicResources, args: {filterTimeout: 0s, bindingTimeout: 5m}}
    """,
    "scoring strategies": """
        profiles:
        - pluginConfig:
          - name: NodeResourcesFit
            args:
              ignoredResourceGroups: [example.com]
              scoringStrategy:
                type: RequestedToCapacityRatio
                resources: [{name: cpu, weight: 3}, {name: nvidia.com/gpu}]
                requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}
          - {name: NodeResourcesBalancedAllocation, args: {resources: [{name: cpu}]}}
    """,
    "extenders": """
        extenders:
        - {urlPrefix: "http://x", filterVerb: f, managedResources: [{name: example.com/foo}]}
        - urlPrefix: https://y
          prioritizeVerb: p
          weight: 3
          bindVerb: b
          enableHTTPS: true
          httpTimeout: 90s
          nodeCacheCapable: true
          ignorable: true
          tlsConfig: {insecure: true, serverName: s}
    """,
    "resources that extenders manage": """
        extenders:
        - urlPrefix: http://x
          filterVerb: f
          managedResources: [{name: example.com/foo, ignoredByScheduler: true}, {name: example.com/bar}]
        profiles:
        - {schedulerName: first}
        - schedulerName: second
          pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [example.com/own]}}]
    """,
    "invalid arguments of a disabled plugin": """
        profiles:
        - plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}]}}
          pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: Best}}}]
    """,
    "arguments of plugins that take none": """
        profiles: [{pluginConfig: [{name: NodeName, args: {any: 1}}, {name: Unknown, args: {any: 2}}]}]
    """,
}

# Each with a part of the message that both give.
INVALID = {
    "point that a plugin does not extend": (
        "profiles: [{plugins: {placementScore: {enabled: [{name: NodeName}]}}}]",
        "does not extend",
    ),
    "score plugin without scores": (
        "profiles: [{plugins: {score: {enabled: [{name: NodeName}]}}}]",
        "does not extend",
    ),
    "unknown plugin": ("profiles: [{plugins: {filter: {enabled: [{name: Nope}]}}}]", "Nope"),
    "removed plugin": (
        "profiles: [{plugins: {filter: {enabled: [{name: EBSLimits}]}}}]",
        'profiles[0].plugins.filter.enabled[0]: Invalid value: "EBSLimits": was invalid',
    ),
    "plugin twice": (
        "profiles: [{plugins: {multiPoint: {enabled: [{name: NodeName}, {name: NodeName}]}}}]",
        "NodeName",
    ),
    "no queue sort plugin": ("profiles: [{plugins: {multiPoint: {disabled: [{name: PrioritySort}]}}}]", "queue sort"),
    "no bind plugin": (
        'profiles: [{plugins: {bind: {disabled: [{name: "*"}]}}}]',
        "at least one bind plugin is needed",
    ),
    "negative weight": (
        "profiles: [{plugins: {score: {enabled: [{name: NodeResourcesFit, weight: -4}]}}}]",
        "total score of Score plugins could overflow",
    ),
    "queue sort plugin of one profile": (
        "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {enabled: [{name: PrioritySort}]}}}]",
        "must be the same for all profiles",
    ),
    "queue sort arguments of one profile": (
        "profiles: [{schedulerName: a}, {schedulerName: b, pluginConfig: [{name: PrioritySort, args: {x: 1}}]}]",
        'different queue sort plugin args for profile "b"',
    ),
    "unknown argument": (
        "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {typo: 1}}}]}]",
        'unknown field "scoringStrategy.typo"',
    ),
    "arguments of another plugin": (
        "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {kind: NodeAffinityArgs}}]}]",
        "args for plugin NodeResourcesFit were not of type NodeResourcesFitArgs",
    ),
    "old version of arguments": (
        "profiles: [{pluginConfig: [{name: NodeResourcesFit, "
        "args: {apiVersion: kubescheduler.config.k8s.io/v1beta3, kind: NodeResourcesFitArgs}}]}]",
        'no kind "NodeResourcesFitArgs" is registered for version "kubescheduler.config.k8s.io/v1beta3"',
    ),
    "no plugin that ignores resources": (
        "profiles: [{plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}]}}}]\n"
        "extenders: [{urlPrefix: http://x, managedResources: [{name: example.com/a, ignoredByScheduler: true}]}]",
        "can't find NodeResourcesFitArgs in plugin config",
    ),
    "unknown extension point": (
        "profiles: [{plugins: {unreserve: {}}}]",
        'unknown field "profiles[0].plugins.unreserve"',
    ),
    "misspelt verb": (
        "extenders: [{urlPrefix: http://x, filterverb: f}]",
        'unknown field "extenders[0].filterverb"',
    ),
    "timeout without a unit": ("extenders: [{urlPrefix: http://x, httpTimeout: 5}]", "httpTimeout"),
    "preemption of no nodes": (
        "profiles: [{pluginConfig: [{name: DefaultPreemption, "
        "args: {minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}}]}]",
        "cannot be zero at the same time as minCandidateNodesAbsolute",
    ),
    "shape without the feature": (
        "profiles: [{pluginConfig: [{name: VolumeBinding, args: {shape: [{utilization: 0, score: 0}]}}]}]",
        "StorageCapacityScoring",
    ),
    "provider of an old version": ("algorithmSource: {provider: DefaultProvider}", 'unknown field "algorithmSource"'),
}


GATES = {
    "declared features": (
        "NodeDeclaredFeatures=false,ExtendWebSocketsToKubelet=false,InPlacePodLevelResourcesVerticalScaling=false,"
        "InPlacePodVerticalScalingInitContainers=false,RestartAllContainersOnContainerExits=false"
    ),
    "capacity": "StorageCapacityScoring=true",
    "pod groups": "GenericWorkload=true",
    "gangs": "GenericWorkload=true,GangScheduling=true",
    "placements": "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true",
    "all": (
        "TaintTolerationComparisonOperators=true,MatchLabelKeysInPodTopologySpreadSelectorMerge=false,"
        "MatchLabelKeysInPodTopologySpread=false,SchedulerPopFromBackoffQ=false,NominatedNodeNameForExpectation=false,"
        "PodLevelResources=false,InPlacePodLevelResourcesVerticalScaling=false,SchedulerAsyncPreemption=false,"
        "OpportunisticBatching=false,VolumeLimitScaling=true"
    ),
}
SHAPES = {
    "no shape": "{}",
    "empty arguments": "profiles: [{pluginConfig: [{name: VolumeBinding, args: {bindTimeoutSeconds: 5}}]}]",
    "shape": (
        "profiles: [{pluginConfig: [{name: VolumeBinding, "
        "args: {shape: [{utilization: 10, score: 1}, {utilization: 90, score: 9}]}}]}]"
    ),
    "unordered shape": (
        "profiles: [{pluginConfig: [{name: VolumeBinding, "
        "args: {shape: [{utilization: 90, score: 1}, {utilization: 10, score: 9}]}}]}]"
    ),
}


def completed(document: JSON, gates: FeatureGates = DEFAULT_FEATURE_GATES) -> JSON:
    """Return our complete form of a configuration. Raises UserError."""
    config = read_configuration(document, gates)
    check_profiles(config.profiles, IN_TREE_PLUGINS)
    return configuration_document(config)


def comparable(document: JSON) -> JSON:
    """Return the fields that both write, without zeros and empty values, which mean the same as missing ones."""
    return {name: _without_empty(document.get(name)) for name in COMPARED if _without_empty(document.get(name))}


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        members = {name: _without_empty(member) for name, member in value.items()}
        return {name: member for name, member in members.items() if member not in (None, "", 0, False, [], {})}
    return [_without_empty(member) for member in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", VALID)
def test_completed_configurations_are_equal(name, tmp_path):
    document = HEAD | yaml.safe_load(VALID[name])
    theirs, log = complete_configuration(document, tmp_path)
    assert theirs is not None, refusal(log)
    assert comparable(completed(document)) == comparable(theirs)
    assert comparable(completed(theirs)) == comparable(theirs)  # it loads, and means the same


@pytest.mark.parametrize("name", VALID)
def test_kube_scheduler_accepts_our_completed_configuration(name, tmp_path):
    ours = completed(HEAD | yaml.safe_load(VALID[name]))
    del ours["kubeloop"]
    theirs, log = complete_configuration(ours, tmp_path)
    assert theirs is not None, refusal(log)
    assert comparable(theirs) == comparable(ours)


@pytest.mark.parametrize("name", INVALID)
def test_both_refuse(name, tmp_path):
    text, problem = INVALID[name]
    document = HEAD | yaml.safe_load(text)
    theirs, log = complete_configuration(document, tmp_path)
    assert theirs is None
    assert problem in refusal(log).replace('\\"', '"')
    with pytest.raises(UserError) as error:
        completed(document)
    assert problem in str(error.value)


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("gates", GATES.values(), ids=GATES)
def test_feature_gates_change_the_completed_configuration_alike(gates, text, tmp_path):
    document = HEAD | yaml.safe_load(text)
    theirs, log = complete_configuration(document, tmp_path, gates)
    ours, error = completed_or_error(document, FeatureGates.parse([gates]))
    assert (ours is None) == (theirs is None), refusal(log)
    if ours is None or theirs is None:
        assert error in refusal(log).replace('\\"', '"')
    else:
        assert comparable(ours) == comparable(theirs)


def completed_or_error(document: JSON, gates: FeatureGates) -> tuple[JSON | None, str]:
    try:
        return completed(document, gates), ""
    except UserError as error:
        return None, str(error)


TIMEOUTS = {
    "default": "{}",
    "filter": "profiles: [{pluginConfig: [{name: DynamicResources, args: {filterTimeout: 3s}}]}]",
    "binding": "profiles: [{pluginConfig: [{name: DynamicResources, args: {bindingTimeout: 3s}}]}]",
}


@pytest.mark.parametrize("text", TIMEOUTS.values(), ids=TIMEOUTS)
@pytest.mark.parametrize("gate", ["DRASchedulerFilterTimeout", "DRADeviceBindingConditions"])
def test_gates_of_dynamic_resource_allocation_change_timeouts_alike(gate, text, tmp_path):
    test_feature_gates_change_the_completed_configuration_alike(f"{gate}=false", text, tmp_path)
