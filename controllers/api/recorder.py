"""Recorder of Events about objects in both forms. Source: client-go tools/record."""

from __future__ import annotations

from kubeloop.controllers.api.objects import ApiObject, kind_of, metadata_of
from kubeloop.kube.events.event_recorder import EventSink, EventType
from kubeloop.kube.objects.api_types import Object, ObjectReference


class EventRecorder:
    """Records Events of one controller; they are aggregated, and sent in the background."""

    def __init__(self, events: EventSink) -> None:
        self._events = events

    def event(self, obj: ApiObject, type_: EventType, reason: str, message: str, *, action: str = "") -> None:
        """Record an Event about an object. Never blocks, never raises.

        reason: a word in CamelCase. action: what the controller did or tried.
        """
        self._events.event(_reference(obj), type_, reason, message, action=action)


def _reference(obj: ApiObject) -> Object | ObjectReference:
    if isinstance(obj, Object):
        return obj
    metadata = metadata_of(obj)
    api_version, kind = kind_of(obj)
    return ObjectReference(
        api_version=api_version,
        kind=kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )
