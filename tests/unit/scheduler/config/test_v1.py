"""KubeSchedulerConfiguration v1: decoding, defaults and validation errors."""

from __future__ import annotations

import contextlib
import textwrap

import pytest

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.config.defaults import DEFAULT_PLUGINS
from kubeloop.scheduler.config.load import load_configuration
from kubeloop.scheduler.config.plugin_sets import PluginRef
from kubeloop.scheduler.config.types import (
    EXTENSION_POINTS,
    ClientConnectionConfiguration,
    LeaderElectionConfiguration,
    SchedulerConfiguration,
    default_configuration,
)
from kubeloop.scheduler.config.v1 import configuration_document, configuration_text

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def load(text: str = "") -> SchedulerConfiguration:
    return load_configuration(HEAD + textwrap.dedent(text))


def test_empty_configuration_is_the_default():
    config = load()
    assert config == SchedulerConfiguration()
    assert (config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds) == (1, 10)


def test_profiles_change_the_default_plugins():
    config = load("""
        profiles:
        - schedulerName: mine
          percentageOfNodesToScore: 50
          plugins:
            multiPoint:
              enabled: [{name: NodeAffinity, weight: 7}, {name: "shop.plugins:Cheapest", weight: 3}]
              disabled: [{name: ImageLocality}]
            score:
              disabled: [{name: "*"}]
              enabled: [{name: NodeResourcesFit, weight: 5}]
          pluginConfig:
          - name: NodeResourcesFit
            args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 2}]}}
        """)
    (profile,) = config.profiles
    enabled = {ref.name: ref.weight for ref in profile.multi_point.enabled}
    assert profile.scheduler_name == "mine"
    assert profile.percentage_of_nodes_to_score == 50
    assert enabled["NodeAffinity"] == 7
    assert "ImageLocality" not in enabled
    assert profile.multi_point.enabled[-1] == PluginRef("shop.plugins:Cheapest", 3)
    order = [ref.name for ref in DEFAULT_PLUGINS if ref.name != "ImageLocality"]
    assert [ref.name for ref in profile.multi_point.enabled][:-1] == order
    assert profile.points["score"].enabled == (PluginRef("NodeResourcesFit", 5),)
    strategy = profile.args["NodeResourcesFit"].scoring_strategy
    assert (strategy.type, strategy.resources[0].name, strategy.resources[0].weight) == ("MostAllocated", "cpu", 2)


def test_configuration_round_trip():
    config = load("""
        percentageOfNodesToScore: 30
        podMaxBackoffSeconds: 20
        kubeloop: {tieBreak: roundRobin, assumedPodTTLSeconds: 30}
        profiles:
        - plugins: {multiPoint: {disabled: [{name: ImageLocality}]}, filter: {disabled: [{name: NodeName}]}}
          pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 3}}]
        extenders:
        - {urlPrefix: "https://extender", filterVerb: filter, httpTimeout: 1m30s, managedResources: [{name: a/b}]}
        """)
    again = load_configuration(configuration_text(config))
    assert configuration_document(again) == configuration_document(config)
    assert again.extenders == config.extenders
    assert config.extenders[0].http_timeout_seconds == 90
    assert [ref.name for ref in again.profiles[0].multi_point.enabled] == [
        ref.name for ref in config.profiles[0].multi_point.enabled
    ]


def test_document_shows_plugins_and_ignored_resources_as_kube_scheduler():
    config = load("""
        extenders:
        - {urlPrefix: http://x, managedResources: [{name: a.io/b, ignoredByScheduler: true}, {name: a.io/c}]}
        profiles:
        - plugins:
            multiPoint: {disabled: [{name: ImageLocality}], enabled: [{name: GangScheduling}]}
            placementScore: {enabled: [{name: NodeResourcesFit, weight: 2}]}
            score: {disabled: [{name: "*"}]}
          pluginConfig:
          - {name: NodeResourcesFit, args: {ignoredResources: [a.io/own]}}
          - {name: DynamicResources, args: {bindingTimeout: 5m}}
          - {name: NotEnabled, args: {any: 1}}
        """)
    profile = configuration_document(config)["profiles"][0]
    plugins = profile["plugins"]
    enabled = plugins.pop("multiPoint")["enabled"]
    assert [plugin["name"] for plugin in enabled] == [
        *(ref.name for ref in DEFAULT_PLUGINS if ref.name != "ImageLocality"),
        "GangScheduling",
    ]
    assert {point: plugin_set for point, plugin_set in plugins.items() if plugin_set} == {
        "placementScore": {"enabled": [{"name": "NodeResourcesFit", "weight": 2}]},
        "score": {"disabled": [{"name": "*"}]},
    }
    assert plugins.keys() == set(EXTENSION_POINTS)
    args = {entry["name"]: entry["args"] for entry in profile["pluginConfig"]}
    assert args["NodeResourcesFit"]["ignoredResources"] == ["a.io/b"]
    assert args["DynamicResources"]["bindingTimeout"] == "5m0s"
    assert "shape" not in args["VolumeBinding"]  # kube-scheduler refuses even an empty one
    assert "NotEnabled" not in args


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(
            "profiles: [{plugins: {multiPoint: {enabled: [{name: NodeName}, {name: NodeName}]}}}]",
            'profiles[0].plugins.multiPoint.enabled[20]: Duplicate value: "NodeName"',
            id="default plugin twice",
        ),
        pytest.param(
            "profiles: [{pluginConfig: [{name: NodeAffinity, args: {}}, {name: NodeAffinity, args: {}}]}]",
            'profiles[0].pluginConfig[1]: Duplicate value: "NodeAffinity"',
            id="arguments of a plugin twice",
        ),
        pytest.param(
            "profiles: [{plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}]}}}]\n"
            "extenders: [{urlPrefix: http://x, managedResources: [{name: a.io/b, ignoredByScheduler: true}]}]",
            "profiles[0]: can't find NodeResourcesFitArgs in plugin config",
            id="no plugin to ignore resources",
        ),
        pytest.param(
            "profiles: [{plugins: {score: {enabled: [{name: NodeName, weight: 3000000000}]}}}]",
            "cannot read the scheduler configuration: Expected `int` <= 2147483647 - at "
            "`profiles[0].plugins.score.enabled[0].weight`",
            id="weight above 32 bits",
        ),
        pytest.param(
            "profiles: [{plugins: {score: {enabled: [{name: NodeName, weight: -2147483649}]}}}]",
            "cannot read the scheduler configuration: Expected `int` >= -2147483648 - at "
            "`profiles[0].plugins.score.enabled[0].weight`",
            id="weight below 32 bits",
        ),
        pytest.param(
            "extenders: [{urlPrefix: http://x, httpTimeout: 5}]",
            "cannot read the scheduler configuration: Expected `str`, got `int` - at `extenders[0].httpTimeout`",
            id="timeout without a unit",
        ),
        pytest.param(
            "percentageOfNodesToScore: 101",
            "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
            id="percentage",
        ),
        pytest.param(
            "parallelism: 0",
            "parallelism: Invalid value: 0: should be an integer value greater than zero",
            id="parallelism",
        ),
        pytest.param(
            "podInitialBackoffSeconds: 0",
            "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0",
            id="initial backoff",
        ),
        pytest.param(
            "podInitialBackoffSeconds: 5\npodMaxBackoffSeconds: 1",
            "podMaxBackoffSeconds: Invalid value: 1: must be greater than or equal to PodInitialBackoffSeconds",
            id="max backoff",
        ),
        pytest.param(
            "profiles: [{schedulerName: a}, {schedulerName: a}]",
            'profiles[1].schedulerName: Duplicate value: "profiles[0].schedulerName"',
            id="duplicate scheduler name",
        ),
        pytest.param(
            "profiles: [{schedulerName: a}, {}]", "profiles[1].schedulerName: Required value", id="no scheduler name"
        ),
        pytest.param("profils: []", 'strict decoding error: unknown field "profils"', id="unknown field"),
        pytest.param(
            "profiles: [{plugin: {}}]",
            'strict decoding error: unknown field "profiles[0].plugin"',
            id="unknown nested field",
        ),
        pytest.param(
            "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {strategy: x}}]}]",
            'decoding args for plugin NodeResourcesFit: strict decoding error: unknown field "strategy"',
            id="unknown argument",
        ),
        pytest.param(
            "profiles: [{pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 101}}]}]",
            "profiles[0].pluginConfig[0].args.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]",
            id="bad argument",
        ),
        pytest.param(
            "extenders: [{urlPrefix: http://x, prioritizeVerb: p}]",
            "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
            id="extender without weight",
        ),
        pytest.param(
            "extenders: [{urlPrefix: http://x, bindVerb: b}, {urlPrefix: http://y, bindVerb: b}]",
            'extenders: Invalid value: "found 2 extenders implementing bind": only one extender can implement bind',
            id="two binders",
        ),
    ],
)
def test_validation_errors_match_kube_scheduler(text, problem):
    with pytest.raises(UserError) as error:
        load(text)
    assert str(error.value) == problem


def test_node_resources_fit_is_validated_only_where_it_is_enabled():
    invalid = "pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: Best}}}]"
    disabled = "plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}]}}"
    with pytest.raises(UserError, match='Unsupported value: "Best"'):
        load(f"profiles: [{{{invalid}}}]")
    (profile,) = load(f"profiles: [{{{disabled}, {invalid}}}]").profiles
    assert "NodeResourcesFit" not in {ref.name for ref in profile.enabled()}


def test_other_versions_raise():
    with pytest.raises(UserError, match='no kind "KubeSchedulerConfiguration" is registered for version'):
        load_configuration("apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n")


def test_invalid_base64_is_a_user_error():
    text = "extenders: [{urlPrefix: https://x, enableHTTPS: true, tlsConfig: {caData: '%%%'}}]"
    with pytest.raises(UserError, match=r"Invalid base64 encoded string - at `extenders\[0\]\.tlsConfig\.caData`"):
        load_configuration(f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{text}\n")


def test_leader_election_and_client_connection_defaults():
    config = load("leaderElection: {leaseDuration: 1m}\nclientConnection: {burst: 7}\n")
    assert config.leader_election == LeaderElectionConfiguration(lease_duration_seconds=60.0)
    assert config.client_connection == ClientConnectionConfiguration(burst=7)
    assert load_configuration(configuration_text(config)).leader_election == config.leader_election
    assert SchedulerConfiguration().leader_election is None


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        pytest.param(
            "leaderElection: {leaseDuration: 5s}",
            'leaderElection.leaseDuration: Invalid value: "10s": must be greater than `RenewDeadline`',
            id="lease shorter than renew deadline",
        ),
        pytest.param(
            "leaderElection: {retryPeriod: -1s}",
            'leaderElection.retryPeriod: Invalid value: "-1s": must be greater than zero',
            id="negative",
        ),
        pytest.param(
            "leaderElection: {resourceLock: endpoints}",
            'leaderElection.resourceLock: Invalid value: "endpoints": resourceLock value must be "leases"',
            id="lock",
        ),
        pytest.param(
            "leaderElection: {leaseTime: 5s}",
            'strict decoding error: unknown field "leaderElection.leaseTime"',
            id="unknown field",
        ),
        pytest.param("leaderElection: {leaseDuration: soon}", 'time: invalid duration "soon"', id="invalid duration"),
        pytest.param(
            "clientConnection: {burst: -1}",
            "clientConnection.burst: Invalid value: -1: must be non-negative",
            id="burst",
        ),
        pytest.param(
            "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {enabled: [{name: X}]}}}]",
            "profiles[1].plugins.queueSort: Invalid value: ",
            id="queue sort differs",
        ),
    ],
)
def test_section_errors_match_kube_scheduler(section, problem):
    with pytest.raises(UserError) as error:
        load(section)
    assert str(error.value).startswith(problem)


def test_lease_times_are_ignored_without_leader_election():
    assert load("leaderElection: {leaderElect: false, leaseDuration: 5s}").leader_election is not None


def test_invalid_added_affinity_error_has_field_path():
    with pytest.raises(UserError) as error:
        load("""
            profiles:
            - pluginConfig:
              - name: NodeAffinity
                args:
                  addedAffinity:
                    requiredDuringSchedulingIgnoredDuringExecution:
                      nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: Is, values: [ssd]}]}]
                    preferredDuringSchedulingIgnoredDuringExecution:
                    - {weight: 1, preference: {matchFields: [{key: metadata.name, operator: In, values: [a, b]}]}}
        """)
    at = "profiles[0].pluginConfig[0].args.addedAffinity"
    assert str(error.value) == (
        f"{at}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator: "
        'Unsupported value: "Is": supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"; '
        f"{at}.preferredDuringSchedulingIgnoredDuringExecution[0].matchFields[0].values: "
        'Invalid value: ["a","b"]: must have one element'
    )


@pytest.mark.parametrize(
    ("strategy", "problem"),
    [
        pytest.param(
            "{type: RequestedToCapacityRatio}",
            "requestedToCapacityRatio: Required value: must be specified when type is RequestedToCapacityRatio",
            id="missing shape",
        ),
        pytest.param(
            "{type: MostAllocated, requestedToCapacityRatio: "
            "{shape: [{utilization: 50}, {utilization: 50, score: 11}]}}",
            "shape[1].utilization: Invalid value: 50: values must be sorted in increasing order; "
            "{at}shape[1].score: Invalid value: 11: not in valid range [0, 10]",
            id="invalid shape of an unused strategy",
        ),
        pytest.param(
            "{resources: [{name: cpu}]}",
            'type: Unsupported value: "": supported values: "LeastAllocated", "MostAllocated", '
            '"RequestedToCapacityRatio"',
            id="missing type",
        ),
    ],
)
def test_scoring_strategy_is_validated(strategy, problem):
    with pytest.raises(UserError) as error:
        load(f"profiles: [{{pluginConfig: [{{name: NodeResourcesFit, args: {{scoringStrategy: {strategy}}}}}]}}]")
    at = "profiles[0].pluginConfig[0].args.scoringStrategy."
    assert str(error.value) == at + problem.replace("{at}", at)


def test_zeros_and_empty_lists_become_defaults():
    config = load("""
        profiles:
        - pluginConfig:
          - name: NodeResourcesFit
            args: {scoringStrategy: {type: MostAllocated, resources: []}}
          - name: NodeResourcesBalancedAllocation
            args: {resources: [{name: cpu, weight: 0}, {name: example.com/gpu}]}
          - name: PodTopologySpread
            args: {defaultingType: ""}
        """)
    args = config.profiles[0].args
    fit = args["NodeResourcesFit"].scoring_strategy
    assert [(resource.name, resource.weight) for resource in fit.resources] == [("cpu", 1), ("memory", 1)]
    balanced = args["NodeResourcesBalancedAllocation"].resources
    assert [(resource.name, resource.weight) for resource in balanced] == [("cpu", 1), ("example.com/gpu", 1)]
    assert args["PodTopologySpread"].defaulting_type == "System"


def test_node_declared_features_is_a_default_plugin_if_its_gate_is_on():
    for enabled in (True, False):
        gates = FeatureGates({"NodeDeclaredFeatures": enabled})
        config = load_configuration(HEAD, gates)
        assert config == default_configuration(gates)
        names = [ref.name for ref in config.profiles[0].multi_point.enabled]
        assert ("NodeDeclaredFeatures" in names) is enabled


def test_plugins_of_pod_groups_are_default_plugins_if_their_gates_are_on():
    gates = {"GenericWorkload": True}
    for gate, plugins in (
        ("GenericWorkload", []),
        ("GangScheduling", [("GangScheduling", 0)]),
        ("TopologyAwareWorkloadScheduling", [("TopologyPlacementGenerator", 0), ("PodGroupPodsCount", 1)]),
    ):
        enabled = FeatureGates(gates | {gate: True})
        config = load_configuration(HEAD, enabled)
        assert config == default_configuration(enabled)
        refs = config.profiles[0].multi_point.enabled
        assert [(ref.name, ref.weight) for ref in refs[len(DEFAULT_PLUGINS) :]] == plugins


SHAPE = """
profiles:
- pluginConfig:
  - name: VolumeBinding
    args: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}
"""


def test_a_shape_of_volume_binding_needs_storage_capacity_scoring():
    gates = FeatureGates({"StorageCapacityScoring": True})
    args = load_configuration(HEAD + SHAPE, gates).profiles[0].args["VolumeBinding"]
    assert [(point.utilization, point.score) for point in args.shape] == [(0, 0), (100, 10)]
    with pytest.raises(UserError, match="unexpected field `shape`, remove it or turn on the feature gate"):
        load_configuration(HEAD + SHAPE)
    with pytest.raises(UserError, match=r"shape\[1\].utilization"):
        load_configuration(HEAD + SHAPE.replace("100", "0"), gates)


@pytest.mark.parametrize(
    ("timeout", "gate"),
    [("filterTimeout", "DRASchedulerFilterTimeout"), ("bindingTimeout", "DRADeviceBindingConditions")],
)
def test_timeouts_of_dynamic_resources_need_their_gates(timeout: str, gate: str):
    text = f"{HEAD}\nprofiles: [{{pluginConfig: [{{name: DynamicResources, args: {{{timeout}: 3s}}}}]}}]\n"
    configs = configuration_document(load_configuration(text))["profiles"][0]["pluginConfig"]
    (args,) = [entry["args"] for entry in configs if entry["name"] == "DynamicResources"]
    assert args[timeout] == "3s"
    with pytest.raises(UserError, match=rf"{timeout}: Forbidden: .* feature gate is disabled"):
        load_configuration(text, FeatureGates.parse([f"{gate}=false"]))


@pytest.mark.parametrize("text", ["", "profiles: [{pluginConfig: [{name: VolumeBinding, args: {}}]}]"])
def test_storage_capacity_scoring_has_a_default_shape(text: str):
    gates = FeatureGates({"StorageCapacityScoring": True})
    config = load_configuration(HEAD + text, gates)
    (volume_binding,) = [
        entry["args"]
        for entry in configuration_document(config)["profiles"][0]["pluginConfig"]
        if entry["name"] == "VolumeBinding"
    ]
    assert volume_binding["shape"] == [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
    assert config == default_configuration(gates)


@pytest.mark.parametrize("checks_all", [True, False])
def test_check_of_all_filters_round_trips(checks_all: bool) -> None:
    text = f"""
        kubeloop: {{checkAllFilters: {str(checks_all).lower()}}}
        profiles: [{{schedulerName: a}}, {{schedulerName: b}}]
        """
    config = load(text)
    assert [profile.check_all_filters for profile in config.profiles] == [checks_all] * 2
    again = load_configuration(configuration_text(config))
    assert [profile.check_all_filters for profile in again.profiles] == [checks_all] * 2
    assert configuration_document(config)["kubeloop"].get("checkAllFilters", False) is checks_all


@pytest.mark.parametrize(
    ("weight", "valid"), [(2**31 - 1, True), (2**31, False), (-(2**31), True), (-(2**31) - 1, False)]
)
def test_weight_is_an_int32(weight: int, valid: bool) -> None:
    text = f"profiles: [{{plugins: {{score: {{enabled: [{{name: ImageLocality, weight: {weight}}}]}}}}}}]"
    with contextlib.nullcontext() if valid else pytest.raises(UserError):
        (enabled,) = load(text).profiles[0].points["score"].enabled
        assert enabled.weight == weight


def test_arguments_of_plugins_out_of_tree_round_trip():
    name = "kubeloop.scheduler.plugins.node_name:NodeName"
    config = load(f"""
        profiles:
        - plugins: {{filter: {{enabled: [{{name: "{name}"}}]}}}}
          pluginConfig: [{{name: "{name}", args: {{any: [1]}}}}]
        """)
    (profile,) = configuration_document(config)["profiles"]
    assert [entry["args"] for entry in profile["pluginConfig"] if entry["name"] == name] == [{"any": [1]}]
    assert configuration_document(load_configuration(configuration_text(config))) == configuration_document(config)
