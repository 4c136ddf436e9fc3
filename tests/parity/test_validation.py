"""Pods and pod templates, right and wrong in every field, sent to a real kube-apiserver and to ours: the same answers.

Status, reason, message, causes in their order, warnings, and the object that comes back. A sample; `python -m
support.differential` (in tests) compares as many as one likes. Not compared: fields whose value is a matter of chance
(names out of generateName), and uids that are wrong (their message holds the right one).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from support.apiserver_process import TOKEN, apiserver_command, running_apiserver_sync
from support.differential import (
    ApiServer,
    Request,
    compare,
    create_for_real,
    creations,
    delete_for_real,
    updates,
    valid_objects,
)
from support.mutations import combined, mutations
from support.real_apiserver import needs_binaries, real_apiserver

SEED = 20
TEMPLATES = [
    "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController", "PodTemplate"
]  # fmt: skip


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[tuple[ApiServer, ApiServer]]:
    """A kube-apiserver, and ours."""
    needs_binaries()
    folder = tmp_path_factory.mktemp("beside")
    with real_apiserver(folder / "real") as kubernetes, running_apiserver_sync(apiserver_command(folder)) as (url, _):
        real, ours = ApiServer.from_kubeconfig(kubernetes.kubeconfig), ApiServer(url, TOKEN)
        yield real, ours
        real.close()
        ours.close()


def _refused_empty(body: Any) -> bool:
    """Has it an empty list that a kube-apiserver alone refuses? See docs/decisions.md."""
    return '"claims": []' in json.dumps(body)


def agree(servers: tuple[ApiServer, ApiServer], type_name: str, requests: list[Request]) -> None:
    comparable = [r for r in requests if "uid" not in (r.body.get("metadata") or {}) and not _refused_empty(r.body)]
    outcome = compare(*servers, comparable)
    assert not outcome.differences, outcome.report()
    assert 0 < outcome.accepted < outcome.asked


def test_new_pods_are_answered_alike(servers):
    pods = valid_objects("Pod")
    agree(servers, pods.type, creations(pods, 600, random.Random(SEED)))


@pytest.mark.parametrize(
    "kind", [f"{way}AdmissionPolicy{what}" for way in ("Validating", "Mutating") for what in ("", "Binding")]
)
def test_new_admission_policies_are_answered_alike(servers, kind: str):
    policies = valid_objects(kind)
    requests = creations(policies, 150, random.Random(SEED))
    # texts that are no expressions: what else could have stood there is told in other words
    agree(servers, policies.type, [each for each in requests if "xpression = " not in each.what])


@pytest.mark.parametrize("kind", TEMPLATES)
def test_new_pod_templates_are_answered_alike(servers, kind: str):
    workloads = valid_objects(f"{kind}/template")
    agree(servers, workloads.type, creations(workloads, 120, random.Random(SEED)))


@pytest.mark.parametrize("subresource", ["", "status", "resize", "ephemeralcontainers"])
def test_changed_pods_are_answered_alike(servers, subresource: str):
    pods = valid_objects("Pod")
    for server in servers:
        create_for_real(server, pods)
    try:
        agree(servers, pods.type, updates(pods, 200, random.Random(SEED), subresource=subresource))
    finally:
        for server in servers:
            delete_for_real(server, pods)


def test_bindings_are_answered_alike(servers):
    pods, chance = valid_objects("Pod"), random.Random(SEED)
    for server in servers:
        create_for_real(server, pods)
    base = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "plain", "labels": {"a": "b"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }
    single = [each for each in mutations("core/v1.Binding", base) if each.path[-1] != "resourceVersion"]
    every = [*chance.sample(single, 150), *combined(single, base, chance, 50)]
    path = f"{pods.path}/plain/binding?dryRun=All"
    requests = [Request("POST", path, each.changed, f"bind: {each}", each.field) for each in every]
    try:
        agree(servers, "core/v1.Binding", [each for each in requests if "resourceVersion" not in str(each.body)])
    finally:
        for server in servers:
            delete_for_real(server, pods)


def test_changed_pod_templates_are_answered_alike(servers):
    workloads = valid_objects("Deployment/template")
    for server in servers:
        create_for_real(server, workloads)
    agree(servers, workloads.type, updates(workloads, 200, random.Random(SEED)))
