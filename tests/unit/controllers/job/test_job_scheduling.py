"""Workload and PodGroup of a Job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.job import job_scheduling
from kubeloop.controllers.job.job_controller import JobController
from kubeloop.kube.objects.api_types import Job, convert
from kubeloop.kube.objects.resources import JOBS, POD_GROUPS, PODS, WORKLOADS
from kubeloop.kube.objects.workload_types import PodGroup, Workload
from support.objects.batch_objects import create_job

JSON = dict[str, Any]
GANG: JSON = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}


def job(status: JSON | None = None, **spec: Any) -> Job:
    metadata = {"name": "train", "namespace": "ns", "uid": "uid-1"}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec, "status": status or {}}
    return convert(Job, body)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (GANG, True),
        ({**GANG, "parallelism": 1, "completions": 1}, False),
        ({**GANG, "completionMode": "NonIndexed"}, False),
        ({**GANG, "completions": 3}, False),
        ({**GANG, "completions": None}, False),
        ({**GANG, "template": {"spec": {"schedulingGroup": {"podGroupName": "own"}}}}, False),
    ],
    ids=["gang", "one pod", "not indexed", "more completions", "work queue", "group of the user"],
)
def test_only_indexed_jobs_whose_pods_all_run_at_once_are_gangs(spec: JSON, expected: bool):
    assert job_scheduling.is_gang(job(**spec)) is expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, True),
        ({"startTime": "2026-01-01T00:00:00Z"}, False),
        ({"succeeded": 1}, False),
        ({"failed": 1}, False),
        ({"conditions": [{"type": "Suspended", "status": "False"}]}, False),
    ],
)
def test_only_jobs_that_never_started_are_new(status: JSON, expected: bool):
    assert job_scheduling.is_new(job(status), []) is expected


def test_names_have_the_hashes_of_kube_controller_manager():
    assert job_scheduling.workload_name(job()) == "train-647cf7d9"
    assert job_scheduling.pod_group_name("train-abc", "train-pgt-0") == "train-abc-train-pgt-0-66cc9f69d5"


@pytest.mark.parametrize(("workload", "template"), [(10, 300), (300, 10), (300, 300)])
def test_long_names_of_pod_groups_are_cut(workload: int, template: int):
    name = job_scheduling.pod_group_name("w" * workload, "t" * template)
    first, second, _ = name.split("-")
    assert len(name) == 253
    if workload == template:
        assert 0 <= len(first) - len(second) <= 1
    else:
        assert min(len(first), len(second)) == min(workload, template)


def test_pod_group_copies_the_policy_of_the_template():
    template = {"name": "t", "schedulingPolicy": {"basic": {}}, "priority": 7}
    workload = convert(Workload, {"metadata": {"name": "w", "uid": "u"}, "spec": {"podGroupTemplates": [template]}})
    body = job_scheduling.pod_group_body(job(), workload)
    assert body["spec"] == {
        "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
        "schedulingPolicy": {"basic": {}},
    }
    assert [owner["kind"] for owner in body["metadata"]["ownerReferences"]] == ["Job", "Workload"]


@pytest.mark.virtual_time
async def test_pods_of_a_gang_have_the_pod_group_of_the_job(gang_apiserver, start):
    await start(gang_apiserver.informers, JobController(gang_apiserver.context))
    create_job(gang_apiserver, "train", **GANG)
    await asyncio.sleep(5)
    (workload,), (pod_group,) = gang_apiserver.objects(WORKLOADS), gang_apiserver.objects(POD_GROUPS)
    assert workload["spec"]["podGroupTemplates"][0]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    assert pod_group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    name = pod_group["metadata"]["name"]
    pods = gang_apiserver.objects(PODS)
    assert [pod["spec"]["schedulingGroup"] for pod in pods] == [{"podGroupName": name}] * 2
    assert [[owner["kind"] for owner in pod["metadata"]["ownerReferences"]] for pod in pods] == [["Job"]] * 2
    gang_apiserver.store.delete(PODS, "ns", pods[0]["metadata"]["name"])
    await asyncio.sleep(60)
    assert len(gang_apiserver.objects(WORKLOADS)) == len(gang_apiserver.objects(POD_GROUPS)) == 1
    assert ("WorkloadCreated", f"Created Workload {workload['metadata']['name']} for Job train") in [
        (event.reason, event.message) for event in gang_apiserver.context.events.events
    ]


@pytest.mark.virtual_time
@pytest.mark.parametrize("owned", [True, False])
async def test_existing_workload_is_used_if_the_job_owns_it(gang_apiserver, start, owned: bool):
    create_job(gang_apiserver, "train", **GANG)
    (created,) = gang_apiserver.objects(JOBS)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": created["metadata"]["uid"]}
    body = {
        "metadata": {"name": "own", "ownerReferences": [{**owner, "controller": owned}]},
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "train"},
            "podGroupTemplates": [{"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}}],
        },
    }
    gang_apiserver.api.create(WORKLOADS.path("ns"), body)
    await start(gang_apiserver.informers, JobController(gang_apiserver.context))
    await asyncio.sleep(5)
    assert gang_apiserver.names(WORKLOADS) == ["own"]
    assert len(gang_apiserver.objects(POD_GROUPS)) == owned
    assert [("schedulingGroup" in pod["spec"]) for pod in gang_apiserver.objects(PODS)] == [owned] * 2


@pytest.mark.virtual_time
async def test_job_without_the_gate_creates_pods_only(fake_apiserver, start):
    await start(fake_apiserver.informers, JobController(fake_apiserver.context))
    create_job(fake_apiserver, "train", **GANG)
    await asyncio.sleep(5)
    assert {path.rpartition("/")[2] for path in fake_apiserver.written("POST")} == {"pods"}


@pytest.mark.parametrize(
    ("spec", "keys"),
    [
        ({}, []),
        ({"controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "train"}}, ["ns/train"]),
        ({"controllerRef": {"apiGroup": "apps", "kind": "Job", "name": "train"}}, []),
        ({"controllerRef": {"apiGroup": "batch", "kind": "CronJob", "name": "train"}}, []),
    ],
    ids=["none", "Job", "other group", "other kind"],
)
def test_job_of_a_workload(spec: JSON, keys: list[str]):
    workload = convert(Workload, {"metadata": {"name": "w", "namespace": "ns"}, "spec": spec})
    assert list(job_scheduling._job_keys(workload)) == keys


@pytest.mark.parametrize(
    ("reference", "keys"),
    [
        (None, []),
        ({}, []),
        ({"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}, ["ns/w"]),
    ],
    ids=["none", "no workload", "workload"],
)
def test_workload_of_a_pod_group(reference: JSON | None, keys: list[str]):
    body = {"metadata": {"name": "g", "namespace": "ns"}, "spec": {"podGroupTemplateRef": reference}}
    assert list(job_scheduling._workload_keys(convert(PodGroup, body))) == keys
