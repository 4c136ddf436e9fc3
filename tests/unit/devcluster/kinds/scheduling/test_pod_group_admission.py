"""Admission of PodGroups and of Jobs whose pods are scheduled as a gang."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.kinds.batch.job import check_gang_parallelism
from kubeloop.devcluster.kinds.scheduling.pod_group import check_template_exists
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.feature_gates import GANG_SCHEDULING_GATES, FeatureGates
from kubeloop.kube.objects.resources import POD_GROUPS, WORKLOADS
from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
GANG: JSON = {"schedulingPolicy": {"gang": {"minCount": 2}}}


def metadata(name: str, **fields: Any) -> JSON:
    return {"name": name, "namespace": "default", **fields}


def store_with_workload(**fields: Any) -> ObjectStore:
    store = ObjectStore(seconds=lambda: 0.0)
    spec = {"podGroupTemplates": [{"name": "workers", **GANG}]}
    store.create(WORKLOADS, {"metadata": metadata("training", **fields), "spec": spec})
    return store


def pod_group(workload: str, template: str = "workers") -> JSON:
    reference = {"workload": {"workloadName": workload, "podGroupTemplateName": template}}
    return {"metadata": metadata("g"), "spec": {"podGroupTemplateRef": reference}}


@pytest.mark.parametrize(
    ("store", "group", "problem"),
    [
        (store_with_workload(), pod_group("x"), 'Workload "x" not found'),
        (
            store_with_workload(deletionTimestamp="2026-01-01T00:00:00Z"),
            pod_group("training"),
            'Workload "training" is being deleted',
        ),
        (
            store_with_workload(),
            pod_group("training", "driver"),
            'PodGroupTemplate "driver" not found in Workload "training"',
        ),
    ],
    ids=["missing", "deleted", "other template"],
)
def test_pod_group_without_its_template_is_forbidden(store: ObjectStore, group: JSON, problem: str):
    with pytest.raises(StatusError) as raised:
        check_template_exists(store, group)
    assert raised.value.status["message"] == (
        f'podgroups.scheduling.k8s.io "g" is forbidden: PodGroup rejected: {problem}'
    )


def test_pod_group_with_its_template_or_without_reference_is_accepted():
    check_template_exists(store_with_workload(), pod_group("training"))
    check_template_exists(store_with_workload(), {"metadata": metadata("g"), "spec": GANG})


def job(parallelism: int, group_name: str | None = None) -> JSON:
    pod_spec = {} if group_name is None else {"schedulingGroup": {"podGroupName": group_name}}
    spec = {"parallelism": parallelism, "template": {"spec": pod_spec}}
    return {"metadata": metadata("j", uid="u1"), "spec": spec}


def store_with_group(policy: JSON, owner: str) -> ObjectStore:
    store = ObjectStore(seconds=lambda: 0.0)
    owners = [{"kind": "Job", "name": "j", "uid": owner, "controller": True}]
    store.create(POD_GROUPS, {"metadata": metadata("g", ownerReferences=owners), "spec": {"schedulingPolicy": policy}})
    return store


@pytest.mark.parametrize(
    ("store", "new", "old", "forbidden"),
    [
        (store_with_group(GANG["schedulingPolicy"], "u1"), job(3), job(2), True),
        (store_with_group(GANG["schedulingPolicy"], "u1"), job(2), job(2), False),
        (store_with_group(GANG["schedulingPolicy"], "u2"), job(3), job(2), False),
        (store_with_group({"basic": {}}, "u1"), job(3), job(2), False),
        (store_with_group(GANG["schedulingPolicy"], "u2"), job(3), job(2, "g"), True),
        (store_with_group(GANG["schedulingPolicy"], "u2"), job(3), job(2, "h"), False),
    ],
    ids=["own gang", "same parallelism", "gang of another Job", "basic policy", "named gang", "missing group"],
)
def test_parallelism_of_a_gang_is_immutable(store: ObjectStore, new: JSON, old: JSON, forbidden: bool):
    if not forbidden:
        check_gang_parallelism(store, new, old)
        return
    with pytest.raises(StatusError) as raised:
        check_gang_parallelism(store, new, old)
    assert raised.value.status["message"] == (
        'jobs.batch "j" is forbidden: cannot change parallelism for a Job referencing gang-scheduled PodGroup "g"'
    )


@pytest.mark.parametrize("preemption", [True, False])
async def test_new_pod_group_has_finalizer_priority_and_disruption_mode(preemption: bool):
    gates = {**dict.fromkeys(GANG_SCHEDULING_GATES, True), "WorkloadAwarePreemption": preemption}
    api = InProcessApi(settings=ServingSettings(feature_gates=FeatureGates(gates)))
    spec = {**GANG, "priorityClassName": "high", "disruptionMode": "PodGroup"}
    api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 7})
    created = api.create(GROUPS, {"metadata": {"name": "g"}, "spec": spec})
    assert created["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
    admitted = created["spec"]
    expected = ("PodGroup", "high", 7) if preemption else ("Pod", None, None)
    assert (admitted["disruptionMode"], admitted.get("priorityClassName"), admitted.get("priority")) == expected


async def test_pod_groups_are_not_served_without_their_gate():
    api = InProcessApi()
    assert api("GET", GROUPS)[0] == 404
    assert api("GET", "/apis/scheduling.k8s.io/v1alpha2")[0] == 404
    services = "/apis/apiregistration.k8s.io/v1/apiservices"
    assert api("GET", f"{services}/v1alpha2.scheduling.k8s.io")[0] == 404
    assert "/apis/scheduling.k8s.io/v1alpha2" not in api("GET", "/")[1]["paths"]
