"""Data of ControllerRevisions, which is compared as text."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.serializer.controller_revision_data import (
    SentData,
    compact,
    is_same_data,
    record_patched_text,
)
from kubeloop.kube.objects.resources import CONTROLLER_REVISIONS
from support.apiserver.api_requests import InProcessApi

PATH = "/apis/apps/v1/namespaces/default/controllerrevisions"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
OPERATIONS, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
SORTED, UNSORTED, SPACED = '{"a":1,"b":{"c":[1,2]}}', '{"b":1,"a":"<"}', '{"a": 1, "b": {"c": [1, 2]}}'
OTHER_FIELD = {"metadata": {"labels": {"x": "y"}}}


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi()


def body(data: str, **extra: str) -> str:
    fields = {"revision": "1", **extra}
    return f'{{"metadata":{{"name":"r"}},"data":{data},' + ",".join(f'"{k}":{v}' for k, v in fields.items()) + "}"


@pytest.mark.parametrize(
    ("data", "media", "status"),
    [
        (SORTED, MERGE, 200), (SORTED, STRATEGIC, 200), (SORTED, OPERATIONS, 200), (SORTED, APPLY, 200),
        (UNSORTED.replace("<", ""), MERGE, 200), (UNSORTED, STRATEGIC, 422), (UNSORTED, APPLY, 422),
        (UNSORTED, MERGE, 422), (SPACED, MERGE, 422), (SPACED, STRATEGIC, 422), (SPACED, OPERATIONS, 422),
        (SPACED, APPLY, 422), ('{"a":1.0}', MERGE, 200), ('{"a":1.0}', STRATEGIC, 422),
    ],
)  # fmt: skip
async def test_patch_of_another_field_reencodes_the_data(api: InProcessApi, data: str, media: str, status: int):
    api("POST", PATH, body(data))
    patch: Any = OTHER_FIELD
    if media == OPERATIONS:
        patch = [{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}]
    elif media == APPLY:
        patch = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "r", "labels": {"x": "y"}}}
    code, response = api("PATCH", f"{PATH}/r?fieldManager=x", patch, media)
    assert code == status, response
    if status == 422:
        assert "field is immutable" in response["message"]


async def test_update_must_send_the_same_text(api: InProcessApi):
    api("POST", PATH, body(SPACED))
    assert api("PUT", f"{PATH}/r", body(SPACED, revision="2"))[0] == 200
    assert api("PUT", f"{PATH}/r", body(SORTED, revision="3"))[0] == 422
    assert api("GET", f"{PATH}/r")[1]["revision"] == 2


async def test_duplicate_fields_in_the_data_are_not_reported(api: InProcessApi):
    assert api("POST", PATH, body('{"a":1,"a":2}'))[0] == 201
    assert api.warnings == []


async def test_strategic_patch_cannot_merge_into_the_data(api: InProcessApi):
    api("POST", PATH, body(SORTED))
    status, response = api("PATCH", f"{PATH}/r", {"data": {"b": {"d": 1}}}, STRATEGIC)
    assert (status, response["message"]) == (
        500, 'unable to find api field in struct RawExtension for the json field "b"'
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "compacted"),
    [
        (b'{"a": 1,\n "b": [1, 2]}', b'{"a":1,"b":[1,2]}'),
        (b'{"a b": "c  \\" d"}', b'{"a b":"c  \\" d"}'),
        (b'{"a": "<&>"}', rb'{"a":"\u003c\u0026\u003e"}'),
    ],
)
def test_compact_drops_spaces_outside_of_strings(text: bytes, compacted: bytes):
    assert compact(text) == compacted


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param(SentData.of({"a": 1}, b'{"a":1}'), SentData.of({"a": 1}, b'{"a": 1}'), False, id="other text"),
        pytest.param(SentData.of({"a": 1}, b'{"a":1}'), {"a": 1}, True, id="unknown text"),
        pytest.param({"a": 1}, {"a": 2}, False, id="other value"),
    ],
)
def test_data_is_compared_as_text_if_both_texts_are_known(one: Any, other: Any, expected: bool):
    assert is_same_data(one, other) is expected


def test_typed_patch_normalizes_numbers():
    obj: dict[str, Any] = {"data": {"b": 1.0, "a": 2**64}}
    record_patched_text(CONTROLLER_REVISIONS, obj, None, is_typed=True)
    assert obj["data"].text == b'{"a":18446744073709552000,"b":1}'
