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
from kubeloop.devcluster.admission.optional.event_rate_limit import EventRateLimit
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
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import EVENTS
from support.apiserver.admission_attributes import create_attributes
from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]
SPACE = "/api/v1/namespaces/default"
PODS = f"{SPACE}/pods"
POD: JSON = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def api_with(*plugins: str, **options: Any) -> InProcessApi:
    """Return a server that runs these plugins, too. options: their configuration, by name."""
    settings = PluginSettings(WITHOUT_ACCOUNTS | {*plugins}, options)
    return InProcessApi(settings=ServingSettings(admission=settings))


class NoDefinitions:
    @staticmethod
    def versions() -> tuple[()]:
        return ()


async def test_every_implemented_plugin_runs_in_the_order_of_kube_apiserver():
    limits = {"EventRateLimit": {"limits": [{"type": "Server", "qps": 1, "burst": 1}]}}
    environment = PluginEnvironment(ObjectStore(seconds=lambda: 0.0), NoDefinitions(), configuration=limits)
    plugins = [type(plugin) for plugin in optional_plugins(OPTIONAL_PLUGINS, environment)]
    assert plugins == [
        NamespaceExists, LimitPodHardAntiAffinityTopology, NodeRestriction, AlwaysPullImages, PodNodeSelector,
        PodTolerationRestriction, EventRateLimit, ExtendedResourceToleration, OwnerReferencesPermissionEnforcement,
        DenyServiceExternalIPs, AlwaysDeny,
    ]  # fmt: skip
    elsewhere = {"AlwaysAdmit", "NamespaceAutoProvision"}
    implemented = [name for name, extent in OPTIONAL_PLUGINS.items() if extent != "not" and name not in elsewhere]
    assert [plugin.__name__ for plugin in plugins] == implemented
    assert optional_plugins(WITHOUT_ACCOUNTS, environment) == ()


def test_server_without_optional_plugins_imports_none():
    code = """
import random, sys
from kubeloop.devcluster.api.errors import StatusError
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


async def test_configured_selectors_apply_to_namespaces_without_their_own():
    selectors = {"clusterDefaultNodeSelector": "zone=a", "default": "zone=a,disk=ssd"}
    api = api_with("PodNodeSelector", PodNodeSelector={"podNodeSelectorPluginConfig": selectors})
    assert api.create(PODS, POD)["spec"]["nodeSelector"] == {"zone": "a"}
    other = {**POD, "metadata": {"name": "q"}, "spec": {**POD["spec"], "nodeSelector": {"x": "y"}}}
    assert "conflict with its namespace whitelist" in api("POST", PODS, other)[1]["message"]
    annotate(api, node_selector="disk=ssd")
    assert api.create(PODS, {**POD, "metadata": {"name": "r"}})["spec"]["nodeSelector"] == {"disk": "ssd"}


async def test_configured_tolerations_apply_to_namespaces_without_their_own():
    anything = {"operator": "Exists", "effect": "NoExecute"}
    configuration = {"default": [{"key": "a", "operator": "Exists", "effect": "NoExecute"}], "whitelist": [anything]}
    api = api_with("PodTolerationRestriction", PodTolerationRestriction=configuration)
    assert configuration["default"][0] in api.create(PODS, POD)["spec"]["tolerations"]
    other = {**POD, "metadata": {"name": "q"}, "spec": {**POD["spec"], "tolerations": [{"operator": "Exists"}]}}
    status, content = api("POST", PODS, other)
    assert (status, content["message"].endswith("conflict with its cluster whitelist")) == (500, True)
    annotate(api, tolerationsWhitelist="", defaultTolerations="")
    assert api("POST", PODS, other)[0] == 201


@pytest.mark.parametrize(
    ("kind", "key"),
    [("Server", ""), ("Namespace", "default"), ("User", "admin"), ("SourceAndObject", "cPoddefaultp")],
)
async def test_events_are_limited(kind: str, key: str):
    limit = {"type": kind, "qps": 1, "burst": 2}
    api = api_with("EventRateLimit", EventRateLimit={"limits": [limit]})
    involved = {"kind": "Pod", "namespace": "default", "name": "p"}

    def write(name: str, namespace: str = "default", component: str = "c") -> tuple[int, Any]:
        event = {"metadata": {"name": name}, "involvedObject": {**involved, "namespace": namespace}}
        return api("POST", f"/api/v1/namespaces/{namespace}/events", {**event, "source": {"component": component}})

    assert [write(name)[0] for name in ("a", "b")] == [201, 201]
    status, content = write("c")
    username = "system:admin" if kind == "User" else key
    assert (status, content["reason"]) == (429, "TooManyRequests")
    assert content["message"].startswith(f"Too many requests: limit reached on type {kind} for key ")
    assert kind == "User" or content["message"].endswith(f"key {username}")
    other = {"Namespace": {"namespace": "kube-system"}, "SourceAndObject": {"component": "d"}}.get(kind)
    assert other is None or write("d", **other)[0] == 201
    assert api("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}})[0] == 201


def test_events_are_accepted_again_at_the_rate():
    now = [0.0]
    store = ObjectStore(seconds=lambda: now[0])
    limits = {"EventRateLimit": {"limits": [{"type": "Server", "qps": 2, "burst": 1}]}}
    plugin = EventRateLimit(PluginEnvironment(store, NoDefinitions(), configuration=limits))
    request = create_attributes(EVENTS)
    plugin.check(request)
    with pytest.raises(StatusError, match="limit reached on type Server"):
        plugin.check(request)
    now[0] = 0.5
    plugin.check(request)


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
