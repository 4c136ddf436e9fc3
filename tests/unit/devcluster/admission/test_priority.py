"""Priority admission."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.priority import set_group_priority, set_priority
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.kinds.scheduling.priority_class import check_single_default
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import PRIORITY_CLASSES
from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]
MISMATCH = "must not be provided in pod spec; priority admission controller computed"


def store_with(*classes: JSON) -> ObjectStore:
    store = ObjectStore(seconds=lambda: 0.0)
    for priority_class in classes:
        store.create(PRIORITY_CLASSES, priority_class)
    return store


def priority_class(name: str, value: int, **fields: Any) -> JSON:
    return {"metadata": {"name": name}, "value": value, **fields}


HIGH = priority_class("high", 1000, preemptionPolicy="Never")
LOW, LOWER = priority_class("low", 10, globalDefault=True), priority_class("lower", 5, globalDefault=True)


@pytest.mark.parametrize(
    ("classes", "spec", "name", "priority", "policy"),
    [
        pytest.param([], {}, None, 0, "PreemptLowerPriority", id="no class and no default class"),
        pytest.param([HIGH], {"priorityClassName": "high"}, "high", 1000, "Never", id="named class"),
        pytest.param([LOW, LOWER], {}, "lower", 5, "PreemptLowerPriority", id="default class with the lowest value"),
        pytest.param(
            [],
            {"priorityClassName": "system-node-critical"},
            "system-node-critical",
            2000001000,
            "PreemptLowerPriority",
            id="system class",
        ),
    ],
)
def test_priority_of_a_pod(classes: list[JSON], spec: JSON, name: str | None, priority: int, policy: str):
    pod = {"metadata": {"name": "p"}, "spec": {**spec}}
    set_priority(store_with(*classes), pod)
    spec = pod["spec"]
    assert (spec.get("priorityClassName"), spec["priority"], spec["preemptionPolicy"]) == (name, priority, policy)


@pytest.mark.parametrize(
    ("spec", "detail"),
    [
        pytest.param({"priorityClassName": "x"}, "no PriorityClass with name x was found", id="missing class"),
        pytest.param(
            {"priorityClassName": "high", "priority": 5},
            f"the integer value of priority (5) {MISMATCH} 1000 from the given PriorityClass name",
            id="another priority",
        ),
        pytest.param(
            {"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"},
            f"the string value of PreemptionPolicy (PreemptLowerPriority) {MISMATCH} Never "
            "from the given PriorityClass name",
            id="another preemption policy",
        ),
    ],
)
def test_pod_that_contradicts_its_class_is_forbidden(spec: JSON, detail: str):
    with pytest.raises(StatusError) as raised:
        set_priority(store_with(HIGH), {"metadata": {"generateName": "p-"}, "spec": spec})
    assert (raised.value.code, raised.value.message) == (403, f'pods "p-" is forbidden: {detail}')


def test_second_default_priority_class_is_forbidden():
    store = store_with(LOW)
    check_single_default(store, LOW, new=False)
    with pytest.raises(StatusError) as raised:
        check_single_default(store, LOWER, new=True)
    assert raised.value.message == (
        'priorityclasses.scheduling.k8s.io "lower" is forbidden: PriorityClass low is already marked as default. '
        "Only one default can exist"
    )


async def test_second_default_class_is_forbidden():
    api, path = InProcessApi(), "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, default in (("a", True), ("b", False)):
        api.create(path, priority_class(name, 1, globalDefault=default))
    second_default = "is forbidden: PriorityClass a is already marked as default. Only one default can exist"
    create = api("POST", path, priority_class("c", 1, globalDefault=True))
    update = api("PUT", f"{path}/b", priority_class("b", 1, globalDefault=True))
    assert [create[0], update[0]] == [403, 403]
    assert all(content["message"].endswith(second_default) for _, content in (create, update))


async def test_pod_request_with_a_missing_class_is_forbidden():
    spec = {"containers": [{"name": "c", "image": "i"}], "priorityClassName": "none"}
    pod = {"metadata": {"generateName": "g-"}, "spec": spec}
    _, content = InProcessApi()("POST", "/api/v1/namespaces/default/pods", pod)
    assert content["message"] == 'pods "g-" is forbidden: no PriorityClass with name none was found'


def test_pod_group_has_the_priority_of_its_class():
    pod_group = {"metadata": {"name": "g"}, "spec": {"priorityClassName": "high", "priority": 1000}}
    set_group_priority(store_with(HIGH), pod_group)
    assert pod_group["spec"] == {"priorityClassName": "high", "priority": 1000}
    pod_group["spec"] = {}
    set_group_priority(store_with(LOW, HIGH), pod_group)
    assert pod_group["spec"] == {"priorityClassName": "low", "priority": 10}
    pod_group["spec"] = {"priority": 7}
    with pytest.raises(StatusError) as raised:
        set_group_priority(store_with(), pod_group)
    assert raised.value.status["message"] == (
        'podgroups.scheduling.k8s.io "g" is forbidden: priority set in the pod group (7) must match the priority '
        "computed (0) based on the priority class set in the spec"
    )
