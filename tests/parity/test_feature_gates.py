"""Table and messages of the feature gates, compared with the binaries of Kubernetes."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from kubeloop.devcluster.admission.plugin_settings import DEFAULT_PLUGINS, PluginSettings
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.storage.data_directory import DataDirectory
from kubeloop.kube.feature_gates import GATES, FeatureGates
from kubeloop.kube.user_error import UserError
from support.apiserver.api_requests import InProcessApi
from support.apiserver.bare_apiserver import create_accounts
from support.comparison.real_apiserver import RealApiServer, find_binary, needs_binaries, real_apiserver
from support.objects.token_volumes import masked_token_volumes
from support.objects.validation_causes import pod, pod_with_container

JSON = dict[str, Any]

_DISTRIBUTION = {"MinimumKubeletVersion", "RouteExternalCertificate", "StoragePerformantSecurityPolicy"}
"""Gates that OpenShift's builds of the binaries have in addition."""
_DIFFERENT_DEFAULT = {"CRDObservedGenerationTracking"}
"""Gates whose default OpenShift's builds change."""
_OF_CONTROLLER_MANAGER = {"ControllerManagerReleaseLeaderElectionLockOnExit"}


def run(name: str, *arguments: str) -> str:
    binary = find_binary(name)
    if binary is None:
        pytest.skip(f"{name} is not installed")
    result = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=60, check=False)
    return result.stdout + result.stderr


def gate_lines(lines: str) -> set[str]:
    return set(re.findall(r"kube:\w+=true\|false \(\w+ - default=\w+\)", lines))


@pytest.mark.parametrize("name", ["kube-apiserver", "kube-scheduler", "kube-controller-manager"])
def test_table_has_the_alpha_and_beta_gates_of_kubernetes(name):
    lines = {line for line in gate_lines(run(name, "--help")) if line[5:].partition("=")[0] not in _DISTRIBUTION}
    gates = {
        f"kube:{name}=true|false ({gate.stage} - default={str(gate.default).lower()})"
        for name, gate in GATES.items()
        if gate.stage in ("ALPHA", "BETA")
        and not gate.locked
        and name not in _OF_CONTROLLER_MANAGER | _DIFFERENT_DEFAULT
    }
    assert {
        line for line in lines if line[5:].partition("=")[0] not in _OF_CONTROLLER_MANAGER | _DIFFERENT_DEFAULT
    } == gates


@pytest.mark.parametrize(
    "text",
    [
        "PodDeletionCost",
        "PodDeletionCost=x",
        "SidecarContainers=false",
        "x:PodDeletionCost=false",
        "kube:PodDeletionCost=true,CRIListStreaming=true",
        "MatchLabelKeysInPodTopologySpread=false",
        "LogarithmicScaleDown=false",
    ],
)
def test_invalid_gates_have_the_message_of_kubernetes(text):
    log = run("kube-scheduler", f"--feature-gates={text}", "--kubeconfig=/nonexistent")
    (message,) = re.findall(r'"command failed" err="(.*)"', log)
    with pytest.raises(UserError) as raised:
        FeatureGates.parse([text])
    assert str(raised.value) == message.replace('\\"', '"')


def test_locked_gates_are_those_of_kubernetes():
    changed = ",".join(f"{name}={str(not gate.default).lower()}" for name, gate in sorted(GATES.items()))
    log = run("kube-scheduler", f"--feature-gates={changed}", "--kubeconfig=/nonexistent")
    refused = re.findall(r"cannot set feature gate (\w+) to \w+, feature is locked to (\w+)", log)
    assert {name: value == "true" for name, value in refused} == {
        name: gate.default for name, gate in GATES.items() if gate.locked
    }


# --- a real API server with every gate that kubeloop obeys switched ---------------------------------------------------

# UserNamespacesHostNetworkSupport, which is switched on, depends on NodeDeclaredFeatures; DRADeviceTaintRules, which is
# compared in test_device_taints, on DRADeviceTaints
SWITCHED = {
    name: not gate.default
    for name, gate in GATES.items()
    if gate.obeyed and name not in ("NodeDeclaredFeatures", "DRADeviceTaintRules")
}
PATHS = {
    "Pod": "/api/v1/namespaces/default/pods",
    "Service": "/api/v1/namespaces/default/services",
    "PersistentVolumeClaim": "/api/v1/namespaces/default/persistentvolumeclaims",
    "Ingress": "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
    "StatefulSet": "/apis/apps/v1/namespaces/default/statefulsets",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
    "Node": "/api/v1/nodes",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ServiceCIDR": "/apis/networking.k8s.io/v1/servicecidrs",
}
_SPREAD = {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["v"]}
_RULES = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
_EXTERNAL = {"external": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "1"}}, "type": "External"}
_TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
_SOURCE = {"apiGroup": "g.io", "kind": "K", "name": "n", "namespace": "other"}
_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_SET = {"selector": {"matchLabels": {"a": "b"}}, "serviceName": "s"}
_MERGE = "application/merge-patch+json"
_CONDITION = {"type": "Ready", "status": "False", "reason": "R", "message": "m"}
_CONDITION["lastTransitionTime"] = "2026-01-01T00:00:00Z"
_COST = "controller.kubernetes.io/pod-deletion-cost"


_SCHEMA = {"openAPIV3Schema": {"type": "object"}}
_DEFINITION = {
    "metadata": {"name": "foos.g.io"},
    "spec": {
        "group": "g.io",
        "scope": "Namespaced",
        "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": _SCHEMA}],
    },
}


def _container_status(**mount: Any) -> JSON:
    status = {"name": "c", "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
    return {**status, "volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}


def _linux(body: JSON) -> JSON:
    return {"spec": {**body["spec"], "os": {"name": "linux"}}}


REQUESTS: dict[str, tuple[str, JSON]] = {
    "toleration": ("Pod", pod(tolerations=[{"key": "a", "operator": "Gt", "value": "5"}])),
    "toleration with zero": ("Pod", pod(tolerations=[{"key": "a", "operator": "Lt", "value": "05"}])),
    "toleration without value": ("Pod", pod(tolerations=[{"key": "a", "operator": "Lt"}])),
    "toleration out of range": ("Pod", pod(tolerations=[{"key": "a", "operator": "Lt", "value": "9" * 20}])),
    "stop signal": ("Pod", _linux(pod_with_container(lifecycle={"stopSignal": "SIGHUP"}))),
    "stop signal without os": ("Pod", pod_with_container(lifecycle={"stopSignal": "SIGHUP"})),
    "unknown stop signal": ("Pod", _linux(pod_with_container(lifecycle={"stopSignal": "X"}))),
    "restart rules": ("Pod", pod_with_container(restartPolicy="Never", restartPolicyRules=_RULES)),
    "hostname override": ("Pod", pod(hostnameOverride="h")),
    "file key": ("Pod", pod(
        containers=[{"name": "c", "image": "i", "env": [
            {"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}}]}],
        volumes=[{"name": "v", "emptyDir": {}}])),
    "spread keys": ("Pod", pod(topologySpreadConstraints=[{**_SPREAD, "labelSelector": {}}])),
    "user namespace": ("Pod", pod(hostUsers=False, hostNetwork=True)),
    "mount option": ("Pod", pod(securityContext={"seLinuxChangePolicy": "MountOption"})),
    "deletion cost": ("Pod", {**pod(), "metadata": {"annotations": {_COST: "much"}}}),
    "service": ("Service", {"metadata": {"name": "1a"}, "spec": {"ports": [{"port": 80}]}}),
    "ingress": ("Ingress", {"spec": {"defaultBackend": {"service": {"name": "1a", "port": {"number": 80}}}}}),
    "scale to zero": ("HorizontalPodAutoscaler", {"spec": {
        "minReplicas": 0, "maxReplicas": 2, "scaleTargetRef": _TARGET, "metrics": [_EXTERNAL]}}),
    "negative minimum": ("HorizontalPodAutoscaler", {"spec": {
        "minReplicas": -1, "maxReplicas": 2, "scaleTargetRef": _TARGET}}),
    "tolerance": ("HorizontalPodAutoscaler", {"spec": {
        "maxReplicas": 2, "scaleTargetRef": _TARGET, "behavior": {"scaleUp": {"tolerance": "0.1"}}}}),
    "stateful set": ("StatefulSet", {"spec": {**_SET, "template": {**pod(), "metadata": {"labels": {"a": "b"}}}}}),
    "claim": ("PersistentVolumeClaim", {"spec": {**_CLAIM, "dataSourceRef": _SOURCE}}),
    "driver": ("CSIDriver", {"spec": {}}),
    "nameserver": ("Pod", pod(dnsConfig={"nameservers": ["010.0.0.1", "::ffff:1.2.3.4", "1.2.3"]})),
    "host alias": ("Pod", pod(hostAliases=[{"ip": "010.0.0.1", "hostnames": ["a"]}])),
    "external IP": ("Service", {"spec": {"ports": [{"port": 80}], "externalIPs": ["010.1.1.1", "127.0.0.1"]}}),
    "cluster IP": ("Service", {"spec": {"ports": [{"port": 80}], "clusterIP": "010.0.0.077"}}),
    "mapped cluster IP": ("Service", {"spec": {"ports": [{"port": 80}], "clusterIP": "::ffff:10.0.0.78"}}),
    "source range": ("Service", {"spec": {
        "ports": [{"port": 80}], "type": "LoadBalancer", "allocateLoadBalancerNodePorts": False,
        "loadBalancerSourceRanges": ["10.0.0.1/8", "010.0.0.0/08"]}}),
    "policy": ("NetworkPolicy", {"spec": {"podSelector": {}, "ingress": [
        {"from": [{"ipBlock": {"cidr": "10.0.0.1/8", "except": ["10.01.0.0/16"]}}]}]}}),
    "node": ("Node", {"spec": {"podCIDR": "10.0.0.1/24", "podCIDRs": ["10.0.0.1/24"]}}),
    "service range": ("ServiceCIDR", {"spec": {"cidrs": ["10.9.0.0/24"]}, "status": {"conditions": [_CONDITION]}}),
    "slice": ("ResourceSlice", {"spec": {
        "driver": "d.io", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "nodeName": "n",
        "devices": [{
            "name": "d", "taints": [{"key": "k", "effect": "NoSchedule"}], "bindingConditions": ["b"],
            "bindingFailureConditions": ["f"], "allowMultipleAllocations": True,
            "capacity": {"m": {"value": "1", "requestPolicy": {"default": "1", "validValues": ["1"]}}},
            "attributes": {"a": {"string": "s"}}}]}}),
    "claim of devices": ("ResourceClaim", {"spec": {"devices": {"requests": [{"name": "r", "exactly": {
        "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1,
        "tolerations": [{"key": "k", "operator": "Exists"}], "capacity": {"requests": {"m": "1"}}}}]}}}),
    "class": ("DeviceClass", {"spec": {"extendedResourceName": "a.io/b"}}),
    "pod-level resources": ("Pod", pod(resources={"limits": {"cpu": "1"}})),
}  # fmt: skip


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    needs_binaries()
    flags = {
        "feature-gates": FeatureGates(SWITCHED).text(),
        "runtime-config": "scheduling.k8s.io/v1alpha2=true",  # GenericWorkload requires it
    }
    with real_apiserver(tmp_path_factory.mktemp("real"), flags) as server:
        yield server


def own_api(gates: dict[str, bool], data: DataDirectory | None = None) -> InProcessApi:
    """Return a server that has the plugin ServiceAccount and the accounts "default", as real_apiserver()."""
    settings = ServingSettings(feature_gates=FeatureGates(gates), admission=PluginSettings(frozenset(DEFAULT_PLUGINS)))
    api = InProcessApi(settings=settings, data_directory=data)
    create_accounts(api.server)
    return api


def sent(
    server: RealApiServer, method: str, path: str, body: JSON | None = None, content_type: str = "application/json"
) -> tuple[int, bytes]:
    request = urllib.request.Request(
        server.url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {server.token}", "Content-Type": content_type},
    )
    context = ssl.create_default_context(cafile=str(server.ca))
    try:
        with urllib.request.urlopen(request, context=context, timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def outcome(status: int, response: JSON) -> Any:
    """Return what does not depend on time or names: the spec, or the causes."""
    if status != 201:
        return status, response.get("details", {}).get("causes") or response["message"]
    spec = response["spec"]
    for name in ("clusterIP", "clusterIPs", "tolerations") if response["kind"] == "Service" else ():
        spec.pop(name, None)
    return status, masked_token_volumes(spec)


@pytest.mark.parametrize("name", REQUESTS)
async def test_switched_gates_do_what_they_do_in_kubernetes(real: RealApiServer, name: str):
    kind, body = REQUESTS[name]
    path = PATHS[kind]
    body = {**body, "metadata": {"name": name.replace(" ", "-"), **body.get("metadata", {})}}
    api = own_api(SWITCHED)
    real_status, real_body = sent(real, "POST", path, body)
    assert outcome(*api("POST", path, body)) == outcome(real_status, json.loads(real_body))


_STATUS_WRITES: dict[str, tuple[str, JSON, JSON]] = {
    "volume status": ("Pod", pod(), {
        "containerStatuses": [_container_status(volumeStatus={"image": {"imageRef": "r"}})]}),
    "invalid volume status": ("Pod", pod(), {"initContainerStatuses": [_container_status(volumeStatus={"image": {}})]}),
    "long volume status": ("Pod", pod(), {
        "containerStatuses": [_container_status(volumeStatus={"image": {"imageRef": "r" * 257}})]}),
    "definition": ("CustomResourceDefinition", _DEFINITION, {"observedGeneration": 7}),
}  # fmt: skip


@pytest.mark.parametrize("name", _STATUS_WRITES)
async def test_statuses_have_the_fields_that_they_have_in_kubernetes(real: RealApiServer, name: str):
    kind, body, status = _STATUS_WRITES[name]
    path, named = PATHS[kind], {**body, "metadata": body.get("metadata") or {"name": f"s-{name.replace(' ', '-')}"}}
    api = own_api(SWITCHED)
    api.create(path, named)
    sent(real, "POST", path, named)
    path = f"{path}/{named['metadata']['name']}/status"
    real_status, content = sent(real, "PATCH", path, {"status": status}, _MERGE)
    real_body, (own_status, own_body) = json.loads(content), api("PATCH", path, {"status": status}, _MERGE)
    assert own_status == real_status
    if real_status == 200:
        assert {key: own_body["status"].get(key) for key in status} == {
            key: real_body["status"].get(key) for key in status
        }
    else:
        assert own_body["details"]["causes"] == real_body["details"]["causes"]


async def test_writes_of_a_service_range_own_its_status_without_the_gate(real: RealApiServer):
    name = "range"
    body = {"metadata": {"name": name}, "spec": {"cidrs": ["10.9.0.0/24"]}, "status": {"conditions": [_CONDITION]}}
    changed = {"status": {"conditions": [{**_CONDITION, "type": "Other"}]}}
    api = own_api(SWITCHED)
    own = [api("POST", PATHS["ServiceCIDR"], body), api("PATCH", f"{PATHS['ServiceCIDR']}/{name}", changed, _MERGE)]
    answers = [
        sent(real, "POST", PATHS["ServiceCIDR"], body),
        sent(real, "PATCH", f"{PATHS['ServiceCIDR']}/{name}", changed, _MERGE),
    ]
    for (status, content), (real_status, real_content) in zip(own, answers, strict=True):
        expected = json.loads(real_content)
        assert (status, content["status"]) == (real_status, expected["status"])
        owned, expected_owned = (
            [entry["fieldsV1"] for entry in obj["metadata"]["managedFields"]] for obj in (content, expected)
        )
        assert owned == expected_owned


_LOW = "shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')"
_SHARDS = [
    _LOW,
    _LOW.replace("0x8000000000000000", "0x10000000000000000"),
    f"{_LOW} || {_LOW.replace('0x8000000000000000', '0x9000000000000000')}".replace("'", '"'),
    " ",
    "a",
    "a.b",
    "'x'",
    "[a]",
    "{}",
    "f()",
    "a ? b : c",
    "-1",
    "1.0",
    f"{_LOW} && {_LOW}",
    f"{_LOW} || {_LOW.replace('namespace', 'uid')}",
    "shardRange()",
    _LOW.replace("namespace", "name"),
    _LOW.replace("object.metadata.namespace", "1"),
    _LOW.replace("'0x0000000000000000'", "a"),
    _LOW.replace("'0x0000000000000000'", "1"),
    _LOW.replace("'0x0000000000000000'", "1u"),
    _LOW.replace("'0x0000000000000000'", "true"),
    _LOW.replace("'0x0000000000000000'", "b'1'"),
    _LOW.replace("0x0000000000000000", "1"),
    _LOW.replace("0x0000000000000000", "0x"),
    _LOW.replace("0x0000000000000000", "0x000000000000000000"),
    _LOW.replace("0x0000000000000000", "0xA"),
    _LOW.replace("0x0000000000000000", "0x20000000000000000"),
    _LOW.replace("0x0000000000000000", "0x1"),
    _LOW.replace("0x0000000000000000", "0x8000000000000000"),
]


@pytest.mark.parametrize("selector", _SHARDS)
@pytest.mark.parametrize("query", ["", "&limit=1"])
async def test_shards_are_those_of_kubernetes(real: RealApiServer, selector: str, query: str):
    """Hash the namespaces, which are the same in both clusters."""
    path = f"/api/v1/serviceaccounts?shardSelector={quote(selector)}{query}"
    api = own_api(SWITCHED)
    for namespace in ("default", "kube-system", "kube-public"):
        body = {"metadata": {"name": "shard"}}
        api("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", body)
        sent(real, "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", body)
    real_status, content = sent(real, "GET", path)
    expected = json.loads(content)
    status, response = api("GET", path)
    assert status == real_status
    if status != 200:
        assert response == expected
        return
    for answer in (response, expected):
        for name in ("resourceVersion", "continue"):
            answer["metadata"].pop(name, None)
    assert [item["metadata"]["namespace"] for item in response["items"]] == [
        item["metadata"]["namespace"] for item in expected["items"]
    ]
    assert response["metadata"] == expected["metadata"]


async def test_token_request_for_another_uid_has_a_warning_without_the_gate(real: RealApiServer):
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    api = own_api(SWITCHED)
    account = {"metadata": {"name": "robot"}}
    api.create(accounts, account)
    sent(real, "POST", accounts, account)
    body = {"metadata": {"uid": "another"}, "spec": {"audiences": ["a"]}}
    real_status, content = sent(real, "POST", f"{accounts}/robot/token", body)
    status, response = api("POST", f"{accounts}/robot/token", body)
    assert (real_status, json.loads(content)["metadata"]["uid"]) == (201, "another")
    assert (status, response["metadata"]["uid"]) == (201, "another")
    (warning,) = api.warnings
    assert "(another) does not match the UID of the service account" in warning


def test_metric_has_the_values_of_kubernetes(real: RealApiServer):
    pattern = r'kubernetes_feature_enabled\{name="(\w+)",stage="(\w*)"\} (\d)'
    metrics = {
        (name, stage, value == "1")
        for name, stage, value in re.findall(pattern, sent(real, "GET", "/metrics")[1].decode())
    }
    names = {name for name, _, _ in metrics} - _DISTRIBUTION
    assert {entry for entry in metrics if entry[0] in names} == {
        entry for entry in FeatureGates(SWITCHED).all() if entry[0] in names
    }
    assert set(GATES) - names <= _OF_CONTROLLER_MANAGER


# --- objects that were stored while a gate was enabled ----------------------------------------------------------------

_DISABLED_LATER = dict.fromkeys(
    (
        "ContainerStopSignals",
        "CrossNamespaceVolumeDataSource",
        "HPAScaleToZero",
        "MaxUnavailableStatefulSet",
        "SELinuxMount",
        "TaintTolerationComparisonOperators",
        "UserNamespacesHostNetworkSupport",
        "VolumeLimitScaling",
    ),
    True,
)
_NOW_DISABLED = {
    **dict.fromkeys(_DISABLED_LATER, False),
    "ContainerRestartRules": False,
    "RestartAllContainersOnContainerExits": False,
    "EnvFiles": False,
    "HPAConfigurableTolerance": False,
    "HostnameOverride": False,
    "PodLevelResources": False,
    "InPlacePodLevelResourcesVerticalScaling": False,
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": False,
    "RelaxedServiceNameValidation": False,
    "StrictIPCIDRValidation": False,
}
_ALL_RULES = [{**_RULES[0], "action": "RestartAllContainers"}]
_LABELS = {"metadata": {"labels": {"a": "b"}}}
_TEMPLATES: dict[str, JSON] = {
    "comparison": pod(tolerations=[{"key": "a", "operator": "Gt", "value": "5"}]),
    "mount-option": pod(securityContext={"seLinuxChangePolicy": "MountOption"}),
    "user-namespace": pod(hostUsers=False, hostNetwork=True),
    "stop-signal": _linux(pod_with_container(lifecycle={"stopSignal": "SIGHUP"})),
    "restart-rules": pod_with_container(restartPolicy="Never", restartPolicyRules=_ALL_RULES),
    "sidecar-rules": pod(initContainers=[
        {"name": "s", "image": "i", "restartPolicy": "Always", "restartPolicyRules": _RULES}]),
    "hostname-override": pod(hostnameOverride="h"),
    "pod-level-resources": pod(resources={"limits": {"cpu": "1"}}),
    "spread-keys": pod(topologySpreadConstraints=[
        {**_SPREAD, "labelSelector": {"matchExpressions": [{"key": "v", "operator": "Exists"}]}}]),
    "file-key": REQUESTS["file key"][1],
    "plain": pod(),
}  # fmt: skip
_STORED: dict[str, tuple[str, JSON]] = {
    **{name: ("PodTemplate", {"template": {**body, **_LABELS}}) for name, body in _TEMPLATES.items()},
    "zero": REQUESTS["scale to zero"],
    "tolerance": REQUESTS["tolerance"],
    "stateful-set": ("StatefulSet", {"spec": {
        **_SET, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}, "template": {**pod(), **_LABELS}}}),
    "claim": REQUESTS["claim"],
    "driver": ("CSIDriver", {"spec": {"preventPodSchedulingIfMissing": True}}),
    "1a": ("Service", {"spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}),
    "ingress": REQUESTS["ingress"],
}  # fmt: skip
_CHANGES: dict[str, JSON] = {
    "PodTemplate": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}},
    "HorizontalPodAutoscaler": {"spec": {"maxReplicas": 3}},
    "StatefulSet": {"spec": {"replicas": 2}},
    "PersistentVolumeClaim": {"metadata": {"labels": {"a": "b"}}},
    "CSIDriver": {"spec": {"requiresRepublish": True}},
    "Service": {"spec": {"ports": [{"port": 81}]}},
    "Ingress": {"spec": {"ingressClassName": "c"}},
}
PATHS["PodTemplate"] = "/api/v1/namespaces/default/podtemplates"


def contents(status: int, response: JSON) -> Any:
    """Return what does not depend on time: spec and template, or the causes."""
    if status not in (200, 201):
        return status, response.get("details", {}).get("causes") or response["message"]
    spec = {name: value for name, value in response.get("spec", {}).items() if name not in ("clusterIP", "clusterIPs")}
    return status, spec, response.get("template")


async def test_values_of_disabled_gates_can_be_updated_as_in_kubernetes(tmp_path: Path):
    needs_binaries()
    outcomes: dict[str, dict[str, Any]] = {"kubeloop": {}, "kube-apiserver": {}}
    with real_apiserver(tmp_path / "real", {"feature-gates": FeatureGates(_DISABLED_LATER).text()}) as server:

        def send(api: InProcessApi, step: str, method: str, path: str, body: JSON) -> None:
            status, content = api(method, path, body, _MERGE if method == "PATCH" else "application/json")
            outcomes["kubeloop"][step] = contents(status, content)
            status, response = sent(server, method, path, body, _MERGE if method == "PATCH" else "application/json")
            outcomes["kube-apiserver"][step] = contents(status, json.loads(response))

        data = DataDirectory(tmp_path / "data")
        api = own_api(_DISABLED_LATER, data)
        for name, (kind, body) in _STORED.items():
            send(api, f"create {name}", "POST", PATHS[kind], {**body, "metadata": {"name": name}})
        server.kill_apiserver()
        server.flags["feature-gates"] = FeatureGates(_NOW_DISABLED).text()
        server.start_apiserver()
        data.close()
        data = DataDirectory(tmp_path / "data")
        api = own_api(_NOW_DISABLED, data)
        for name, (kind, _) in _STORED.items():
            send(api, f"update {name}", "PATCH", f"{PATHS[kind]}/{name}", _CHANGES[kind])
        plain = f"{PATHS['PodTemplate']}/plain"
        for name, template in _TEMPLATES.items():
            send(api, f"add {name}", "PATCH", f"{plain}?dryRun=All", {"template": template})
        data.close()
    for step, expected in outcomes["kube-apiserver"].items():
        assert (step, outcomes["kubeloop"][step]) == (step, expected)
