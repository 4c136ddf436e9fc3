"""Server-side apply as kube-apiserver v1.36 does it: what counts as a wish, and who was there before."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from support.api_requests import InProcessApi

JSON = dict[str, Any]
PATH = "/api/v1/namespaces/default/configmaps/c"
PODS = "/api/v1/namespaces/default/pods/p"
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi()


def config_map(data: Any, **metadata: Any) -> JSON:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **metadata}, "data": data}


def owned(answer: JSON) -> dict[str, JSON]:
    return {each["manager"]: each["fieldsV1"] for each in answer["metadata"]["managedFields"]}


async def test_nulls_zeros_and_empty_texts_are_wishes_that_somebody_owns(api: InProcessApi):
    spec = {
        "terminationGracePeriodSeconds": 0,
        "hostNetwork": False,
        "nodeName": None,
        "tolerations": [],
        "imagePullSecrets": [],  # by its items, of which there are none
        "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": ""}]}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {}}, "spec": spec}
    status, made = api("PATCH", f"{PODS}?fieldManager=m", pod, APPLY)
    assert status == 201, made
    fields = owned(made)["m"]
    assert fields["f:metadata"] == {"f:labels": {}}
    container = fields["f:spec"].pop("f:containers")['k:{"name":"c"}']
    assert container["f:env"] == {'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}}
    assert fields["f:spec"] == {
        f"f:{name}": {} for name in ("terminationGracePeriodSeconds", "hostNetwork", "nodeName", "tolerations")
    }


async def test_what_was_applied_whole_and_is_now_by_its_parts_stays(api: InProcessApi):
    api("PATCH", f"{PATH}?fieldManager=m", config_map({"a": "1"}, labels={}), APPLY)
    answer = api("PATCH", f"{PATH}?fieldManager=m", config_map({"a": "1"}, labels={"x": "y"}), APPLY)[1]
    assert answer["metadata"]["labels"] == {"x": "y"}


async def test_what_was_there_before_the_first_apply_has_an_owner(api: InProcessApi):
    api.create("/api/v1/namespaces/default/configmaps", config_map({"a": "1"}))
    api("PATCH", PATH, {"metadata": {"managedFields": [{}]}}, MERGE)
    status, told = api("PATCH", f"{PATH}?fieldManager=m", config_map({"a": "2"}), APPLY)
    assert (status, told["details"]["causes"][0]["message"]) == (409, 'conflict with "before-first-apply" using v1')
    answer = api("PATCH", f"{PATH}?fieldManager=m", config_map({"a": "1", "b": "2"}), APPLY)[1]
    assert owned(answer) == {
        "m": {"f:data": {"f:a": {}, "f:b": {}}},
        "before-first-apply": {"f:data": {".": {}, "f:a": {}}},
    }


async def test_kubectl_takes_over_what_it_has_applied_by_itself_and_nothing_else(api: InProcessApi):
    before = config_map({"a": "1", "b": "1"})
    api.create(
        "/api/v1/namespaces/default/configmaps?fieldManager=kubectl-client-side-apply",
        config_map({"a": "1", "b": "1"}, annotations={LAST_APPLIED: msgspec.json.encode(before).decode()}),
    )
    api("PATCH", f"{PATH}?fieldManager=other", {"data": {"b": "7"}}, MERGE)
    status, told = api("PATCH", f"{PATH}?fieldManager=else", config_map({"a": "2"}), APPLY)
    assert status == 409, "only kubectl may"
    status, told = api("PATCH", f"{PATH}?fieldManager=kubectl", config_map({"a": "2", "b": "2"}), APPLY)
    assert (status, [each["field"] for each in told["details"]["causes"]]) == (409, [".data.b"])
    status, told = api("PATCH", f"{PATH}?fieldManager=kubectl", config_map({"a": "<2>"}), APPLY)
    assert (status, told["data"]) == (200, {"a": "<2>", "b": "7"})
    assert told["metadata"]["annotations"][LAST_APPLIED] == (
        '{"apiVersion":"v1","data":{"a":"\\u003c2\\u003e"},"kind":"ConfigMap","metadata":{"name":"c"}}\n'
    )


@pytest.mark.parametrize(
    ("seconds", "status", "told"),
    [
        (1.5, 500, "cannot convert float64 to int64"),
        (2.0, 201, ""),
    ],
)
async def test_numbers_are_read_as_go_converts_them(api: InProcessApi, seconds: float, status: int, told: str):
    containers = [{"name": "c", "image": "i"}]
    spec = {"terminationGracePeriodSeconds": seconds, "containers": containers}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    answer = api("PATCH", f"{PODS}?fieldManager=m", pod, APPLY)
    assert (answer[0], told in answer[1].get("message", "")) == (status, True), answer


async def test_conflicts_name_fields_before_what_is_inside_their_siblings(api: InProcessApi):
    def pod(image: str, value: str) -> JSON:
        container = {"name": "c", "image": image, "env": [{"name": "A", "value": value}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}

    api("PATCH", f"{PODS}?fieldManager=one", pod("i", "1"), APPLY)
    status, told = api("PATCH", f"{PODS}?fieldManager=two", pod("j", "2"), APPLY)
    container = '.spec.containers[name="c"]'
    assert (status, [each["field"] for each in told["details"]["causes"]]) == (
        409,
        [f"{container}.image", f'{container}.env[name="A"].value'],
    )
