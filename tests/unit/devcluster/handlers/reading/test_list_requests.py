"""List and watch requests: pages, continue tokens, field selectors, metadata and tables."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.request import Response
from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]
CORE = "/api/v1/namespaces/default"
MAPS = f"{CORE}/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
INITIAL = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


@pytest.fixture
async def api() -> InProcessApi:
    api = InProcessApi()
    for name in "abcdef":
        api.create(MAPS, {"metadata": {"name": name, "labels": {"g": "x" if name in "ace" else "y"}}})
    return api


def names(page: JSON) -> str:
    return "".join(obj["metadata"]["name"] for obj in page["items"])


async def events(response: Response) -> list[JSON]:
    """Return the events that a watch sends at once."""
    if isinstance(response.body, bytes):
        return [msgspec.json.decode(line) for line in response.body.splitlines()]
    content = b""
    with suppress(TimeoutError, StopAsyncIteration):
        while True:
            content += await asyncio.wait_for(anext(response.body), 0.2)  # type: ignore[arg-type]
    await response.body.aclose()  # type: ignore[attr-defined]
    return [msgspec.json.decode(line) for line in content.splitlines()]


@pytest.mark.parametrize(
    ("query", "expected_names", "has_continue"),
    [
        ("labelSelector=g=x&limit=3", "ace", True),  # f remains, though it is not selected
        ("labelSelector=g=y&limit=3", "bdf", False),
        ("labelSelector=g=y&limit=2", "bd", True),
        ("labelSelector=none&limit=1", "", False),
        ("fieldSelector=metadata.name=c&limit=1", "c", False),  # looked up by name: no other object is listed
        ("fieldSelector=metadata.name!=a&limit=5", "bcdef", False),
        ("limit=5", "abcde", True),
        ("limit=6", "abcdef", False),
    ],
)
async def test_page_has_continue_if_any_objects_remain(
    api: InProcessApi, query: str, expected_names: str, has_continue: bool
):
    page = api("GET", f"{MAPS}?{query}")[1]
    assert (names(page), "continue" in page["metadata"]) == (expected_names, has_continue)


async def test_continue_token_has_kubernetes_format_for_any_namespace(api: InProcessApi):
    token = api("GET", f"{MAPS}?limit=2")[1]["metadata"]["continue"]
    assert msgspec.json.decode(urlsafe_b64decode(token + "=="))["start"] == "b\0"
    api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    for name in "bc":
        api.create("/api/v1/namespaces/other/configmaps", {"metadata": {"name": name}})
    token = api("GET", f"{MAPS}?limit=2")[1]["metadata"]["continue"]
    assert names(api("GET", f"/api/v1/namespaces/other/configmaps?continue={token}")[1]) == "c"


async def test_continue_token_of_future_revision_times_out(api: InProcessApi):
    token = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6OTk5OTk5OTk5LCJzdGFydCI6IngifQ"
    status, answer = api("GET", f"{MAPS}?continue={token}")
    assert (status, answer["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")


@pytest.mark.parametrize(
    ("path", "field", "message"),
    [
        ("/api/v1/namespaces", "name", "field label not supported: name"),
        ("/apis/certificates.k8s.io/v1/certificatesigningrequests", "spec.signerName", ""),
        ("/apis/resource.k8s.io/v1/resourceslices", "spec.driver", ""),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            "spec.pool",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.pool",
        ),
    ],
)
async def test_field_selector_labels_depend_on_the_kind(api: InProcessApi, path: str, field: str, message: str):
    status, answer = api("GET", f"{path}?fieldSelector={field}=x")
    assert (status, answer.get("message", "")) == (400 if message else 200, message)


async def test_empty_metadata_list_has_null_items(api: InProcessApi):
    assert api("GET", f"{MAPS}?labelSelector=none", accept=METADATA)[1]["items"] is None
    assert api("GET", f"{MAPS}/a?export=1")[0] == 400


async def test_bookmark_in_table_watch_is_a_row(api: InProcessApi):
    tables = await events(api.respond("GET", f"{MAPS}?{INITIAL}&fieldSelector=metadata.name=a", accept=TABLE))
    assert [event["type"] for event in tables] == ["ADDED", "BOOKMARK"]
    bookmark = tables[1]["object"]
    assert "annotations" not in bookmark["metadata"]
    assert bookmark["rows"][0]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_watch_as_metadata_list_ends_at_first_event(api: InProcessApi):
    assert await events(api.respond("GET", f"{MAPS}?{INITIAL}", accept=METADATA)) == []
    watch = api.respond("GET", f"{MAPS}?watch=true&resourceVersion=0", accept=METADATA)
    api.create(MAPS, {"metadata": {"name": "g"}})  # writes are not encoded in the form that the watcher requested
    assert await events(watch) == []


async def test_table_watch_rejects_unknown_include_object(api: InProcessApi):
    status, answer = api("GET", f"{MAPS}?watch=true&includeObject=Bogus", accept=TABLE)
    assert (status, "includeObject" in answer["message"]) == (400, True)
    api.create(MAPS, {"metadata": {"name": "g"}})


async def test_bookmark_has_fields_of_an_empty_object_of_the_kind(api: InProcessApi):
    daemons = "/apis/apps/v1/namespaces/default/daemonsets"
    [bookmark] = await events(api.respond("GET", f"{daemons}?{INITIAL}"))
    assert bookmark["object"]["metadata"]["annotations"]["deprecated.daemonset.template.generation"] == "0"
    [bookmark] = await events(api.respond("GET", f"{CORE}/replicationcontrollers?{INITIAL}"))
    assert "replicas" not in bookmark["object"]["spec"]
