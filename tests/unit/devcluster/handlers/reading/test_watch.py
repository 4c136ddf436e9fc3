"""Opening of watches."""

from __future__ import annotations

import json
import random

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.handlers.reading.list_options import parse_list_options
from kubeloop.devcluster.handlers.reading.watch import WatchSettings, open_watch
from kubeloop.devcluster.storage.watch import WatchStream
from kubeloop.devcluster.storage.watch_encoding import JSON_WATCH_ENCODER
from kubeloop.kube.objects.resources import CONFIG_MAPS
from support.apiserver.api_requests import InProcessApi
from support.apiserver.config_map_store import ConfigMapStore

SERVED = get_served_resource(CONFIG_MAPS)
INITIAL = "sendInitialEvents=1&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"


def opened(config_maps: ConfigMapStore, query: str) -> WatchStream:
    options = parse_list_options(ApiRequest.of("GET", f"/x?watch=1&{query}"), SERVED, "ns")
    stream, _ = open_watch(
        SERVED,
        config_maps.table,
        options,
        JSON_WATCH_ENCODER,
        WatchSettings(),
        revision_now=lambda: config_maps.store.revision,
        rng=random.Random(1),
    )
    return stream


@pytest.mark.parametrize(
    ("query", "events"),
    [
        pytest.param("", ["ADDED a", "ADDED b"], id="present state"),
        pytest.param("resourceVersion=2", ["ADDED b", "MODIFIED a"], id="changes since a revision"),
        pytest.param("labelSelector=g=x", ["ADDED a"], id="selector"),
        pytest.param(INITIAL, ["ADDED a", "ADDED b", "BOOKMARK "], id="initial events"),
    ],
)
async def test_first_events_of_a_watch(query: str, events: list[str]):
    config_maps = ConfigMapStore()
    config_maps.write("a")
    config_maps.write("b")
    config_maps.write("a", g="x")
    stream = opened(config_maps, query)
    lines = [json.loads(line) for line in (await anext(stream)).splitlines()]
    await stream.aclose()
    assert [f"{line['type']} {line['object']['metadata'].get('name', '')}" for line in lines] == events
    if query == INITIAL:
        assert lines[-1]["object"] == {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "4", "annotations": {"k8s.io/initial-events-end": "true"}},
        }


async def test_future_revision_of_initial_events_times_out():
    with pytest.raises(StatusError, match="Too large resource version: 9, current: 1"):
        opened(ConfigMapStore(), f"{INITIAL}&resourceVersion=9")


@pytest.mark.parametrize("names", [[], ["a"]])
async def test_watch_as_lists_of_metadata_ends_without_events(names: list[str]):
    api, path = InProcessApi(), "/api/v1/namespaces/default/configmaps"
    for name in names:
        api.create(path, {"metadata": {"name": name}})
    form = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    response = api.respond("GET", f"{path}?watch=1&timeoutSeconds=1&{INITIAL}", accept=form)
    assert not isinstance(response.body, bytes)
    assert (response.status, [chunk async for chunk in response.body]) == (200, [])
