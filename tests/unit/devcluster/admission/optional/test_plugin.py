"""Optional admission plugins of a server: which ones run, in which order, and on which requests."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from kubeloop.devcluster.admission.optional import optional_plugins
from kubeloop.devcluster.admission.optional.always_deny import AlwaysDeny
from kubeloop.devcluster.admission.optional.always_pull_images import AlwaysPullImages
from kubeloop.devcluster.admission.optional.deny_service_external_ips import DenyServiceExternalIPs
from kubeloop.devcluster.admission.optional.extended_resource_toleration import ExtendedResourceToleration
from kubeloop.devcluster.admission.optional.limit_pod_hard_anti_affinity_topology import (
    LimitPodHardAntiAffinityTopology,
)
from kubeloop.devcluster.admission.optional.namespace_exists import NamespaceExists
from kubeloop.devcluster.admission.optional.node_restriction import NodeRestriction
from kubeloop.devcluster.admission.optional.owner_references_permission_enforcement import (
    OwnerReferencesPermissionEnforcement,
)
from kubeloop.devcluster.admission.optional.plugin import PluginEnvironment
from kubeloop.devcluster.admission.optional.pod_node_selector import PodNodeSelector
from kubeloop.devcluster.admission.optional.pod_toleration_restriction import PodTolerationRestriction
from kubeloop.devcluster.admission.plugin_settings import OPTIONAL_PLUGINS, WITHOUT_ACCOUNTS, PluginSettings
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.storage.store import ObjectStore
from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]
SPACE = "/api/v1/namespaces/default"
PODS = f"{SPACE}/pods"
POD: JSON = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def api_with(*plugins: str) -> InProcessApi:
    """Return a server that runs these plugins, too."""
    return InProcessApi(settings=ServingSettings(admission=PluginSettings(WITHOUT_ACCOUNTS | {*plugins})))


class NoDefinitions:
    @staticmethod
    def versions() -> tuple[()]:
        return ()


async def test_every_implemented_plugin_runs_in_the_order_of_kube_apiserver():
    environment = PluginEnvironment(ObjectStore(seconds=lambda: 0.0), NoDefinitions())
    plugins = [type(plugin) for plugin in optional_plugins(OPTIONAL_PLUGINS, environment)]
    assert plugins == [
        NamespaceExists, LimitPodHardAntiAffinityTopology, NodeRestriction, AlwaysPullImages, PodNodeSelector,
        PodTolerationRestriction, ExtendedResourceToleration, OwnerReferencesPermissionEnforcement,
        DenyServiceExternalIPs, AlwaysDeny,
    ]  # fmt: skip
    elsewhere = {"AlwaysAdmit", "NamespaceAutoProvision"}
    implemented = [name for name, extent in OPTIONAL_PLUGINS.items() if extent != "not" and name not in elsewhere]
    assert [plugin.__name__ for plugin in plugins] == implemented
    assert optional_plugins(WITHOUT_ACCOUNTS, environment) == ()


def test_server_without_optional_plugins_imports_none():
    code = """
import random, sys
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.kube.clock import SystemClock
import asyncio

async def main():
    ApiServer(clock=SystemClock(), rng=random.Random(1), token=None)

asyncio.run(main())
print([name for name in sys.modules if name.startswith("kubeloop.devcluster.admission.optional.")])
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.stdout.strip() == "['kubeloop.devcluster.admission.optional.plugin']", process.stderr


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", PODS, POD),
        ("PATCH", "/api/v1/namespaces/default", {"metadata": {"labels": {"a": "b"}}}),
        ("DELETE", "/api/v1/namespaces/kube-node-lease", None),
        ("POST", f"{SPACE}/serviceaccounts/default/token", {"spec": {}}),
        ("POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", {"metadata": {"name": "w"}}),
    ],
)
async def test_always_deny_refuses_every_write(method: str, path: str, body: JSON | None):
    status, content = api_with("AlwaysDeny")(method, path, body)
    assert status == 403
    assert content["message"].endswith(" is forbidden: admission control is denying all modifications")


async def test_always_deny_permits_reads():
    assert api_with("AlwaysDeny")("GET", "/api/v1/namespaces/default")[0] == 200


async def test_plugins_refuse_what_the_default_ones_permit():
    topology = {"topologyKey": "zone", "labelSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [topology]}}
    zonal = {**POD, "spec": {**POD["spec"], "affinity": affinity}}
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}], "externalIPs": ["192.0.2.1"]}}
    for plugin, path, body, message in (
        ("LimitPodHardAntiAffinityTopology", PODS, zonal, "TopologyKey zone but only key kubernetes.io/hostname"),
        ("DenyServiceExternalIPs", f"{SPACE}/services", service, "Use of external IPs is denied"),
    ):
        assert api_with()("POST", path, body)[0] == 201
        status, content = api_with(plugin)("POST", path, body)
        assert (status, message in content["message"]) == (403, True), content


async def test_always_pull_images_sets_the_policy_of_new_images():
    volume = {"name": "v", "image": {"reference": "r", "pullPolicy": "Never"}}
    container = {"name": "c", "image": "i", "imagePullPolicy": "IfNotPresent"}
    api = api_with("AlwaysPullImages")
    pod = api.create(PODS, {**POD, "spec": {"containers": [container], "volumes": [volume]}})
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    assert pod["spec"]["volumes"][0]["image"]["pullPolicy"] == "Always"
    without = api_with().create(PODS, {**POD, "spec": {"containers": [container]}})
    assert without["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"


async def test_extended_resources_are_tolerated():
    container = {"name": "c", "image": "i", "resources": {"limits": {"b.com/y": "1", "a.com/x": "1", "cpu": "1"}}}
    pod = api_with("ExtendedResourceToleration").create(PODS, {**POD, "spec": {"containers": [container]}})
    added = [toleration for toleration in pod["spec"]["tolerations"] if toleration["effect"] == "NoSchedule"]
    assert added == [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in ("a.com/x", "b.com/y")]


def annotate(api: InProcessApi, **annotations: str) -> None:
    prefix = "scheduler.alpha.kubernetes.io/"
    named = {prefix + key.replace("_", "-"): text for key, text in annotations.items()}
    api.succeed("PATCH", SPACE, {"metadata": {"annotations": named}})


async def test_pods_get_the_node_selector_of_their_namespace():
    api = api_with("PodNodeSelector")
    annotate(api, node_selector="zone=a,disk=ssd")
    assert api.create(PODS, POD)["spec"]["nodeSelector"] == {"disk": "ssd", "zone": "a"}
    status, content = api("POST", PODS, {**POD, "spec": {**POD["spec"], "nodeSelector": {"zone": "b"}}})
    assert (status, "conflicts with its namespace node label selector" in content["message"]) == (403, True)


async def test_pods_get_and_may_have_the_tolerations_of_their_namespace():
    api = api_with("PodTolerationRestriction")
    annotate(api, defaultTolerations='[{"key": "a", "operator": "Exists"}]')
    assert {"key": "a", "operator": "Exists"} in api.create(PODS, POD)["spec"]["tolerations"]
    annotate(api, tolerationsWhitelist='[{"operator": "Exists", "effect": "NoExecute"}]')
    status, content = api("POST", PODS, {**POD, "metadata": {"name": "q"}})
    assert (status, "conflict with its namespace whitelist" in content["message"]) == (500, True)


async def test_namespaces_are_provided_and_must_exist():
    path = "/api/v1/namespaces/new/configmaps"
    assert api_with()("POST", path, {"metadata": {"name": "a"}})[0] == 404
    api = api_with("NamespaceAutoProvision")
    assert api("POST", f"{path}?dryRun=All", {"metadata": {"name": "a"}})[0] == 404
    api.create(path, {"metadata": {"name": "a"}})
    assert api.succeed("GET", "/api/v1/namespaces/new")["status"] == {"phase": "Active"}
    exists = api_with("NamespaceExists")
    assert exists("DELETE", "/api/v1/namespaces/new/configmaps/a")[0] == 404


async def test_creates_for_objects_in_a_terminating_namespace_are_refused():
    api = api_with()
    api.create("/api/v1/namespaces", {"metadata": {"name": "n"}})
    api.create("/api/v1/namespaces/n/pods", POD)
    api.succeed("DELETE", "/api/v1/namespaces/n")
    binding = {"metadata": {"name": "p"}, "target": {"name": "x"}}
    for path, body in (
        ("pods/p/eviction", {"metadata": {"name": "p"}}),
        ("pods/p/binding", binding),
        ("bindings", binding),
        ("serviceaccounts/default/token", {"spec": {}}),
    ):
        status, content = api("POST", f"/api/v1/namespaces/n/{path}", body)
        assert (status, content["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating"), content
