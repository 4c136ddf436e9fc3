"""The list of admission plugins, in the program and in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubeloop.devcluster.admission.default_plugins import DEFAULT_PLUGINS, parse_disabled_plugins
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.kube.user_error import UserError
from support.apiserver.api_requests import InProcessApi

DOCS = Path(__file__).parents[4] / "docs" / "devcluster.md"
PODS = "/api/v1/namespaces/default/pods"


def test_documentation_lists_every_default_plugin():
    rows = re.findall(r"^\| `(\w+)` \| (complete|partly|not)\b", DOCS.read_text(), re.MULTILINE)
    assert rows == list(DEFAULT_PLUGINS.items())


def test_names_are_read_from_comma_separated_lists():
    assert parse_disabled_plugins(["Priority, ServiceAccount", "", "LimitRanger"]) == {
        "Priority",
        "ServiceAccount",
        "LimitRanger",
    }


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ServiceAcount", "did you mean ServiceAccount?"),
        ("X", "there are NamespaceLifecycle, "),
        ("NamespaceLifecycle", "objects always need"),
    ],
)
def test_name_that_cannot_be_disabled_is_refused(name: str, hint: str):
    with pytest.raises(UserError) as raised:
        parse_disabled_plugins([name])
    assert name in str(raised.value)
    assert raised.value.hint.startswith(hint)


async def test_server_without_plugins_stores_pods_as_they_are():
    api = InProcessApi(settings=ServingSettings(disabled_plugins=frozenset(DEFAULT_PLUGINS)))
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
