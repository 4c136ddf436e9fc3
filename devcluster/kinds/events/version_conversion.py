"""Conversion of Events between core/v1, in which they are stored, and events.k8s.io/v1.

Source: pkg/apis/events/v1/conversion.go.
"""

from __future__ import annotations

from kubeloop.devcluster.api.served_resources import EVENTS_V1
from kubeloop.devcluster.serializer.decoding import normalize
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import EVENTS

_TO_CORE = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_FROM_CORE = {core: name for name, core in _TO_CORE.items()}


def event_to_core(obj: JSON) -> JSON:
    """Convert an events.k8s.io/v1 Event to core/v1."""
    renamed = {_TO_CORE.get(name, name): value for name, value in obj.items()}
    return normalize(EVENTS, {**renamed, "kind": "Event", "apiVersion": EVENTS.api_version})


def event_from_core(obj: JSON) -> JSON:
    """Convert a core/v1 Event to events.k8s.io/v1."""
    renamed = {_FROM_CORE.get(name, name): value for name, value in obj.items()}
    return normalize(EVENTS_V1, {**renamed, "kind": "Event", "apiVersion": EVENTS_V1.api_version})
