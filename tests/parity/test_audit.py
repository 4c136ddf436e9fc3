"""Audit events beside kube-apiserver: the same requests at every level, with the same policy and flags.

Both servers are started by the same flags: kubeloop's by the executables of `kubeloop envtest`.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from kubeloop.cli.envtest import create_assets
from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver

JSON = dict[str, Any]
LEVELS = {"metadata": "Metadata", "request": "Request", "response": "RequestResponse"}
MERGE, APPLY, JSON_PATCH = (
    f"application/{name}" for name in ("merge-patch+json", "apply-patch+yaml", "json-patch+json")
)
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"
LOGGED_SECONDS = 20.0
RECEIVED = "RequestReceived"
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["Panic"],
    "rules": [
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "None", "nonResourceURLs": ["/readyz*"]},
        {"level": "None", "verbs": ["get"], "resources": [{"group": "", "resources": ["nodes"]}]},
        {"level": "RequestResponse", "namespaces": ["response"], "verbs": ["delete"], "omitStages": [RECEIVED]},
        *({"level": level, "namespaces": [namespace]} for namespace, level in LEVELS.items()),
        {"level": "RequestResponse", "omitManagedFields": True},
    ],
}  # fmt: skip
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
LABELS = {"app": "web"}
CONTAINERS = {"containers": [{"name": "c", "image": "i"}]}
DEPLOYMENT = {
    "metadata": {"name": "web"},
    "spec": {"selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": CONTAINERS}},
}


class Call(NamedTuple):
    """A request; body: text is sent as it is."""

    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = {}  # noqa: RUF012


def patch(path: str, body: Any, media_type: str) -> Call:
    return Call("PATCH", path, body, {"Content-Type": media_type})


def calls_in(namespace: str) -> list[Call]:
    """Return the requests that are sent in a namespace of one level."""
    core, apps = f"/api/v1/namespaces/{namespace}", f"/apis/apps/v1/namespaces/{namespace}"
    maps, pods = f"{core}/configmaps", f"{core}/pods"
    pod = {"metadata": {"name": "p", "labels": LABELS}, "spec": CONTAINERS}
    eviction = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "p"}}
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    scale = {"metadata": {"name": "web", "namespace": namespace}, "spec": {"replicas": 2}}
    return [
        Call("POST", f"{maps}?fieldManager=m", {"metadata": {"name": "a"}, "data": {"k": "v"}}),
        Call("POST", maps, {"metadata": {"name": "a"}}),
        Call("POST", maps, {"metadata": {"generateName": "g-"}}),
        Call("POST", maps, {"metadata": {"name": "A"}}),
        Call("POST", maps, "{"),
        Call("POST", f"{maps}?dryRun=All", {"metadata": {"name": "dry"}}),
        Call("GET", f"{maps}/a"),
        Call("GET", f"{maps}/a", headers={"Accept": "application/yaml"}),
        Call("GET", f"{maps}/a", headers={"Accept": "application/vnd.kubernetes.protobuf"}),
        Call("GET", f"{maps}/a", headers={"Accept": TABLE}),
        Call("GET", f"{maps}/missing"),
        Call("GET", f"{maps}?limit=1&fieldSelector=metadata.name%3Da"),
        Call("GET", f"{maps}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da"),
        Call("PUT", f"{maps}/a", {"metadata": {"name": "a"}, "data": {"k": "w"}}),
        Call("PUT", f"{maps}/a", {"metadata": {"name": "a", "resourceVersion": "1"}}),
        patch(f"{maps}/a", {"data": {"k": "x"}}, MERGE),
        patch(f"{maps}/a", [{"op": "add", "path": "/data/j", "value": "1"}], JSON_PATCH),
        patch(f"{maps}/a?fieldManager=x&force=true", {**CONFIG_MAP, "data": {"z": "1"}}, APPLY),
        patch(f"{maps}/a?fieldManager=x", CONFIG_MAP, "text/plain"),
        Call("DELETE", f"{maps}/a", {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}),
        Call("DELETE", f"{maps}/missing"),
        Call("DELETE", f"{maps}?labelSelector=none"),
        Call("POST", pods, pod),
        patch(f"{pods}/p/status", {"status": {"phase": "Running"}}, MERGE),
        Call("POST", f"{pods}/p/binding", binding),
        Call("GET", f"{pods}/p/log"),
        Call("POST", f"{pods}/p/eviction", eviction),
        Call("DELETE", f"{pods}/p?gracePeriodSeconds=0"),
        Call("POST", f"{apps}/deployments", DEPLOYMENT),
        Call("GET", f"{apps}/deployments/web/scale"),
        Call("PUT", f"{apps}/deployments/web/scale", scale),
        patch(f"{apps}/deployments/web/scale", {"spec": {"replicas": 3}}, MERGE),
        Call("GET", f"{apps}/unknown"),
        Call("POST", f"{core}/serviceaccounts/default/token", {"spec": {"expirationSeconds": 3600}}),
    ]  # fmt: skip


def policy_calls() -> list[Call]:
    """Return requests that an admission policy audits; it applies to ConfigMaps with the label `audited`."""
    policies = "/apis/admissionregistration.k8s.io/v1"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]
    spec = {
        "matchConstraints": {"resourceRules": rules, "objectSelector": {"matchLabels": {"audited": "yes"}}},
        "validations": [
            {"expression": "true"},
            {"expression": "size(object.data) < 1", "message": "too <much> & more"},
        ],
        "auditAnnotations": [
            {"key": "size", "valueExpression": "string(size(object.data))"},
            {"key": "none", "valueExpression": "null"},
            {"key": "empty", "valueExpression": "' '"},
        ],
    }
    binding = {"policyName": "small", "validationActions": ["Audit", "Warn"]}
    map_ = {"metadata": {"name": "policy", "labels": {"audited": "yes"}}, "data": {"k": "v"}}
    return [
        Call("POST", f"{policies}/validatingadmissionpolicies", {"metadata": {"name": "small"}, "spec": spec}),
        Call("POST", f"{policies}/validatingadmissionpolicybindings", {"metadata": {"name": "audit"}, "spec": binding}),
        Call("POST", "/api/v1/namespaces/metadata/configmaps", map_),
    ]


def other_calls() -> list[Call]:
    """Return requests outside of these namespaces, all at level RequestResponse but for nodes."""
    other = "/api/v1/namespaces/other"
    review = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
    return [
        Call("GET", "/version"),
        Call("GET", "/healthz"),
        Call("GET", "/api"),
        Call("GET", "/apis/batch/v1"),
        Call("GET", "/nothing"),
        Call("POST", "/healthz"),
        Call("GET", "/api/v1/nodes/n"),
        Call("GET", "/api/v1/nodes"),
        Call("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}}),
        Call("GET", "/api/v1/namespaces/other"),
        Call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review),
        Call("GET", f"{other}/configmaps", headers={"Impersonate-User": "jane", "Impersonate-Group": "dev"}),
        Call("GET", f"{other}/configmaps", headers={"Impersonate-User": "system:serviceaccount:default:default"}),
        Call("GET", other, headers={"Authorization": "Bearer wrong"}),
        Call("GET", other, headers={"X-Forwarded-For": "10.0.0.1, bad, 10.0.0.2", "X-Real-Ip": "10.1.1.1"}),
        Call("GET", other, headers={"User-Agent": "x" * 1100}),
    ]  # fmt: skip


CALLS = [
    *(Call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}) for namespace in LEVELS),
    *(call for namespace in LEVELS for call in calls_in(namespace)),
    *policy_calls(),
    *other_calls(),
]
_NAMESPACES_CREATED = len(LEVELS)
_POLICY_SECONDS = 3.0  # until kube-apiserver evaluates a new policy


@pytest.fixture(scope="module")
def events(tmp_path_factory) -> Iterator[tuple[list[list[JSON]], list[list[JSON]]]]:
    """The events of each call, of kube-apiserver and kubeloop."""
    needs_binaries()
    folder = tmp_path_factory.mktemp("audit")
    policy = folder / "policy.yaml"
    policy.write_text(yaml.safe_dump(POLICY))
    with ExitStack() as stack, pytest.MonkeyPatch.context() as environment:
        logged = []
        for name in ("real", "kubeloop"):
            if name == "kubeloop":
                environment.setenv("KUBEBUILDER_ASSETS", str(create_assets(folder)))
            log = folder / f"{name}.log"
            flags = {"audit-policy-file": str(policy), "audit-log-path": str(log), "authorization-mode": "Node,RBAC"}
            server = stack.enter_context(real_apiserver(folder / name, flags))
            send_all(server)
            logged.append(wait_for_events(log))
        yield logged[0], logged[1]


def send_all(server: RealApiServer) -> None:
    tls = ssl.create_default_context(cafile=str(server.ca))
    for index, call in enumerate(CALLS):
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=tls, timeout=30)
        body = call.body if call.body is None or isinstance(call.body, str) else json.dumps(call.body)
        headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json", "User-Agent": "test"}
        connection.request(call.method, call.path, body, {**headers, "Audit-ID": f"call-{index}", **call.headers})
        connection.getresponse().read()
        connection.close()
        if index == _NAMESPACES_CREATED - 1:
            wait_for_accounts(server)
        elif "policybindings" in call.path:
            time.sleep(_POLICY_SECONDS)


def wait_for_accounts(server: RealApiServer) -> None:
    deadline = time.monotonic() + LOGGED_SECONDS
    while time.monotonic() < deadline:
        accounts = server.request("GET", "/api/v1/serviceaccounts?fieldSelector=metadata.name%3Ddefault")
        if set(LEVELS) <= {account["metadata"]["namespace"] for account in accounts["items"]}:
            return
        time.sleep(0.05)
    raise AssertionError("no ServiceAccounts")


def wait_for_events(log: Path) -> list[list[JSON]]:
    """Return the events by call once the last one is logged."""
    last, deadline = f"call-{len(CALLS) - 1}", time.monotonic() + LOGGED_SECONDS
    while time.monotonic() < deadline:
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        if any(entry["auditID"] == last and entry["stage"] == "ResponseComplete" for entry in entries):
            return [[entry for entry in entries if entry["auditID"] == f"call-{index}"] for index in range(len(CALLS))]
        time.sleep(0.05)
    raise AssertionError(f"{log} is not complete")


_LATENCY = "apiserver.latency.k8s.io/"
_TOTAL = f"{_LATENCY}total"
_UNSTABLE = frozenset({
    "uid", "resourceVersion", "creationTimestamp", "time", "requestReceivedTimestamp", "stageTimestamp", "token",
    "expirationTimestamp", "continue", "remainingItemCount", "startTime", "lastTransitionTime",
    "deletionTimestamp",
})  # fmt: skip
# binaries that are built for OpenShift add this source to the token volume
_CARRIED = {
    "configMap": {
        "name": "openshift-service-ca.crt",
        "items": [{"key": "service-ca.crt", "path": "service-ca.crt"}],
    }
}
_VERSIONED = ("buildDate", "compiler", "gitCommit", "gitTreeState", "gitVersion", "goVersion", "platform")


def stable(value: Any) -> Any:
    """Return a value without what differs between two servers."""
    if isinstance(value, dict):
        return {
            key: "*" if key in _UNSTABLE or key in _VERSIONED or key == _TOTAL else stable(entry)
            for key, entry in value.items()
            if not (key == "extra" and not entry) and not (key.startswith(_LATENCY) and key != _TOTAL)
        }
    if isinstance(value, list):
        return [stable(entry) for entry in value if entry != _CARRIED]
    if isinstance(value, str):
        value = re.sub(r"\b(g-)[a-z0-9]{5}\b", r"\1*", value)
        if re.fullmatch(r"\d+s", value):
            return "*"  # an age
        value = re.sub(r"(kube-api-access-)[a-z0-9]{5}", r"\1*", value)
        return re.sub(r"JTI=[-0-9a-f]{36}|[0-9a-f]{8}-[0-9a-f]{4}-[-0-9a-f]{22}|127\.0\.0\.1:\d+", "*", value)
    return value


@pytest.mark.parametrize("index", range(len(CALLS)), ids=[f"{call.method} {call.path}" for call in CALLS])
def test_events_are_those_of_kube_apiserver(events: tuple[list[list[JSON]], list[list[JSON]]], index: int):
    real, ours = (stable(logged[index]) for logged in events)
    assert [event["stage"] for event in ours] == [event["stage"] for event in real]
    for real_event, event in zip(real, ours, strict=True):
        assert event == real_event
