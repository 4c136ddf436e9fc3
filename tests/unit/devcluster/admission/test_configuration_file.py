"""The file of --admission-control-config-file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.devcluster.admission.configuration_file import read_plugin_configuration
from kubeloop.devcluster.admission.plugin_settings import DEFAULT_PLUGINS, parse_plugins
from kubeloop.kube.user_error import UserError

HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
LIMITS = "{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [%s]}"
LIMIT = "{type: Server, qps: 1, burst: 2}"
WEBHOOKS = "{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %s}"


def written(folder: Path, text: str) -> Path:
    (folder / "config.yaml").write_text(text)
    return folder / "config.yaml"


def test_configuration_is_in_the_file_or_in_another_one(tmp_path: Path):
    (tmp_path / "limits.yaml").write_text(LIMITS % LIMIT)
    webhooks = f"- {{name: MutatingAdmissionWebhook, configuration: {WEBHOOKS % '/k'}}}"
    path = written(
        tmp_path, f"{HEAD}- {{name: EventRateLimit, path: limits.yaml}}\n{webhooks}\n- {{name: Other, path: no}}"
    )
    configuration = read_plugin_configuration(path, ["EventRateLimit", "MutatingAdmissionWebhook", "PodNodeSelector"])
    assert configuration["EventRateLimit"]["limits"] == [{"type": "Server", "qps": 1, "burst": 2}]
    assert configuration["MutatingAdmissionWebhook"]["kubeConfigFile"] == "/k"
    assert len(configuration) == 2


def test_file_of_selectors_alone_is_accepted(tmp_path: Path):
    path = written(tmp_path, "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: a=b}")
    configuration = read_plugin_configuration(path, ["PodNodeSelector"])
    assert configuration["PodNodeSelector"]["podNodeSelectorPluginConfig"] == {"clusterDefaultNodeSelector": "a=b"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: Pod", "is no AdmissionConfiguration"),
        ("a: [", "is not valid YAML"),
        ("{apiVersion: v1, kind: AdmissionConfiguration}", "has the apiVersion 'v1'"),
        (f"{HEAD}- {{name: EventRateLimit, path: none.yaml}}", "none.yaml: No such file"),
        (f"{HEAD}- {{name: EventRateLimit, configuration: {{}}}}", "it must have apiVersion eventratelimit"),
        (f"{HEAD}- {{name: EventRateLimit, configuration: {LIMITS % ''}}}", "limits: Invalid value: must not be empty"),
        (
            f"{HEAD}- {{name: EventRateLimit, configuration: {LIMITS % '{type: X, burst: -1, cacheSize: -1}'}}}",
            "limits.0..type: Unsupported value.*burst: Invalid value: -1.*qps: Invalid value: 0.*cacheSize",
        ),
        (
            f"{HEAD}- {{name: MutatingAdmissionWebhook, configuration: {WEBHOOKS % 'k'}}}",
            "must be an absolute file path",
        ),
        (f"{HEAD}- {{name: PodNodeSelector, configuration: {{podNodeSelectorPluginConfig: [a]}}}}", "must be a map"),
        (
            f"{HEAD}- {{name: ResourceQuota, configuration: {{}}}}",
            "kubeloop has no configuration of the plugin Resource",
        ),
    ],
)
def test_invalid_configuration_is_refused(tmp_path: Path, text: str, problem: str):
    plugins = [*DEFAULT_PLUGINS, "EventRateLimit", "PodNodeSelector"]
    with pytest.raises(UserError, match=problem):
        read_plugin_configuration(written(tmp_path, text), plugins)


def test_event_rate_limit_needs_limits(tmp_path: Path):
    with pytest.raises(UserError, match="EventRateLimit has no limits"):
        parse_plugins(["EventRateLimit"], (), frozenset())
    path = written(tmp_path, f"{HEAD}- {{name: EventRateLimit, configuration: {LIMITS % LIMIT}}}")
    assert parse_plugins(["EventRateLimit"], (), frozenset(), str(path)).configuration.keys() == {"EventRateLimit"}


def test_missing_file_is_reported():
    with pytest.raises(UserError, match="cannot read /none: No such file"):
        parse_plugins((), (), frozenset(), "/none")
