"""Pods of an owner for `kubeloop explain`."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.kube.objects.resources import NAMESPACES
from kubeloop.kube.user_error import UserError
from kubeloop.process.endpoint.owner_pods import cron_job_runs, find_owner, first_pending, owner_document, pods_of
from kubeloop.process.endpoint.trace_targets import Target
from support.apiserver.fake_apiserver import FakeApiServer
from support.objects.batch_objects import create_cron_job, create_job


def pod(name: str, kind: str, owner: str, *, namespace: str = "ns", labels: Any = None, **fields: Any) -> Pod:
    """kind, owner: of the controller. fields: further top-level fields of the pod."""
    reference = {"kind": kind, "name": owner, "controller": True}
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}, "ownerReferences": [reference]}
    return convert(Pod, {"metadata": metadata | fields.pop("metadata", {}), **fields})


PODS = [
    pod("db-1", "StatefulSet", "db"),
    pod("db-0", "StatefulSet", "db", spec={"nodeName": "n"}),
    pod("elsewhere", "StatefulSet", "db", namespace="other"),
    pod("web-5f-a", "ReplicaSet", "web-5f", labels={"pod-template-hash": "5f"}),
    pod("nightly-1-a", "Job", "nightly-1"),
    convert(Pod, {"metadata": {"name": "alone", "namespace": "ns"}}),
]


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("statefulset", "db", ["db-0", "db-1"]),
        ("deployment", "web", ["web-5f-a"]),
        ("replicaset", "web-5f", ["web-5f-a"]),
        ("replicasets", "web-5f", ["web-5f-a"]),
        ("job", "nightly-1", ["nightly-1-a"]),
    ],
)
def test_pods_of_an_owner(kind: str, name: str, expected: list[str]):
    assert [pod.metadata.name for pod in pods_of(Target(kind, name, "ns"), PODS)] == expected


def test_pods_of_a_cron_job_are_those_of_its_jobs():
    pods = pods_of(Target("cronjob", "nightly", "ns"), PODS, frozenset({"nightly-1", "nightly-2"}))
    assert [pod.metadata.name for pod in pods] == ["nightly-1-a"]


def test_owner_without_pods_is_an_error():
    with pytest.raises(UserError, match="daemonset ns/agent has no pods") as raised:
        pods_of(Target("daemonset", "agent", "ns"), PODS)
    assert raised.value.hint.startswith("kubectl describe daemonset/agent -n ns")


def test_pending_pods_are_neither_bound_nor_ended():
    pods = [
        pod("bound", "Job", "j", spec={"nodeName": "n"}),
        pod("failed", "Job", "j", status={"phase": "Failed"}),
        pod("deleted", "Job", "j", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        pod("pending", "Job", "j"),
    ]
    assert first_pending(pods) is pods[-1]
    assert first_pending(pods[:-1]) is None
    assert owner_document(Target("job", "j", "ns"), pods) == {"owner": {"name": "job ns/j", "pods": 4, "pending": 1}}


async def test_runs_of_a_cron_job():
    server = FakeApiServer()
    server.add(NAMESPACES, "ns")
    create_cron_job(server, "nightly", "0 0 1 1 *")
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "u", "controller": True}
    create_job(server, "nightly-1", owner)
    create_job(server, "other")
    assert await cron_job_runs(server.client, Target("cronjob", "nightly", "ns")) == {"nightly-1"}
    assert await cron_job_runs(server.client, Target("job", "nightly-1", "ns")) == frozenset()


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("replicaset", "web-5f", ("ns", ["web-5f-a"])),
        ("deployment", "web", ("ns", ["web-5f-a"])),
        ("cronjob", "nightly", ("ns", ["nightly-1-a"])),
        ("job", "nightly-1", ("ns", ["nightly-1-a"])),
    ],
)
async def test_owner_is_in_the_only_namespace_that_has_it(kind, name, expected):
    server = FakeApiServer()
    server.add(NAMESPACES, "ns")
    create_cron_job(server, "nightly", "0 0 1 1 *")
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "u", "controller": True}
    create_job(server, "nightly-1", owner)
    found, pods = await find_owner(server.client, Target(kind, name), PODS)
    assert (found.namespace, [pod.metadata.name for pod in pods]) == expected


@pytest.mark.parametrize(
    ("name", "namespace", "problem", "hint"),
    [
        ("db", "", "statefulset db exists in several namespaces: ns, other", "choose one with -n"),
        ("dbb", "", "no statefulset dbb in any namespace", "did you mean db?"),
        ("dbb", "ns", "statefulset ns/dbb has no pods", "did you mean db?"),
        ("xyz", "", "no statefulset xyz in any namespace", "owners without pods are unknown here"),
    ],
)
async def test_owner_that_is_not_found_has_a_hint(name, namespace, problem, hint):
    with pytest.raises(UserError, match=problem) as raised:
        await find_owner(FakeApiServer().client, Target("statefulset", name, namespace), PODS)
    assert hint in raised.value.hint
