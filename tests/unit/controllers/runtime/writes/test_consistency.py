"""Consistency store: written versions compared with those of the caches."""

from __future__ import annotations

import pytest

from kubeloop.controllers.runtime.controller import StaleCache
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.informers.shared_informer import SharedInformer
from kubeloop.kube.objects.api_types import Pod, ReplicaSet, convert
from kubeloop.kube.objects.resources import PODS


def test_cache_older_than_write_is_stale_until_it_catches_up():
    cached = {"pods": "10"}
    store = ConsistencyStore({"pods": lambda: cached["pods"]})
    store.wrote_at("ns/rs", "uid", "pods", "12")
    store.wrote_at("ns/rs", "uid", "pods", "11")  # responses can arrive out of order
    assert store._writes["ns/rs"].versions == {"pods": "12"}
    cached["pods"] = "11"
    with pytest.raises(StaleCache, match="read version: 11 is not as new as written version: 12"):
        store.ensure_ready("ns/rs")
    store.ensure_ready("ns/other")
    cached["pods"] = "12"
    store.ensure_ready("ns/rs")
    assert "ns/rs" not in store._writes


def test_disabled_store_postpones_nothing():
    store = ConsistencyStore({"pods": lambda: "1"}, enabled=False)
    store.wrote_at("ns/rs", "uid", "pods", "12")
    store.ensure_ready("ns/rs")


def test_versions_without_order_are_not_stale_and_later_write_wins():
    store = ConsistencyStore({"pods": lambda: "opaque"})
    store.wrote_at("ns/rs", "uid", "pods", "12")
    store.wrote_at("ns/rs", "uid", "pods", "opaque-2")
    assert store._writes["ns/rs"].versions == {"pods": "opaque-2"}
    store.ensure_ready("ns/rs")


def test_record_belongs_to_one_uid():
    store = ConsistencyStore({"pods": lambda: "1"})
    store.wrote_at("ns/rs", "old", "pods", "12")
    store.wrote_at("ns/rs", "new", "pods", "5")
    assert store._writes["ns/rs"].versions == {"pods": "5"}
    store.forget("ns/rs", "old")
    assert store._writes["ns/rs"].versions == {"pods": "5"}
    store.forget("ns/rs", "new")
    assert "ns/rs" not in store._writes


def test_store_of_informers_compares_writes_with_their_caches(fake_apiserver, monkeypatch):
    pods = fake_apiserver.context.informers.informer(PODS)
    store, owner = ConsistencyStore.of(pods), convert(ReplicaSet, {"metadata": {"name": "rs", "uid": "uid"}})
    store.wrote(owner, PODS, convert(Pod, {"metadata": {"name": "p", "resourceVersion": "12"}}))
    assert store._writes[owner.key].versions == {"pods": "12"}
    monkeypatch.setattr(SharedInformer, "last_resource_version", "11")
    with pytest.raises(StaleCache):
        store.ensure_ready(owner.key)
    monkeypatch.setattr(SharedInformer, "last_resource_version", "12")
    store.ensure_ready(owner.key)
    assert not ConsistencyStore.of(pods, enabled=False)._enabled
