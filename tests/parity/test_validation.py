"""Pods, pod templates, policies and bindings with valid and invalid fields: the same responses as kube-apiserver.

Compares status, reason, message, causes with their order, warnings and the returned object, for a sample of the
mutations that `python -m support.comparison.differential` (in tests) can send. Not compared: generated names, and
requests with a wrong UID, because their message contains the actual one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from support.apiserver.http_api import ServerPair, server_pair
from support.comparison.differential import (
    Request,
    ValidObjects,
    compare,
    create_requests,
    create_valid_objects,
    delete_valid_objects,
    update_requests,
    valid_objects,
)
from support.comparison.mutations import combined, mutations, sends_empty

SEED = 20
DEVICE_GATES = "DRAListTypeAttributes=true,DRANodeAllocatableResources=true"
DEVICE_KINDS = ["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"]
TEMPLATES = [
    "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController", "PodTemplate"
]  # fmt: skip


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[ServerPair]:
    with server_pair(tmp_path_factory.mktemp("servers")) as servers:
        for server in (servers.real, servers.ours):  # the account of the valid pods
            response = server.request(
                "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "app"}}
            )
            assert response.status == 201
        yield servers


def _has_empty_claims(body: Any) -> bool:
    """Return True for an empty list that only kube-apiserver refuses, see docs/decisions.md."""
    return '"claims": []' in json.dumps(body)


def check_responses(servers: ServerPair, type_name: str, requests: list[Request]) -> None:
    comparable = [r for r in requests if "uid" not in (r.body.get("metadata") or {}) and not _has_empty_claims(r.body)]
    comparison = compare(servers.real, servers.ours, comparable)
    assert not comparison.differences, comparison.report()
    assert 0 < comparison.accepted < comparison.requests


def test_pod_creation_matches_kube_apiserver(servers):
    pods = valid_objects("Pod")
    check_responses(servers, pods.type, create_requests(pods, 600, random.Random(SEED)))


@pytest.mark.parametrize(
    "kind", [f"{prefix}AdmissionPolicy{suffix}" for prefix in ("Validating", "Mutating") for suffix in ("", "Binding")]
)
def test_admission_policy_creation_matches_kube_apiserver(servers, kind: str):
    policies = valid_objects(kind)
    requests = create_requests(policies, 150, random.Random(SEED))
    # syntax errors of expressions list the expected tokens, in other words
    check_responses(servers, policies.type, [r for r in requests if "xpression = " not in r.description])


@pytest.fixture(scope="module")
def servers_with_device_gates(tmp_path_factory) -> Iterator[ServerPair]:
    with server_pair(tmp_path_factory.mktemp("devices"), {"feature-gates": DEVICE_GATES}) as servers:
        yield servers


def check_devices(servers: ServerPair, type_name: str, requests: list[Request]) -> None:
    """Compare requests, but those with empty lists or adminAccess: see docs/decisions.md."""
    compared = [r for r in requests if not sends_empty(type_name, r.body) and "adminAccess" not in json.dumps(r.body)]
    check_responses(servers, type_name, compared)


@pytest.mark.parametrize("kind", DEVICE_KINDS)
def test_device_kind_creation_matches_kube_apiserver(servers_with_device_gates, kind: str):
    devices = valid_objects(kind)
    requests = create_requests(devices, 400, random.Random(SEED))
    check_devices(servers_with_device_gates, devices.type, requests)


@pytest.mark.parametrize(("kind", "subresource"), [*((kind, "") for kind in DEVICE_KINDS), ("ResourceClaim", "status")])
def test_device_kind_update_matches_kube_apiserver(servers_with_device_gates, kind: str, subresource: str):
    devices, pair = valid_objects(kind), (servers_with_device_gates.real, servers_with_device_gates.ours)
    for server in pair:
        create_valid_objects(server, devices)
    try:
        requests = update_requests(devices, 200, random.Random(SEED), subresource=subresource)
        check_devices(servers_with_device_gates, devices.type, requests)
    finally:
        for server in pair:
            delete_valid_objects(server, devices)


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_admin_access_matches_kube_apiserver(servers_with_device_gates, kind: str):
    """A label of the namespace allows it; the namespaces of the requests have no or an invalid one, and the label."""
    devices = valid_objects(kind)
    spec = {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu", "adminAccess": True}}]}}
    body = {"metadata": {"name": "x"}, "spec": spec if kind == "ResourceClaim" else {"spec": spec}}
    label = "resource.kubernetes.io/admin-access"
    for server in (servers_with_device_gates.real, servers_with_device_gates.ours):
        for name, value in (("unlabelled", "no"), ("labelled", "true")):
            namespace = {"metadata": {"name": name, "labels": {label: value}}}
            assert server.request("POST", "/api/v1/namespaces", namespace).status in (201, 409)
    requests = [
        Request("POST", f"{devices.path.replace('default', name)}?dryRun=All", body, f"create in {name}")
        for name in ("default", "unlabelled", "labelled")
    ]
    check_responses(servers_with_device_gates, devices.type, requests)


@pytest.mark.parametrize("kind", TEMPLATES)
def test_pod_template_creation_matches_kube_apiserver(servers, kind: str):
    workloads = valid_objects(f"{kind}/template")
    check_responses(servers, workloads.type, create_requests(workloads, 120, random.Random(SEED)))


def with_admitted_fields(pods: ValidObjects) -> ValidObjects:
    """Return pods that ServiceAccount admission does not change, so that they can be sent as updates."""
    admitted = {"automountServiceAccountToken": False, "serviceAccountName": "default"}
    return replace(pods, objects=tuple({**pod, "spec": {**admitted, **pod["spec"]}} for pod in pods.objects))


@pytest.mark.parametrize("subresource", ["", "status", "resize", "ephemeralcontainers"])
def test_pod_update_matches_kube_apiserver(servers, subresource: str):
    pods = with_admitted_fields(valid_objects("Pod"))
    for server in (servers.real, servers.ours):
        create_valid_objects(server, pods)
    try:
        requests = update_requests(pods, 200, random.Random(SEED), subresource=subresource)
        check_responses(servers, pods.type, requests)
    finally:
        for server in (servers.real, servers.ours):
            delete_valid_objects(server, pods)


def test_pod_binding_matches_kube_apiserver(servers):
    pods, rng = valid_objects("Pod"), random.Random(SEED)
    for server in (servers.real, servers.ours):
        create_valid_objects(server, pods)
    base = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "plain", "labels": {"a": "b"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }
    single = [mutation for mutation in mutations("core/v1.Binding", base) if mutation.path[-1] != "resourceVersion"]
    sample = [*rng.sample(single, 150), *combined(single, base, rng, 50)]
    path = f"{pods.path}/plain/binding?dryRun=All"
    requests = [Request("POST", path, m.changed, f"bind: {m}", m.field) for m in sample]
    try:
        requests = [request for request in requests if "resourceVersion" not in str(request.body)]
        check_responses(servers, "core/v1.Binding", requests)
    finally:
        for server in (servers.real, servers.ours):
            delete_valid_objects(server, pods)


def test_pod_template_update_matches_kube_apiserver(servers):
    workloads = valid_objects("Deployment/template")
    for server in (servers.real, servers.ours):
        create_valid_objects(server, workloads)
    check_responses(servers, workloads.type, update_requests(workloads, 200, random.Random(SEED)))
