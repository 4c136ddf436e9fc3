"""The list of admission plugins, in the program and in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubeloop.devcluster.admission.plugin_settings import (
    DEFAULT_PLUGINS,
    OPTIONAL_PLUGINS,
    PluginSettings,
    parse_plugins,
)
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.kube.user_error import UserError
from support.apiserver.api_requests import InProcessApi

DOCS = Path(__file__).parents[4] / "docs" / "devcluster.md"
PODS = "/api/v1/namespaces/default/pods"


def test_documentation_lists_every_plugin():
    rows = re.findall(r"^\| `(\w+)` \| (complete|partly|not)\b", DOCS.read_text(), re.MULTILINE)
    assert rows == [*DEFAULT_PLUGINS.items(), *OPTIONAL_PLUGINS.items()]


def test_lists_add_and_remove_plugins():
    settings = parse_plugins(["AlwaysDeny, AlwaysAdmit", "", "Priority"], ["LimitRanger"], frozenset({"LimitRanger"}))
    assert settings.plugins == {"AlwaysDeny", "AlwaysAdmit", "Priority"}


@pytest.mark.parametrize(
    ("enabled", "disabled", "problem", "hint"),
    [
        (
            "",
            "ServiceAcount",
            'disable-admission-plugins plugin "ServiceAcount" is unknown',
            "did you mean ServiceAcco",
        ),
        ("X", "", 'enable-admission-plugins plugin "X" is unknown', "there are AlwaysAdmit, AlwaysDeny, "),
        ("", "NamespaceLifecycle", "NamespaceLifecycle cannot be disabled", "objects always need"),
        ("ImagePolicyWebhook", "", "kubeloop has no plugin ImagePolicyWebhook", "leave it out"),
        (
            "AlwaysDeny,Priority",
            "Priority,AlwaysDeny",
            r"\[AlwaysDeny Priority\] in --enable-admission",
            "name a plugin",
        ),
    ],
)
def test_plugins_that_cannot_be_set_are_refused(enabled: str, disabled: str, problem: str, hint: str):
    with pytest.raises(UserError, match=problem) as raised:
        parse_plugins([enabled], [disabled], frozenset(DEFAULT_PLUGINS))
    assert raised.value.hint.startswith(hint)


async def test_server_without_plugins_stores_pods_as_they_are():
    api = InProcessApi(settings=ServingSettings(admission=PluginSettings(frozenset())))
    limits = {"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}}
    api.create("/api/v1/namespaces/default/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [limits]}})
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}
    api.create("/api/v1/namespaces/default/resourcequotas", quota)
    api.succeed("PATCH", "/api/v1/namespaces/default", {"metadata": {"labels": {_ENFORCE: "restricted"}}})
    container = {"name": "c", "image": "i", "securityContext": {"privileged": True}}
    pod = api.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [container], "priority": 7}})
    assert not {"serviceAccountName", "tolerations", "volumes", "preemptionPolicy"} & pod["spec"].keys()
    assert pod["spec"]["priority"] == 7
    assert pod["spec"]["containers"][0]["resources"] == {}


_ENFORCE = "pod-security.kubernetes.io/enforce"
