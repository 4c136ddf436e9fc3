"""Events under their two API groups: stored as core/v1, seen as events.k8s.io/v1 where that is asked for.

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
    """The core/v1 Event of an events.k8s.io/v1 one."""
    renamed = {_TO_CORE.get(name, name): value for name, value in obj.items()}
    return normalize(EVENTS, {**renamed, "kind": "Event", "apiVersion": EVENTS.api_version})


def event_from_core(obj: JSON) -> JSON:
    """The events.k8s.io/v1 Event of a core/v1 one."""
    renamed = {_FROM_CORE.get(name, name): value for name, value in obj.items()}
    return normalize(EVENTS_V1, {**renamed, "kind": "Event", "apiVersion": EVENTS_V1.api_version})
