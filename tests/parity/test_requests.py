"""Requests with unusual paths, options and bodies: the same responses as kube-apiserver.

Compares status, content type, warnings and body, without what each server generates: UIDs, times, resource versions,
continue tokens, names. After the declared requests follow objects of every kind but pods and workloads with one or
several wrong fields (those with pod templates are in test_validation.py).
"""

from __future__ import annotations

import json
import random
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.apiserver.http_api import JSON_TYPE, HttpApi, ServerPair, response_when_served, server_pair
from support.comparison.custom_resource_requests import Step
from support.comparison.differential import (
    compare,
    create_requests,
    create_valid_objects,
    delete_valid_objects,
    same_but_for_order,
    update_requests,
    valid_objects,
)
from support.comparison.same_responses import Request, check_responses
from support.objects.certificate_requests import certificate, signing_request
from support.objects.token_volumes import masked_token_volumes
from support.objects.yaml_files import read_document

SEED = 20
REQUESTS = Path(__file__).parent.parent / "support" / "requests"
KINDS = """
Deployment ReplicaSet StatefulSet DaemonSet ControllerRevision ReplicationController PodTemplate Job CronJob Service
Endpoints EndpointSlice Ingress IngressClass NetworkPolicy IPAddress ServiceCIDR Node Namespace ConfigMap Secret
ServiceAccount LimitRange ResourceQuota Event PriorityClass PodDisruptionBudget Lease RuntimeClass
HorizontalPodAutoscaler HorizontalPodAutoscaler/v1 Role ClusterRole RoleBinding ClusterRoleBinding
PersistentVolume PersistentVolumeClaim StorageClass VolumeAttachment CSINode CSIDriver CSIStorageCapacity
VolumeAttributesClass
""".split()  # noqa: SIM905 - forty names
WITH_STATUS = """
CronJob DaemonSet Deployment HorizontalPodAutoscaler Ingress Job Node PersistentVolume PersistentVolumeClaim
PodDisruptionBudget ReplicaSet ReplicationController ResourceQuota Service ServiceCIDR StatefulSet VolumeAttachment
""".split()  # noqa: SIM905 - as above


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[ServerPair]:
    flags = {"service-cluster-ip-range": "10.0.0.0/24"}
    with server_pair(tmp_path_factory.mktemp("servers"), flags) as servers:
        yield servers


@pytest.fixture(scope="module")
def namespace(servers) -> str:
    """Create the namespace "odd" with the objects that the requests refer to, and the terminating namespace "going"."""
    path = "/api/v1/namespaces/odd"
    setup = [Request("POST", "/api/v1/namespaces", {"metadata": {"name": name}}) for name in ("odd", "going")]
    setup.append(Request("POST", f"{path}/serviceaccounts", {"metadata": {"name": "robot"}}))
    setup.append(Request("POST", f"{path}/secrets", {"metadata": {"name": "s"}}))
    setup.append(Request("POST", "/api/v1/nodes", {"metadata": {"name": "n"}}))
    for name, spec in PODS.items():
        body = {"metadata": {"name": name}, "spec": {"automountServiceAccountToken": False, **spec}}
        setup.append(Request("POST", f"{path}/pods", body))
    finalized = {"metadata": {"name": "a", "finalizers": ["a.b/c"]}}
    setup.append(Request("POST", "/api/v1/namespaces/going/configmaps", finalized))
    setup.append(Request("DELETE", "/api/v1/namespaces/going"))
    for name in "abcd":
        body = {"metadata": {"name": name, "labels": {"x": name}, "finalizers": ["a.b/c"]}, "data": {"k": name}}
        setup.append(Request("POST", f"{path}/configmaps", body))
    setup.append(Request("POST", "/apis/apps/v1/namespaces/odd/deployments", DEPLOYMENT))
    check_responses(servers, setup)
    definition = yaml.safe_load((REQUESTS.parent / "comparison/scaled_sets.yaml").read_text())
    for server in (servers.real, servers.ours):
        server.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        for _ in range(100):  # kube-apiserver serves a new definition with a delay
            if server.request("GET", "/apis/scaled.example.com/v1/sets").status == 200:
                break
            time.sleep(0.1)
    return "odd"


DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "ports": [{"containerPort": 80, "protocol": "TCP"}],
                        "env": [{"name": "A", "value": "1"}],
                    }
                ],
                "tolerations": [{"key": "k", "operator": "Exists"}],
            },
        },
    },
}


CONTAINER = {"name": "c", "image": "i"}
PODS = {
    "p": {"serviceAccountName": "robot", "containers": [CONTAINER]},
    "other": {"containers": [CONTAINER]},
    "two": {"initContainers": [{"name": "i", "image": "i"}], "containers": [CONTAINER, {"name": "e", "image": "i"}]},
}


def read_requests() -> dict[str, list[Request]]:
    """Return the requests of tests/support/requests by their topic."""
    requests: dict[str, list[Request]] = {}
    for file in sorted(REQUESTS.glob("*.yaml")):
        for group in read_document(file):
            combinations = product(
                [group["verb"]],
                group["paths"],
                group.get("bodies", [None]),
                group.get("content_types", [JSON_TYPE]),
                group.get("accepts", [JSON_TYPE]),
            )
            requests.setdefault(group["about"], []).extend(Request(*fields) for fields in combinations)
    return requests


DECLARED = read_requests()


@pytest.mark.parametrize("topic", DECLARED)
def test_declared_requests_match_kube_apiserver(servers, namespace, topic: str):
    check_responses(servers, DECLARED[topic])


def test_watch_options_match_kube_apiserver(servers, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps?watch=1&timeoutSeconds=1"
    initial_events = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    options = [
        "sendInitialEvents=true",
        "sendInitialEvents=true&resourceVersionMatch=Exact",
        "sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=NotOlderThan&resourceVersion=1",
        "resourceVersion=abc",
        "resourceVersion=-1",
        "fieldSelector=foo=bar",
        f"{initial_events}&resourceVersion=abc",
        "fieldSelector=metadata.name=b&resourceVersion=0",
    ]
    check_responses(servers, [Request("GET", f"{path}&{option}") for option in options])


@pytest.mark.parametrize("kind", KINDS)
def test_objects_of_every_kind_match_kube_apiserver(servers, kind: str):
    """Send created objects, updates and status updates. The order of several causes is not compared."""
    valid, rng = valid_objects(kind), random.Random(SEED)
    created = compare(servers.real, servers.ours, create_requests(valid, 40, rng))
    for server in (servers.real, servers.ours):
        create_valid_objects(server, valid)
    try:
        updates = update_requests(valid, 30, rng)
        if kind in WITH_STATUS:
            updates += update_requests(valid, 15, rng, subresource="status")
        updated = compare(servers.real, servers.ours, updates)
    finally:
        for server in (servers.real, servers.ours):
            delete_valid_objects(server, valid)
    for comparison in (created, updated):
        comparison.differences = [d for d in comparison.differences if not same_but_for_order(d.real, d.ours)]
        assert not comparison.differences, comparison.report()
    assert created.accepted


# --- OpenAPI ----------------------------------------------------------------------------------------------------------

IGNORED_FIELDS = ("description", "nullable")
"""Descriptions come from the installed client library or are our own; only our documents declare nullable values."""


def structure(value: Any, shared_parameters: Any) -> Any:
    """Return an OpenAPI document without ignored fields, with shared parameters inlined.

    The names of shared parameters are derived from their descriptions.
    """
    if type(value) is list:
        return [structure(item, shared_parameters) for item in value]
    if type(value) is not dict:
        return value
    if str(value.get("$ref", "")).startswith("#/parameters/"):
        return structure(shared_parameters[value["$ref"].removeprefix("#/parameters/")], shared_parameters)
    for keyword in ("allOf", "anyOf"):
        if set(value) - set(IGNORED_FIELDS) == {keyword} and "$ref" in value[keyword][0]:
            value = value[keyword][0]  # a reference with nothing added; or a Status, or its alternative
    return {
        name: structure(inner, shared_parameters)
        for name, inner in value.items()
        if name not in IGNORED_FIELDS or type(inner) is dict
    }


def differences(real: Any, ours: Any, path: str = "") -> Iterator[str]:
    if type(real) is dict and type(ours) is dict:
        for name in {**real, **ours}:
            yield from differences(real.get(name), ours.get(name), f"{path} {name}")
    elif real != ours:
        yield f"{path}\n  real {str(real)[:300]}\n  ours {str(ours)[:300]}"


@pytest.mark.usefixtures("namespace")
def test_openapi_structure_matches_kube_apiserver(servers):
    """Compare paths, operations, parameters, bodies, responses and types in every document of both versions."""

    def document(server: HttpApi, path: str) -> Any:
        content = server.request("GET", path).content
        return json.loads(content) if type(content) is str else content

    index = document(servers.ours, "/openapi/v3")["paths"]
    for _ in range(50):  # kube-apiserver publishes custom resources with a delay
        if (real_names := document(servers.real, "/openapi/v3")["paths"].keys()) == index.keys():
            break
        time.sleep(0.1)
    assert index.keys() == real_names
    different = []
    # kube-apiserver declares OpenID documents as strings, our version 3 as the objects that they are
    names = [name for name in index if "openid" not in name]
    for path in ("/openapi/v2", *(f"/openapi/v3/{name}" for name in names)):
        documents = (document(server, path) for server in (servers.real, servers.ours))
        real, ours = (structure({**content, "parameters": {}}, content.get("parameters")) for content in documents)
        different += [f"{path}{difference}" for difference in differences(real, ours)]
    assert not different, "\n".join(different)


# --- custom resources whose definition is wrong or has changed --------------------------------------------------------

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(plural: str, *versions: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.x.io"},
        "spec": {
            "group": "x.io",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.capitalize()},
            "versions": [*versions],
        },
    }


def version(name: str, *, storage: bool = True, **fields: Any) -> dict[str, Any]:
    spec = {"type": "object", "properties": {"size": {"type": "integer"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": spec}}}
    return {"name": name, "served": True, "storage": storage, "schema": schema, **fields}


def define(servers: ServerPair, defined: dict[str, Any], path: str, stored: list[str] | None = None) -> None:
    """Create or replace a definition on both servers, with these storedVersions, and wait until `path` is served."""
    named = f"{DEFINITIONS}/{defined['metadata']['name']}"
    for server in (servers.real, servers.ours):
        if server.request("POST", DEFINITIONS, defined).status == 409:
            status = [("/status", {"status": {"storedVersions": stored}})] if stored else []
            for part, patch in (("", {"spec": defined["spec"]}), *status):
                response = server.request("PATCH", f"{named}{part}", patch, "application/merge-patch+json")
                assert response.status == 200, response.content
        response_when_served(server, Step("", "GET", path))
    time.sleep(2.0)  # kube-apiserver closes the storage of the old definition


def test_misspelt_scale_path_is_like_kube_apiserver(servers):
    scale = {"specReplicasPath": ".spec.sise", "statusReplicasPath": ".status.size"}
    objects = "/apis/x.io/v1/namespaces/default/misspelt"
    define(servers, definition("misspelt", version("v1", subresources={"status": {}, "scale": scale})), objects)
    body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 5}}
    path, merge = f"{objects}/a/scale", "application/merge-patch+json"
    new = {"apiVersion": "x.io/v1", "kind": "Misspelt", "metadata": {"name": "a"}, "spec": {"size": 3}}
    check_responses(
        servers,
        [
            Request("POST", objects, new),
            Request("GET", path),
            Request("PUT", path, body),
            Request("GET", path),
            Request("GET", f"{objects}/a"),
            Request("PATCH", path, {"spec": {"replicas": 7}}, merge),
            Request("PATCH", path, {"metadata": {"labels": {}}}, merge),
            Request("PUT", path, {**body, "spec": {"replicas": -5}}),
            Request("PUT", f"{path}?dryRun=All", {**body, "spec": {"replicas": 5, "x": 1}}),
            Request("GET", f"{objects}/a"),
        ],
    )


def test_objects_of_a_removed_version_are_like_kube_apiserver(servers):
    """An upgrade without a migration of the stored objects: they can be neither read nor deleted."""
    objects = "/apis/x.io/v1/namespaces/default/olds"
    define(servers, definition("olds", version("v1beta1")), objects.replace("v1", "v1beta1"))
    new = {"apiVersion": "x.io/v1beta1", "kind": "Olds", "metadata": {"name": "a"}, "spec": {"size": 3}}
    check_responses(servers, [Request("POST", objects.replace("v1", "v1beta1"), new)])
    define(servers, definition("olds", version("v1beta1", storage=False), version("v1")), objects, ["v1"])
    check_responses(servers, [Request("GET", f"{objects}/a")])
    define(servers, definition("olds", version("v1")), objects)
    fresh = {**new, "apiVersion": "x.io/v1"}
    requests = [
        Request("GET", f"{objects}/a"),
        Request("GET", objects),
        Request("GET", f"{objects}?limit=1"),
        Request("GET", f"{objects}?resourceVersion=0"),
        Request("GET", f"{objects}?watch=1&timeoutSeconds=1"),
        Request("GET", f"{objects.replace('default', 'other')}?limit=1"),
        Request("DELETE", f"{objects}/a"),
        Request("DELETE", objects),
        Request("PUT", f"{objects}/a", fresh),
        Request("PATCH", f"{objects}/a", {"spec": {"size": 4}}, "application/merge-patch+json"),
        Request("POST", objects, fresh),
        Request("POST", objects, {**fresh, "metadata": {"name": "fresh"}}),
        Request("GET", f"{objects}/fresh"),
        Request("GET", objects),
    ]
    check_responses(servers, requests)
    check_responses(servers, [Request("DELETE", f"{DEFINITIONS}/olds.x.io")])
    for server in (servers.real, servers.ours):
        for _ in range(100):
            conditions = server.request("GET", f"{DEFINITIONS}/olds.x.io").content["status"]["conditions"]
            if conditions[-1]["reason"] == "InstanceDeletionFailed":
                break
            time.sleep(0.1)
        assert conditions[-1]["message"].startswith("could not list instances: storage is (re)initializing: failed")


# --- forms and parameters of requests ---------------------------------------------------------------------------------

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARAMETERS = (
    "timeout=invalid", "timeout=5", "timeout=-1s", "timeout=1s", "timeoutSeconds=x", "timeoutSeconds=-1", "limit=x",
    "limit=-1", "continue=x", "resourceVersion=x", "resourceVersionMatch=x", "allowWatchBookmarks=x", "dryRun=x",
    "sendInitialEvents=x", "fieldSelector=x", "fieldManager=%01", "fieldValidation=x", "force=x", "pretty=x",
    "gracePeriodSeconds=x", "propagationPolicy=x", "orphanDependents=x", "unknown=1",
)  # fmt: skip


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_parameters_of_every_verb_match_kube_apiserver(servers, namespace, parameter: str):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    new = {"metadata": {"name": "sent"}}
    merge, apply = "application/merge-patch+json", "application/apply-patch+yaml"
    config = {"apiVersion": "v1", "kind": "ConfigMap", **new}
    requests = [
        Request("GET", f"{path}?{parameter}"),
        Request("GET", f"{path}/a?{parameter}"),
        Request("POST", f"{path}?{parameter}", new),
        Request("PUT", f"{path}/sent?{parameter}", new),
        Request("PATCH", f"{path}/sent?{parameter}", {"data": {"a": "b"}}, merge),
        Request("PATCH", f"{path}/sent?{parameter}", config, apply),
        Request("DELETE", f"{path}/sent?{parameter}"),
        Request("DELETE", f"/api/v1/namespaces/{namespace}/podtemplates?{parameter}"),
        Request("DELETE", f"{path}/sent"),
    ]
    check_responses(servers, [request._replace(path=request.path.replace("%01", "\x01")) for request in requests])


@pytest.mark.parametrize(
    "accept", [TABLE, f"{TABLE},application/json", TABLE.replace("Table", "PartialObjectMetadata")]
)
def test_forms_of_subresources_match_kube_apiserver(servers, namespace, accept: str):
    path = f"/api/v1/namespaces/{namespace}/pods/other"
    requests = [
        Request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}}),
        Request("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": "odd"}}),
        Request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/robot/token", {"spec": {}}),
        Request("POST", f"{path}/binding?dryRun=All", {"metadata": {"name": "other"}, "target": {"name": "n"}}),
        Request("POST", f"{path}/eviction?dryRun=All", {"metadata": {"name": "other"}}),
        Request("GET", f"{path}/status"),
        Request("GET", "/apis/apps/v1/namespaces/odd/deployments/d/scale"),
    ]
    check_responses(servers, [request._replace(accept=accept) for request in requests])


def test_strict_errors_are_in_the_order_of_kube_apiserver(servers, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All&fieldValidation="
    body = (
        '{"kind":"ConfigMap","apiVersion":"v1","x":1,"metadata":{"name":"q","y":1,"name":"q","labels":{"a":"b","a":"c"}},'
        '"data":{"a":"1","a":"2"},"z":1,"x":2,"data":{}}'
    )
    check_responses(servers, [Request("POST", f"{path}{mode}", body) for mode in ("Strict", "Warn", "Ignore")])


FORMS = {
    "application/merge-patch+json": [
        '{"x":1,"metadata":{"y":1,"labels":{"a":"b","a":"c"},"u":1},"z":1,"x":2,"b":1}',
        '{"spec":{"zz":1,"size":1,"size":2,"aa":3},"c":1,"spec":{"color":"x","b":1}}',
    ],
    "application/strategic-merge-patch+json": ['{"x":1,"metadata":{"y":1,"labels":{"a":"b","a":"c"}},"b":1,"x":2}'],
    "application/json-patch+json": [
        '[{"op":"add","path":"/zz","value":1,"x":1,"op":"add"},{"op":"add","y":1,"path":"/a","value":{"c":1}}]'
    ],
}


def test_strict_errors_of_patches_are_in_the_order_of_kube_apiserver(servers, namespace):
    sets = f"/apis/scaled.example.com/v1/namespaces/{namespace}/sets"
    names = {"kind": "Set", "apiVersion": "scaled.example.com/v1", "metadata": {"name": "strict"}}
    scale = (
        '{"kind":"Scale","apiVersion":"autoscaling/v1","x":1,"metadata":{"name":"strict","namespace":"odd","y":1},'
        '"spec":{"replicas":1,"replicas":2,"z":1},"a":1}'
    )
    custom = (
        '{"kind":"Set","apiVersion":"scaled.example.com/v1","x":1,"metadata":{"name":"q","y":1,"name":"q"},'
        '"spec":{"zz":1,"size":1,"size":2},"z":1,"x":2,"spec":{"color":"x","b":1}}'
    )
    config = '{"kind":"ConfigMap","apiVersion":"v1","x":1,"metadata":{"name":"q","y":1,"name":"q"},"z":1,"b":2}'
    requests = [Request("POST", sets, {**names, "spec": {"size": 1}})]
    for mode in ("Strict", "Warn", "Ignore"):
        options = f"?dryRun=All&fieldValidation={mode}"
        for form, patches in FORMS.items():
            for path in (f"{sets}/strict", f"{sets}/strict/scale", f"/api/v1/namespaces/{namespace}/configmaps/a"):
                requests += [Request("PATCH", path + options, patch, form) for patch in patches]
        for media_type in (JSON_TYPE, "application/yaml"):
            requests.append(Request("POST", sets + options, custom, media_type))
            requests.append(Request("PUT", f"{sets}/strict/scale{options}", scale, media_type))
            requests.append(Request("POST", f"/api/v1/namespaces/{namespace}/configmaps{options}", config, media_type))
    check_responses(servers, requests)


def test_approval_of_a_signing_request_matches_kube_apiserver(servers):
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    spec = signing_request(signer="example.com/signer", usages=["client auth"])["spec"]
    approved = {"type": "Approved", "status": "True", "reason": "r", "lastUpdateTime": "2026-01-01T00:00:00Z"}
    merge = "application/merge-patch+json"
    conditions = [{"type": "Approved", "status": "True", "reason": "other"}, {"type": "Mine", "status": "True"}]
    check_responses(
        servers,
        [
            Request("POST", path, {"metadata": {"name": "c"}, "spec": spec}),
            Request(
                "PATCH",
                f"{path}/c/approval",
                {"metadata": {"labels": {"a": "b"}}, "status": {"conditions": [approved], "certificate": "eA=="}},
                merge,
            ),
            Request("PATCH", f"{path}/c/approval", {"metadata": {"finalizers": ["a.b/c"]}}, merge),
            Request("PATCH", f"{path}/c/status", {"status": {"conditions": conditions}}, merge),
            Request("GET", f"{path}/c"),
        ],
    )


def test_invalid_signing_requests_match_kube_apiserver(servers):
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    valid = signing_request(signer="example.com/signer")["spec"]
    specs: list[dict[str, Any]] = [
        {},
        {"request": ""},
        {"request": b64encode(b"x").decode()},
        {"request": certificate(datetime(2030, 1, 1, tzinfo=UTC))},
        {"usages": []},
        {"usages": ["client auth", "x", "client auth", "s/mime", "x"]},
        *({"signerName": name} for name in ("", "a", "a/b", "A.b/c", "a.b/c/d", "a.b/C", f"{'a.' * 130}b/c", "a.b/")),
        {"signerName": "kubernetes.io/legacy-unknown"},
        {"expirationSeconds": 599},
        {"expirationSeconds": 600},
    ]
    requests = [
        Request("POST", f"{path}?dryRun=All", {"metadata": {"name": "A:1"}, "spec": {**valid, **spec} if spec else {}})
        for spec in specs
    ]
    stored = [
        Request("POST", path, {"metadata": {"name": "invalid"}, "spec": valid}),
        Request("PATCH", f"{path}/invalid/status", {"status": {"conditions": [CONDITION]}}, MERGE_PATCH),
    ]
    pem = certificate(datetime(2030, 1, 1, tzinfo=UTC))
    conditions: list[list[dict[str, str]]] = [
        [{"type": "", "status": ""}],
        [{"type": "Approved", "status": "False"}],
        [{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}],
        [{"type": "Approved", "status": "True"}, {"type": "Approved", "status": "True"}],
        [{"type": "X", "status": "x"}, {"type": "X", "status": "True"}],
        [],
    ]
    statuses: list[dict[str, Any]] = [{"conditions": [CONDITION, *more] if more else []} for more in conditions]
    texts = (b"x", b"-----BEGIN X-----\n-----END X-----\n", b64decode(pem), b64decode(pem) + b"x")
    statuses += [{"certificate": b64encode(text).decode()} for text in texts]
    writes = [
        (subresource, status) for status in statuses for subresource in ("status?dryRun=All", "approval?dryRun=All")
    ]
    writes += [("status", {"certificate": text}) for text in (pem, None)]
    stored += [Request("PATCH", f"{path}/invalid/{name}", {"status": status}, MERGE_PATCH) for name, status in writes]
    check_responses(servers, [*requests, *stored])


CONDITION = {"type": "Failed", "status": "True"}
MERGE_PATCH = "application/merge-patch+json"


def test_applied_objects_have_the_bytes_of_kube_apiserver(servers, namespace):
    """Field sets, labels and data, which clients in Go see as they are sent."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/sorted?fieldManager="
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sorted", "labels": {"b": "", "a": ""}}}
    apply = "application/apply-patch+yaml"
    sent = []
    for server in (servers.real, servers.ours):
        server.request("PATCH", f"{path}one", {**config, "data": {"z": "1", "b": "2"}}, apply)
        content = server.request("PATCH", f"{path}two", {**config, "data": {"y": "1", "a": "2"}}, apply).content
        metadata = content["metadata"]
        fields = [entry["fieldsV1"] for entry in sorted(metadata["managedFields"], key=lambda entry: entry["manager"])]
        sent.append(json.dumps([content["data"], metadata["labels"], fields]))
    assert sent[0] == sent[1]


_GENERATED = re.compile(rb'(?<=:)"(?:[0-9a-f-]{36}|\d+|\d{4}-[0-9T:-]+Z)"')


def test_custom_resources_have_the_bytes_of_kube_apiserver(servers, namespace):
    path = f"/apis/scaled.example.com/v1/namespaces/{namespace}/sets"
    other_version, merge = path.replace("/v1/", "/v2/"), "application/merge-patch+json"
    metadata = {"name": "bytes", "labels": {"b": "", "a": ""}, "annotations": {"z": "1", "c": "2"}}
    names = {"kind": "Set", "metadata": metadata, "apiVersion": "scaled.example.com/v1"}
    free = {**names, "apiVersion": "scaled.example.com/v2", "data": {"z": {"y": 1, "b": 2}, "a": [{"q": 1, "c": 2}]}}
    initial = "watch=1&timeoutSeconds=1&allowWatchBookmarks=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan"
    requests = [
        Request("POST", f"{path}?dryRun=All", {**names, "spec": {"size": 1, "color": "x"}}),
        Request("POST", path, {**names, "spec": {"size": 1, "color": "x"}}),
        Request("PUT", f"{other_version}/bytes?dryRun=All", free),
        Request("PATCH", f"{path}/bytes", {"metadata": {"labels": {"0": "x"}}, "spec": {"size": 2}}, merge),
        *(Request("GET", f"{collection}{end}") for collection in (path, other_version) for end in ("/bytes", "")),
        *(Request("GET", f"{collection}?{initial}") for collection in (path, other_version)),
        Request("GET", path, accept="application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"),
        Request("GET", f"{path}/bytes/scale"),
        Request("DELETE", path),
    ]
    for request in requests:
        contents = [
            _GENERATED.sub(b'""', server.request(request.method, request.path, request.body, *request[3:]).body)
            for server in (servers.real, servers.ours)
        ]
        assert contents[0] == contents[1], request


def test_maps_that_the_server_extends_have_the_order_of_kube_apiserver(servers, namespace):
    container = {"name": "c", "image": "i", "resources": {"limits": {"memory": "1", "cpu": "1"}, "requests": {}}}
    pod = {"metadata": {"labels": {"z": "1", "a": "2"}}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"metadata": {"name": "sorted"}, "spec": {"template": pod}}
    space = {"metadata": {"name": "ordered", "labels": {"z": "1", "a": "2"}}}
    for path, body in (
        ("/api/v1/namespaces?dryRun=All", space),
        (f"/apis/batch/v1/namespaces/{namespace}/jobs?dryRun=All", job),
        (f"/api/v1/namespaces/{namespace}/pods?dryRun=All", {**pod, "metadata": {"name": "sorted", **pod["metadata"]}}),
    ):
        contents = [server.request("POST", path, body).content for server in (servers.real, servers.ours)]
        real, ours = (_maps(masked_token_volumes(content)) for content in contents)
        assert real == ours, path


def _maps(content: Any) -> Any:
    """Return the keys, in order, of the maps of labels and quantities."""
    if isinstance(content, list):
        return [_maps(item) for item in content]
    if not isinstance(content, dict):
        return None
    maps = ("labels", "matchLabels", "limits", "requests")
    return {name: [*value] if name in maps else _maps(value) for name, value in content.items()}
