"""Server-side apply: applied fields, conflicts, and migration from client-side apply."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.api.writer import ApplyOptions
from kubeloop.devcluster.managedfields.apply import apply_configuration, atomic_paths, merge_items
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects import resources
from support.apiserver.api_requests import InProcessApi

PATH = "/api/v1/namespaces/default/configmaps/c"
PODS = "/api/v1/namespaces/default/pods/p"
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi()


def config_map(data: Any, **metadata: Any) -> JSON:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **metadata}, "data": data}


def owned_fields(response: JSON) -> dict[str, JSON]:
    return {entry["manager"]: entry["fieldsV1"] for entry in response["metadata"]["managedFields"]}


async def test_nulls_zeros_and_empty_strings_are_owned(api: InProcessApi):
    spec = {
        "terminationGracePeriodSeconds": 0,
        "hostNetwork": False,
        "nodeName": None,
        "tolerations": [],
        "imagePullSecrets": [],  # owned by items, of which there are none
        "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": ""}]}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {}}, "spec": spec}
    status, created = api("PATCH", f"{PODS}?fieldManager=m", pod, APPLY)
    assert status == 201, created
    fields = owned_fields(created)["m"]
    assert fields["f:metadata"] == {"f:labels": {}}
    container = fields["f:spec"].pop("f:containers")['k:{"name":"c"}']
    assert container["f:env"] == {'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}}
    assert fields["f:spec"] == {
        f"f:{name}": {} for name in ("terminationGracePeriodSeconds", "hostNetwork", "nodeName", "tolerations")
    }


async def test_map_applied_empty_keeps_members_applied_later(api: InProcessApi):
    api("PATCH", f"{PATH}?fieldManager=m", config_map({"a": "1"}, labels={}), APPLY)
    response = api("PATCH", f"{PATH}?fieldManager=m", config_map({"a": "1"}, labels={"x": "y"}), APPLY)[1]
    assert response["metadata"]["labels"] == {"x": "y"}


async def test_struct_applied_empty_stays_without_its_former_fields(api: InProcessApi):
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]}
    assert api("POST", path, {"metadata": {"name": "p"}, "spec": spec})[0] == 201
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy"}
    warning = {"fieldRef": "spec.validations[0].expression", "warning": "w"}
    for checking in ({"expressionWarnings": [warning]}, {}):
        body = {**head, "metadata": {"name": "p"}, "status": {"observedGeneration": 1, "typeChecking": checking}}
        status, response = api("PATCH", f"{path}/p/status?fieldManager=m&force=true", body, APPLY)
        assert (status, response["status"]["typeChecking"]) == (200, checking)


async def test_fields_before_the_first_apply_have_an_owner(api: InProcessApi):
    api.create("/api/v1/namespaces/default/configmaps", config_map({"a": "1"}))
    api("PATCH", PATH, {"metadata": {"managedFields": [{}]}}, MERGE)
    status, response = api("PATCH", f"{PATH}?fieldManager=m", config_map({"a": "2"}), APPLY)
    assert (status, response["details"]["causes"][0]["message"]) == (409, 'conflict with "before-first-apply" using v1')
    response = api("PATCH", f"{PATH}?fieldManager=m", config_map({"a": "1", "b": "2"}), APPLY)[1]
    assert owned_fields(response) == {
        "m": {"f:data": {"f:a": {}, "f:b": {}}},
        "before-first-apply": {"f:data": {".": {}, "f:a": {}}},
    }


async def test_kubectl_takes_over_unchanged_client_side_applied_fields(api: InProcessApi):
    before = config_map({"a": "1", "b": "1"})
    api.create(
        "/api/v1/namespaces/default/configmaps?fieldManager=kubectl-client-side-apply",
        config_map({"a": "1", "b": "1"}, annotations={LAST_APPLIED: msgspec.json.encode(before).decode()}),
    )
    api("PATCH", f"{PATH}?fieldManager=other", {"data": {"b": "7"}}, MERGE)
    status, response = api("PATCH", f"{PATH}?fieldManager=else", config_map({"a": "2"}), APPLY)
    assert status == 409, "only kubectl takes over"
    status, response = api("PATCH", f"{PATH}?fieldManager=kubectl", config_map({"a": "2", "b": "2"}), APPLY)
    assert (status, [cause["field"] for cause in response["details"]["causes"]]) == (409, [".data.b"])
    status, response = api("PATCH", f"{PATH}?fieldManager=kubectl", config_map({"a": "<2>"}), APPLY)
    assert (status, response["data"]) == (200, {"a": "<2>", "b": "7"})
    assert response["metadata"]["annotations"][LAST_APPLIED] == (
        '{"apiVersion":"v1","data":{"a":"\\u003c2\\u003e"},"kind":"ConfigMap","metadata":{"name":"c"}}\n'
    )


@pytest.mark.parametrize(
    ("seconds", "status", "message"),
    [
        (1.5, 500, "cannot convert float64 to int64"),
        (2.0, 201, ""),
    ],
)
async def test_numbers_are_converted_as_in_go(api: InProcessApi, seconds: float, status: int, message: str):
    containers = [{"name": "c", "image": "i"}]
    spec = {"terminationGracePeriodSeconds": seconds, "containers": containers}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    response = api("PATCH", f"{PODS}?fieldManager=m", pod, APPLY)
    assert (response[0], message in response[1].get("message", "")) == (status, True), response


async def test_conflicts_list_own_fields_before_nested_ones(api: InProcessApi):
    def pod(image: str, value: str) -> JSON:
        container = {"name": "c", "image": image, "env": [{"name": "A", "value": value}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}

    api("PATCH", f"{PODS}?fieldManager=one", pod("i", "1"), APPLY)
    status, response = api("PATCH", f"{PODS}?fieldManager=two", pod("j", "2"), APPLY)
    container = '.spec.containers[name="c"]'
    assert (status, [cause["field"] for cause in response["details"]["causes"]]) == (
        409,
        [f"{container}.image", f'{container}.env[name="A"].value'],
    )


def apply_data(current: JSON | None, data: JSON, manager: str, *, force: bool = False) -> JSON:
    served = get_served_resource(resources.CONFIG_MAPS)
    return apply_configuration(
        served, current, config_map(data), ApplyOptions(manager, "2026-01-01T00:00:00Z", force=force)
    )


def test_apply_removes_what_the_manager_applies_no_longer():
    first = apply_data(None, {"a": "1", "b": "2"}, "one")
    assert apply_data(first, {"a": "1"}, "one")["data"] == {"a": "1"}


def test_conflict_names_manager_and_field():
    first = apply_data(None, {"a": "1"}, "one")
    with pytest.raises(StatusError) as raised:
        apply_data(first, {"a": "2"}, "two")
    assert (raised.value.code, raised.value.message) == (
        409,
        'Apply failed with 1 conflict: conflict with "one": .data.a',
    )
    assert (raised.value.details or {})["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
    ]
    forced = apply_data(first, {"a": "2"}, "two", force=True)
    assert (forced["data"], list(owned_fields(forced))) == ({"a": "2"}, ["two"])


@pytest.mark.parametrize(
    ("metadata", "manager", "message"),
    [
        ({}, "", "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"),
        ({"managedFields": [{}]}, "one", "metadata.managedFields must be nil"),
    ],
)
def test_apply_is_refused(metadata: JSON, manager: str, message: str):
    served = get_served_resource(resources.CONFIG_MAPS)
    with pytest.raises(StatusError) as raised:
        apply_configuration(served, None, config_map({}, **metadata), ApplyOptions(manager, now=""))
    assert (raised.value.code, raised.value.message) == (400, message)


@pytest.mark.parametrize(
    ("applied", "merged"),
    [
        pytest.param(["b", "a"], ["b", "c", "a"], id="applied order"),
        pytest.param(["d"], ["a", "b", "c", "d"], id="new item"),
        pytest.param(["c", "d", "a"], ["b", "c", "d", "a"], id="others keep their place"),
    ],
)
def test_items_are_merged_in_the_applied_order(applied: list[str], merged: list[str]):
    assert merge_items(str, ["a", "b", "c"], applied, lambda _old, new: new) == merged


def test_atomic_paths_of_a_configuration():
    container = {"name": "c", "args": ["x"], "env": [{"name": "A", "value": "1"}]}
    config = {"spec": {"containers": [container], "nodeSelector": {"a": "b"}}}
    assert atomic_paths(get_served_resource(resources.PODS), config) == [
        ".spec.containers[0].args",
        ".spec.nodeSelector",
    ]
