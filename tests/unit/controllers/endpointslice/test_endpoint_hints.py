"""Hints of endpoints for a traffic distribution."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.endpointslice.endpoint_hints import (
    is_valid_traffic_distribution,
    remove_hints,
    set_traffic_hints,
)
from kubeloop.controllers.endpointslice.slice_changes import SliceChanges


def endpoint(*, ready: bool = True, **fields: Any) -> dict[str, Any]:
    return {"addresses": ["10.0.0.1"], "conditions": {"ready": ready}, "zone": "a", "nodeName": "n", **fields}


def one_slice(*endpoints: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "s"}, "endpoints": list(endpoints)}


@pytest.mark.parametrize(
    ("distribution", "hints"),
    [
        ("PreferClose", {"forZones": [{"name": "a"}]}),
        ("PreferSameZone", {"forZones": [{"name": "a"}]}),
        ("PreferSameNode", {"forZones": [{"name": "a"}], "forNodes": [{"name": "n"}]}),
    ],
)
def test_ready_endpoints_get_hints(distribution, hints):
    changes = SliceChanges(create=[one_slice(endpoint(), endpoint(ready=False))])
    set_traffic_hints(changes, distribution)
    assert [it.get("hints") for it in changes.create[0]["endpoints"]] == [hints, None]


def test_unchanged_slices_are_updated_only_if_hints_differ():
    same = one_slice(endpoint(hints={"forZones": [{"name": "a"}]}))
    other = one_slice(endpoint(hints={"forZones": [{"name": "b"}]}))
    changes = SliceChanges(unchanged=[same, other])
    set_traffic_hints(changes, "PreferSameZone")
    assert changes.unchanged == [same]
    assert changes.update[0]["endpoints"][0]["hints"] == {"forZones": [{"name": "a"}]}
    assert other["endpoints"][0]["hints"] == {"forZones": [{"name": "b"}]}
    remove_hints(changes)
    assert [it["endpoints"] for it in changes.update] == [[endpoint()], [endpoint()]]


def test_values_need_the_feature_gate_except_the_oldest():
    assert is_valid_traffic_distribution("PreferClose", prefer_same=False)
    assert not is_valid_traffic_distribution("PreferSameNode", prefer_same=False)
    assert is_valid_traffic_distribution("PreferSameNode", prefer_same=True)
    assert not is_valid_traffic_distribution(None, prefer_same=True)


def test_hints_that_no_longer_apply_are_removed():
    old = {"forZones": [{"name": "a"}]}
    bare = {"addresses": ["10.0.0.1"], "conditions": {"ready": True}, "hints": old}
    changes = SliceChanges(create=[one_slice(dict(bare))], unchanged=[one_slice(dict(bare))])
    set_traffic_hints(changes, "PreferClose")
    assert changes.unchanged == []
    for current in (*changes.create, *changes.update):
        assert ["hints" in it for it in current["endpoints"]] == [False]
