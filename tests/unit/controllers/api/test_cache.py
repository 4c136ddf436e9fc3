"""Reads from the cache."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.api.cache import Cache, NotWatched
from kubeloop.controllers.api.objects import Request
from kubeloop.controllers.api.watches import For, Watches
from kubeloop.kube.objects.resources import CONFIG_MAPS, NODES, PODS, SECRETS, json_resource
from support.apiserver.fake_apiserver import WIDGETS, FakeApiServer

pytestmark = pytest.mark.virtual_time


def fill(server: FakeApiServer) -> None:
    for namespace, name in (("ns", "a"), ("ns", "b"), ("other", "a")):
        server.add(CONFIG_MAPS, name, namespace=namespace, labels={"app": name})


def keys(objects: list[dict[str, dict[str, str]]]) -> list[str]:
    return [f"{obj['metadata']['namespace']}/{obj['metadata']['name']}" for obj in objects]


async def test_objects_are_read_by_name_namespace_label_and_index(fake_apiserver, start):
    fill(fake_apiserver)
    cache = Cache("widgets", fake_apiserver.informers, ())
    cache.add(For(CONFIG_MAPS, indexes={"app": lambda obj: [obj["metadata"].get("labels", {}).get("app", "")]}))
    await start(fake_apiserver.informers)
    read = cache.get(CONFIG_MAPS, Request("ns", "a"))
    assert read is not None
    read["data"] = {"changed": "by the reader"}
    assert "data" not in (cache.get(CONFIG_MAPS, "a", "ns") or {})
    assert cache.get(CONFIG_MAPS, "c", "ns") is None
    assert keys(cache.list(CONFIG_MAPS, "ns", label_selector="app in (a,c)")) == ["ns/a"]
    assert keys(cache.by_index(CONFIG_MAPS, "app", "a")) == ["ns/a", "other/a"]
    with pytest.raises(KeyError):
        cache.by_index(CONFIG_MAPS, "other", "a")


async def test_controllers_share_an_index_of_the_same_function(fake_apiserver, start):
    def by_app(obj: dict[str, Any]) -> list[str]:
        return [obj["metadata"].get("labels", {}).get("app", "")]

    fill(fake_apiserver)
    first, second = (Cache(name, fake_apiserver.informers, ()) for name in ("first", "second"))
    first.add(For(CONFIG_MAPS, indexes={"app": by_app}))
    second.add(Watches(CONFIG_MAPS, indexes={"label": by_app}))
    await start(fake_apiserver.informers)
    assert keys(first.by_index(CONFIG_MAPS, "app", "b")) == keys(second.by_index(CONFIG_MAPS, "label", "b")) == ["ns/b"]
    assert "first/app" in fake_apiserver.informers.informer(CONFIG_MAPS).store._index_functions
    assert "second/label" not in fake_apiserver.informers.informer(CONFIG_MAPS).store._index_functions


async def test_objects_of_an_owner_are_those_it_controls(fake_apiserver, start):
    widget = fake_apiserver.add(WIDGETS, "w")
    reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": widget["metadata"]["uid"]}
    fake_apiserver.add(CONFIG_MAPS, "owned", {**reference, "controller": True})
    fake_apiserver.add(CONFIG_MAPS, "other", reference)
    cache = Cache("widgets", fake_apiserver.informers, ())
    cache.add(Watches(CONFIG_MAPS))
    await start(fake_apiserver.informers)
    assert keys(cache.owned_by(CONFIG_MAPS, widget)) == ["ns/owned"]


async def test_namespaces_limit_what_is_watched(fake_apiserver, start):
    fill(fake_apiserver)
    fake_apiserver.add(NODES, "node-1")
    cache = Cache("widgets", fake_apiserver.informers, ("other", "ns"))
    one = Cache("one", fake_apiserver.informers, ("other",))
    for watch in (Watches(CONFIG_MAPS), Watches(NODES)):
        cache.add(watch)
        one.add(watch)
    await start(fake_apiserver.informers)
    assert keys(one.list(CONFIG_MAPS)) == ["other/a"]
    assert one.get(CONFIG_MAPS, "a", "ns") is None
    assert {*keys(cache.list(CONFIG_MAPS))} >= {"ns/a", "ns/b", "other/a"}
    assert len(one.list(NODES)) == 1
    lists = {write.path for write in fake_apiserver.transport.sent if "configmaps" in write.path}
    assert lists == {"/api/v1/namespaces/other/configmaps", "/api/v1/namespaces/ns/configmaps"}


async def test_selector_limits_what_is_watched(fake_apiserver, start):
    fill(fake_apiserver)
    cache = Cache("widgets", fake_apiserver.informers, ())
    cache.add(Watches(CONFIG_MAPS, label_selector="app=b"))
    await start(fake_apiserver.informers)
    assert keys(cache.list(CONFIG_MAPS)) == ["ns/b"]
    metadata = {"name": "new", "namespace": "ns"}
    assert cache.informer_of(CONFIG_MAPS, {"metadata": metadata}) is None
    assert cache.informer_of(CONFIG_MAPS, {"metadata": {**metadata, "labels": {"app": "b"}}}) is not None
    with pytest.raises(ValueError, match="configmaps is watched twice"):
        cache.add(Watches(CONFIG_MAPS))


async def test_resource_that_is_not_watched_is_an_error(fake_apiserver):
    cache = Cache("widgets", fake_apiserver.informers, ())
    with pytest.raises(NotWatched, match=r"secrets is not in the cache: add Watches\(Secret\)"):
        cache.list(SECRETS)
    await asyncio.sleep(0)
    cache.add(Watches(PODS))
    with pytest.raises(NotWatched, match="pods is watched as Pod, not dict"):
        cache.get(json_resource("v1", "Pod"), "a", "ns")
    assert cache.has(PODS)
    assert not cache.has(SECRETS)
