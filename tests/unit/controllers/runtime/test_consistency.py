"""Consistency store: written versions compared with those of the caches."""

from __future__ import annotations

import pytest

from kubeloop.controllers.runtime.consistency import ConsistencyStore, compare_resource_versions_or_none
from kubeloop.controllers.runtime.controller import StaleCache


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        pytest.param("9", "10", -1, id="by value, not as text"),
        pytest.param("10", "10", 0, id="equal"),
        pytest.param("100000000000000000000001", "100000000000000000000000", 1, id="beyond 64 bits"),
        pytest.param("0", "1", None, id="zero"),
        pytest.param("1", "", None, id="empty"),
        pytest.param("01", "1", None, id="leading zero"),
        pytest.param("1", "1a", None, id="not decimal"),
    ],
)
def test_compare_resource_versions(left, right, order):
    assert compare_resource_versions_or_none(left, right) == order


def test_cache_older_than_write_is_stale_until_it_catches_up():
    cached = {"pods": "10"}
    store = ConsistencyStore({"pods": lambda: cached["pods"]})
    store.wrote_at("ns/rs", "uid", "pods", "12")
    store.wrote_at("ns/rs", "uid", "pods", "11")  # responses can arrive out of order
    assert store.written_versions("ns/rs") == {"pods": "12"}
    cached["pods"] = "11"
    with pytest.raises(StaleCache, match="read version: 11 is not as new as written version: 12"):
        store.ensure_ready("ns/rs")
    store.ensure_ready("ns/other")
    cached["pods"] = "12"
    store.ensure_ready("ns/rs")
    assert store.written_versions("ns/rs") == {}


def test_versions_without_order_are_not_stale_and_later_write_wins():
    store = ConsistencyStore({"pods": lambda: "opaque"})
    store.wrote_at("ns/rs", "uid", "pods", "12")
    store.wrote_at("ns/rs", "uid", "pods", "opaque-2")
    assert store.written_versions("ns/rs") == {"pods": "opaque-2"}
    store.ensure_ready("ns/rs")


def test_record_belongs_to_one_uid():
    store = ConsistencyStore({"pods": lambda: "1"})
    store.wrote_at("ns/rs", "old", "pods", "12")
    store.wrote_at("ns/rs", "new", "pods", "5")
    assert store.written_versions("ns/rs") == {"pods": "5"}
    store.forget("ns/rs", "old")
    assert store.written_versions("ns/rs") == {"pods": "5"}
    store.forget("ns/rs", "new")
    assert store.written_versions("ns/rs") == {}
