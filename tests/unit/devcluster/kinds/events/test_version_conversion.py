"""Conversion of Events between core/v1 and events.k8s.io/v1."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.kinds.events.version_conversion import event_from_core, event_to_core

CORE: dict[str, Any] = {
    "kind": "Event",
    "apiVersion": "v1",
    "metadata": {"name": "e", "namespace": "ns"},
    "involvedObject": {"kind": "Pod", "name": "p"},
    "message": "started",
    "reason": "Started",
    "source": {"component": "kubelet"},
    "firstTimestamp": "2026-01-01T00:00:00Z",
    "lastTimestamp": "2026-01-01T00:00:01Z",
    "count": 2,
    "reportingComponent": "kubelet",
}
NEW: dict[str, Any] = {
    "kind": "Event",
    "apiVersion": "events.k8s.io/v1",
    "metadata": {"name": "e", "namespace": "ns"},
    "regarding": {"kind": "Pod", "name": "p"},
    "note": "started",
    "reason": "Started",
    "deprecatedSource": {"component": "kubelet"},
    "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z",
    "deprecatedLastTimestamp": "2026-01-01T00:00:01Z",
    "deprecatedCount": 2,
    "reportingController": "kubelet",
}


def without_unset_fields(obj: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in obj.items() if value not in (None, "", {})}


def test_event_of_core_in_the_newer_version():
    assert without_unset_fields(event_from_core(CORE)) == NEW


def test_event_of_the_newer_version_in_core():
    assert without_unset_fields(event_to_core(NEW)) == CORE
