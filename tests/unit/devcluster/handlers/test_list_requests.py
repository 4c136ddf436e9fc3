"""Pages, field selectors and watches of the development API server where clients notice the difference."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.request import Response
from support.api_requests import InProcessApi

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
    return "".join(each["metadata"]["name"] for each in page["items"])


async def events(answer: Response) -> list[JSON]:
    """Those that a watch tells at once."""
    if isinstance(answer.body, bytes):
        return [msgspec.json.decode(line) for line in answer.body.splitlines()]
    told = b""
    with suppress(TimeoutError, StopAsyncIteration):
        while True:
            told += await asyncio.wait_for(anext(answer.body), 0.2)  # type: ignore[arg-type]
    await answer.body.aclose()  # type: ignore[attr-defined]
    return [msgspec.json.decode(line) for line in told.splitlines()]


@pytest.mark.parametrize(
    ("query", "shown", "goes_on"),
    [
        ("labelSelector=g=x&limit=3", "ace", True),  # f is still there, though it is not selected
        ("labelSelector=g=y&limit=3", "bdf", False),
        ("labelSelector=g=y&limit=2", "bd", True),
        ("labelSelector=none&limit=1", "", False),
        ("fieldSelector=metadata.name=c&limit=1", "c", False),  # only this one was looked up
        ("fieldSelector=metadata.name!=a&limit=5", "bcdef", False),
        ("limit=5", "abcde", True),
        ("limit=6", "abcdef", False),
    ],
)
async def test_a_page_says_whether_there_are_more_objects_not_more_selected_ones(
    api: InProcessApi, query: str, shown: str, goes_on: bool
):
    page = api("GET", f"{MAPS}?{query}")[1]
    assert (names(page), "continue" in page["metadata"]) == (shown, goes_on)


async def test_a_continue_token_is_kubernetes_own_and_goes_for_any_namespace(api: InProcessApi):
    token = api("GET", f"{MAPS}?limit=2")[1]["metadata"]["continue"]
    assert msgspec.json.decode(urlsafe_b64decode(token + "=="))["start"] == "b\0"
    api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    for name in "bc":
        api.create("/api/v1/namespaces/other/configmaps", {"metadata": {"name": name}})
    token = api("GET", f"{MAPS}?limit=2")[1]["metadata"]["continue"]
    assert names(api("GET", f"/api/v1/namespaces/other/configmaps?continue={token}")[1]) == "c"


async def test_a_continue_token_of_a_revision_to_come_is_told_to_wait(api: InProcessApi):
    token = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6OTk5OTk5OTk5LCJzdGFydCI6IngifQ"
    status, answer = api("GET", f"{MAPS}?continue={token}")
    assert (status, answer["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")


@pytest.mark.parametrize(
    ("path", "field", "told"),
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
async def test_field_selectors_are_those_of_the_kind(api: InProcessApi, path: str, field: str, told: str):
    status, answer = api("GET", f"{path}?fieldSelector={field}=x")
    assert (status, answer.get("message", "")) == (400 if told else 200, told)


async def test_an_empty_list_of_metadata_has_no_items_at_all(api: InProcessApi):
    assert api("GET", f"{MAPS}?labelSelector=none", accept=METADATA)[1]["items"] is None
    assert api("GET", f"{MAPS}/a?export=1")[0] == 400


async def test_the_bookmark_of_a_table_is_a_row(api: InProcessApi):
    told = await events(api.respond("GET", f"{MAPS}?{INITIAL}&fieldSelector=metadata.name=a", accept=TABLE))
    assert [each["type"] for each in told] == ["ADDED", "BOOKMARK"]
    bookmark = told[1]["object"]
    assert "annotations" not in bookmark["metadata"]
    assert bookmark["rows"][0]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_watch_of_lists_of_metadata_ends_with_its_first_event(api: InProcessApi):
    assert await events(api.respond("GET", f"{MAPS}?{INITIAL}", accept=METADATA)) == []
    watching = api.respond("GET", f"{MAPS}?watch=true&resourceVersion=0", accept=METADATA)
    api.create(MAPS, {"metadata": {"name": "g"}})  # no write meets the form that a watcher wants
    assert await events(watching) == []


async def test_a_watch_of_tables_with_an_unknown_choice_of_objects_does_not_begin(api: InProcessApi):
    status, answer = api("GET", f"{MAPS}?watch=true&includeObject=Bogus", accept=TABLE)
    assert (status, "includeObject" in answer["message"]) == (400, True)
    api.create(MAPS, {"metadata": {"name": "g"}})


async def test_bookmarks_carry_what_an_empty_object_of_the_kind_has(api: InProcessApi):
    daemons = "/apis/apps/v1/namespaces/default/daemonsets"
    [bookmark] = await events(api.respond("GET", f"{daemons}?{INITIAL}"))
    assert bookmark["object"]["metadata"]["annotations"]["deprecated.daemonset.template.generation"] == "0"
    [bookmark] = await events(api.respond("GET", f"{CORE}/replicationcontrollers?{INITIAL}"))
    assert "replicas" not in bookmark["object"]["spec"]
