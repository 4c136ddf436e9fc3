"""--config, --algorithm-provider and --scheduler-name: resulting configuration, and rejected input."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeloop.__main__ import run
from kubeloop.cli.main import commands
from kubeloop.cli.options.scheduler_options import (
    PolicyText,
    options_from_configuration,
    read_policy_config_map,
    read_policy_file,
    read_scheduler_configuration,
)
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import CONFIG_MAPS
from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.config.load import load_configuration
from kubeloop.scheduler.config.types import Profile, SchedulerConfiguration
from kubeloop.testing.memory_transport import MemoryTransport

POLICY = """
apiVersion: v1
kind: Policy
predicates:
- name: PodFitsResources
- name: PodFitsHost
priorities:
- name: MostRequestedPriority
  weight: 2
- name: EqualPriority
  weight: 1
"""


def scores(profile: Profile) -> dict[str, int]:
    return {ref.name: ref.weight for ref in profile.multi_point.enabled if ref.weight}


def prefers_used_nodes(profile: Profile) -> bool:
    return (
        scores(profile) == {"NodeResourcesMostAllocated": 2}
        or profile.args["NodeResourcesFit"].scoring_strategy.type == "MostAllocated"
    )


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "scheduler.yaml"
    path.write_text(text)
    return path


def test_configuration_defaults_to_kube_schedulers():
    assert read_scheduler_configuration(None) == SchedulerConfiguration()
    assert read_scheduler_configuration(None, algorithm_provider="DefaultProvider") == SchedulerConfiguration()


def test_cluster_autoscaler_provider_prefers_most_allocated():
    config = read_scheduler_configuration(None, algorithm_provider="ClusterAutoscalerProvider", scheduler_name="mine")
    (profile,) = config.profiles
    assert profile.scheduler_name == "mine"
    assert profile.args["NodeResourcesFit"].scoring_strategy.type == "MostAllocated"


def test_config_accepts_a_policy(tmp_path):
    (profile,) = read_scheduler_configuration(written(tmp_path, POLICY)).profiles
    assert scores(profile) == {"NodeResourcesMostAllocated": 2}
    assert "PodTopologySpread" not in {ref.name for ref in profile.multi_point.enabled}


@pytest.mark.parametrize(
    ("arguments", "problem", "hint"),
    [
        pytest.param(
            ["--algorithm-provider", "MyProvider"],
            'error: algorithm provider "MyProvider" is not registered',
            "--algorithm-provider takes DefaultProvider or ClusterAutoscalerProvider",
            id="unknown provider",
        ),
        pytest.param(
            ["--algorithm-provider", "DefaultProvider", "--config", "scheduler.yaml"],
            "error: --algorithm-provider and --config are mutually exclusive",
            "scoringStrategy MostAllocated",
            id="provider and file",
        ),
        pytest.param(
            ["--config", "missing.yaml"],
            "error: cannot read missing.yaml: No such file or directory",
            "--config takes a KubeSchedulerConfiguration or a Policy",
            id="no such file",
        ),
    ],
)
@pytest.mark.parametrize("command", ["run", "up"])
def test_invalid_configuration_options_have_error_and_hint(command, arguments, problem, hint, capsys):
    assert run([command, *arguments]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == problem
    assert hint in second


def test_duplicate_key_error_has_its_line(tmp_path, capsys):
    path = written(tmp_path, "kind: a\nkind: b\n")
    assert run(["run", "--config", str(path)]) == 2
    raised = 'the scheduler configuration: line 2: key "kind" already set in map'
    assert capsys.readouterr().err.splitlines()[0] == f"error: --config {path}: {raised}"


def test_invalid_yaml_error_has_line_and_column(tmp_path, capsys):
    path = written(tmp_path, "a: [1")
    assert run(["run", "--config", str(path)]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: --config {path}: the scheduler configuration is not YAML: line 2, column 1: ")
    assert second == "  hint: check its indentation"


def test_empty_scheduler_name_is_rejected(capsys):
    assert run(["run", "--scheduler-name", ""]) == 2
    assert capsys.readouterr().err.startswith("error: --scheduler-name is empty\n")


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        pytest.param(
            "{kind: Policy, predicates: [{name: PodFits}]}", "predicate type not found for 'PodFits'", id="predicate"
        ),
        pytest.param(
            "{kind: Policy, priorities: [{name: LeastRequestedPriority, weight: 0}]}",
            "priority LeastRequestedPriority should have a positive weight applied to it or it has overflown",
            id="weight",
        ),
        pytest.param(
            "{kind: Policy, hardPodAffinitySymmetricWeight: 101}",
            "hardPodAffinitySymmetricWeight: Invalid value: 101: not in valid range [0-100]",
            id="hard pod affinity weight",
        ),
    ],
)
def test_invalid_policy_error_names_its_file(policy, problem, tmp_path):
    path = written(tmp_path, policy)
    with pytest.raises(UserError) as refused:
        read_scheduler_configuration(path)
    assert str(refused.value).startswith(f"--config {path}: ")
    assert problem in str(refused.value)


@pytest.mark.parametrize("arguments", [["--algorithm-provider", "ClusterAutoscalerProvider"], ["--config", "POLICY"]])
def test_written_configuration_can_be_read_again(arguments, tmp_path):
    path, result = written(tmp_path, POLICY), tmp_path / "result.yaml"
    words = [str(path) if word == "POLICY" else word for word in arguments]
    assert run(["run", *words, "--write-config-to", str(result)]) == 0
    again = load_configuration(result.read_text())
    assert prefers_used_nodes(again.profiles[0])


def test_file_sets_client_connection_and_leader_election(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf, qps: 7}\n"
        "leaderElection: {leaderElect: true, resourceName: mine, leaseDuration: 30s}\n"
    )
    assert options_from_configuration(path) == {
        "kubeconfig": Path("/etc/kubernetes/scheduler.conf"),
        "kube_api_qps": 7.0,
        "kube_api_burst": 100,
        "leader_elect": True,
        "leader_elect_resource_namespace": "kube-system",
        "leader_elect_resource_name": "mine",
        "leader_elect_lease_duration": 30.0,
        "leader_elect_renew_deadline": 10.0,
        "leader_elect_retry_period": 2.0,
    }
    assert options_from_configuration(None) == {}


def test_option_takes_precedence_over_the_file(tmp_path, monkeypatch):
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "clientConnection: {qps: 7, burst: 9}\n"
        "leaderElection: {leaderElect: true}\n"
    )
    started = []
    monkeypatch.setattr("kubeloop.cli.run.run", lambda *options: started.extend(options) or 0)
    result = CliRunner().invoke(commands, ["run", "--config", str(path), "--kube-api-qps", "3", "--no-leader-elect"])
    assert result.exit_code == 0, result.output
    _, _, _, more, election, _ = started
    assert (more.kube_api_qps, more.kube_api_burst, election.leader_elect) == (3.0, 9, False)
    assert election.leader_elect_resource_name == "kube-scheduler"


def test_plugin_at_a_wrong_extension_point_is_an_error(tmp_path, capsys):
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    path = written(tmp_path, f"{head}profiles: [{{plugins: {{score: {{enabled: [{{name: NodeName}}]}}}}}}]")
    assert run(["run", "--config", str(path), "--write-config-to", str(tmp_path / "result.yaml")]) == 2
    assert capsys.readouterr().err.startswith(
        f"error: --config {path}: plugin 'NodeName' does not extend score plugin\n"
    )
    assert not (tmp_path / "result.yaml").exists()


HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def test_policy_file_applies_to_the_profiles_of_the_configuration(tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    config = read_scheduler_configuration(
        written(tmp_path, HEAD + "profiles: [{schedulerName: a}, {schedulerName: b}]\nkubeloop: {classCache: false}"),
        policy=read_policy_file(tmp_path / "policy.yaml"),
        tie_break="roundRobin",
    )
    assert [profile.scheduler_name for profile in config.profiles] == ["a", "b"]
    assert [scores(profile) for profile in config.profiles] == [{"NodeResourcesMostAllocated": 2}] * 2
    assert (config.tie_break, config.class_cache) == ("roundRobin", False)


def test_feature_gates_do_not_count_as_plugins_of_a_profile(tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    gates = FeatureGates.parse({"StorageCapacityScoring": True})
    for path in (None, written(tmp_path, HEAD)):
        config = read_scheduler_configuration(path, policy=read_policy_file(tmp_path / "policy.yaml"), gates=gates)
        assert scores(config.profiles[0]) == {"NodeResourcesMostAllocated": 2}
    packing = read_scheduler_configuration(None, algorithm_provider="ClusterAutoscalerProvider", gates=gates)
    assert packing.profiles[0].args["VolumeBinding"].shape


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--algorithm-provider", "ClusterAutoscalerProvider"], id="provider"),
        pytest.param(["--config", "POLICY"], id="policy as configuration"),
        pytest.param(["--policy-config-file", "POLICY"], id="policy file"),
    ],
)
def test_tie_break_can_be_chosen_for_each_source(arguments, tmp_path):
    path, result = written(tmp_path, POLICY), tmp_path / "result.yaml"
    words = [str(path) if word == "POLICY" else word for word in arguments]
    assert run(["run", *words, "--tie-break", "roundRobin", "--write-config-to", str(result)]) == 0
    again = load_configuration(result.read_text())
    assert again.tie_break == "roundRobin"
    assert prefers_used_nodes(again.profiles[0])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(
            ["--algorithm-provider", "DefaultProvider", "--policy-config-file", "POLICY"],
            "--algorithm-provider and a Policy are mutually exclusive",
            id="provider and policy",
        ),
        pytest.param(
            ["--policy-config-file", "POLICY", "--policy-configmap", "p"],
            "--policy-config-file and --policy-configmap are mutually exclusive",
            id="file and ConfigMap",
        ),
        pytest.param(
            ["--policy-config-file", "CONFIG"],
            '--policy-config-file CONFIG: kind: no Policy, but "KubeSchedulerConfiguration"',
            id="no policy",
        ),
        pytest.param(
            ["--config", "POLICY", "--policy-config-file", "POLICY"],
            "--policy-config-file POLICY: profile 'default-scheduler': using Plugins or PluginConfig and Policy "
            "simultaneously is not supported",
            id="two policies",
        ),
    ],
)
def test_contradicting_policy_options_are_errors(arguments, problem, tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(HEAD)
    paths = {"POLICY": str(written(tmp_path, POLICY)), "CONFIG": str(tmp_path / "config.yaml")}
    assert run(["run", *(paths.get(word, word) for word in arguments)]) == 2
    for word, path in paths.items():
        problem = problem.replace(f"{word}:", f"{path}:")
    assert capsys.readouterr().err.splitlines()[0] == f"error: {problem}"


@pytest.fixture
async def client() -> ApiClient:
    api = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None)
    return ApiClient(MemoryTransport(api.handle), clock=SystemClock(), rng=random.Random(2))


async def test_policy_of_a_config_map(client):
    for name, data in (("rules", {"policy.cfg": POLICY}), ("other", {"policy.yaml": POLICY})):
        await client.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": data}, "kube-system")
    policy = await read_policy_config_map(client, "kube-system", "rules")
    assert policy == PolicyText("ConfigMap kube-system/rules", POLICY)
    with pytest.raises(UserError, match=r'kube-system/other: missing policy config map value at key "policy\.cfg"'):
        await read_policy_config_map(client, "kube-system", "other")
    with pytest.raises(UserError, match=r"couldn't get policy config map kube-system/missing: .*not found"):
        await read_policy_config_map(client, "kube-system", "missing")


def test_missing_certificate_of_an_extender_is_an_error(tmp_path):
    tls = "{certFile: /missing/cert, keyFile: /missing/key}"
    path = written(tmp_path, f"{HEAD}extenders: [{{urlPrefix: https://x, enableHTTPS: true, tlsConfig: {tls}}}]")
    with pytest.raises(UserError, match=r"scheduler\.yaml: .*No such file"):
        read_scheduler_configuration(path)


def test_environment_limits_the_disks_per_node(monkeypatch):
    monkeypatch.setenv("KUBE_MAX_PD_VOLS", "7")
    (profile,) = read_scheduler_configuration(None).profiles
    assert profile.args["MaxEBSVolumeCount"].max_volumes == 7
