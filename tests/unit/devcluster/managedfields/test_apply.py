"""Server-side apply: applied fields, conflicts, and migration from client-side apply."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeloop.kube.json_object import JSON
from support.api_requests import InProcessApi

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
