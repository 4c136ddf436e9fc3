"""Events of the simulation: fields, and names that do not repeat."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

from kubeloop.devcluster.simulation.store_event_recorder import StoreEventRecorder
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import EVENTS
from support.simulation.set_clock import SetClock

JSON = dict[str, Any]
POD: JSON = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web", "namespace": "shop", "uid": "u1"}}
NODE: JSON = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node-0", "uid": "u2"}}


def recorded(*objects: JSON, component: str = "kubelet", field_path: str = "") -> list[JSON]:
    """Return the events of the objects, all recorded at one time."""
    store = ObjectStore(seconds=lambda: 0.0)
    recorder = StoreEventRecorder(store, clock=SetClock(datetime(2026, 1, 1, tzinfo=UTC)), rng=random.Random(1))
    for obj in objects:
        recorder.record(obj, "Normal", "Started", "text", field_path=field_path, component=component, host="node-0")
    return store.list(EVENTS)


def test_event_of_kubelet_has_host_and_field_path():
    (event,) = recorded(POD, field_path="spec.containers{web}")
    assert event["metadata"]["namespace"] == "shop"
    assert event["involvedObject"] == {
        "kind": "Pod",
        "namespace": "shop",
        "name": "web",
        "uid": "u1",
        "apiVersion": "v1",
        "resourceVersion": "",
        "fieldPath": "spec.containers{web}",
    }
    assert event["source"] == {"component": "kubelet", "host": "node-0"}
    assert event["reportingInstance"] == "node-0"
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-01T00:00:00Z"
    assert (event["type"], event["reason"], event["message"], event["count"]) == ("Normal", "Started", "text", 1)


def test_event_of_controller_has_no_host():
    (event,) = recorded(POD, component="node-controller")
    assert event["source"] == {"component": "node-controller"}
    assert event["reportingInstance"] == ""
    assert "fieldPath" not in event["involvedObject"]


def test_event_of_cluster_scoped_object_is_in_namespace_default():
    (event,) = recorded(NODE)
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]


def test_events_at_the_same_time_have_different_names():
    events = recorded(POD, POD, POD)
    assert len({event["metadata"]["name"] for event in events}) == 3
    assert all(event["metadata"]["name"].startswith("web.") for event in events)
