"""Objects that are collected from files, and their changes: a `Recording` in memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES, Resource
from kubeloop.kube.user_error import UserError
from kubeloop.kube.values.times import parse_time
from kubeloop.recording.changes import Finding, RecordedChange, key_of
from kubeloop.recording.resources import resource_of_kind
from kubeloop.recording.validation import check_object

_AFTER_LAST_CHANGE_SECONDS: Final = 60.0
_DEFAULT_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_SERVER_FIELDS: Final = ("resourceVersion", "managedFields", "selfLink")


class CollectedRecording:
    """Objects and changes of other inputs than recordings. Objects without a UID were never stored by an API server."""

    is_projected = False

    def __init__(self, name: str, start: datetime | None = None) -> None:
        """start: time of 0 seconds; None: the latest time that an object has."""
        self.name = name
        self.findings: list[Finding] = []
        self._start = start
        self._latest = ""
        self._changes: list[RecordedChange] = []
        self._objects: dict[str, dict[str, JSON]] = {}
        self._unused: Counter[tuple[str, str]] = Counter()  # kind and apiVersion
        self._first_place: dict[tuple[str, str], str] = {}

    @property
    def start(self) -> datetime:
        if self._start is not None:
            return self._start
        match = _TIME.match(self._latest)
        return parse_time(f"{match[0]}Z") if match else _DEFAULT_START

    def changes(self) -> Iterator[RecordedChange]:
        """Yield the changes in the order of time."""
        yield from sorted(self._changes, key=lambda change: change.seconds)

    @property
    def seconds(self) -> float:
        """Return the length for a replay, in which the last change still has an effect."""
        return max((change.seconds for change in self._changes), default=0.0) + _AFTER_LAST_CHANGE_SECONDS

    def set_uids(self) -> None:
        """Give objects without a UID one, as the API server would have."""
        uids: dict[tuple[str, str], str] = {}
        for number, change in enumerate(self.changes()):
            place = change.resource, change.key
            if change.object is not None:
                given = change.object["metadata"].setdefault("uid", uids.get(place, f"{change.resource}/{number}"))
                uids[place] = given
            if change.type == "DELETED":
                uids.pop(place, None)

    def put(self, obj: JSON, place: str, *, seconds: float = 0.0) -> None:
        """Add an object, or its next state; place: file and line. A kind that is not recorded becomes a finding."""
        resource = self._resource(obj, place)
        if resource is None:
            return
        obj = _normalized(obj, resource)
        check_object(resource, obj, place)
        key = key_of(obj)
        objects = self._objects.setdefault(resource.group_resource, {})
        before = objects.get(key)
        if before is not None and seconds == 0.0:
            self.find(place, "the object occurs more than once", "the last one counts", f"{resource.singular} {key}")
        objects[key] = obj
        created = obj["metadata"].get("creationTimestamp")
        if isinstance(created, str):
            self._latest = max(self._latest, created)
        for condition in (obj.get("status") or {}).get("conditions") or ():
            self._latest = max(self._latest, str(condition.get("lastTransitionTime") or ""))
        is_initial = seconds == 0.0
        self._changes.append(
            RecordedChange(
                seconds,
                "ADDED" if before is None else "MODIFIED",
                resource.group_resource,
                key,
                obj,
                before,
                initial=is_initial,
            )
        )

    def delete(self, obj: JSON, place: str, *, seconds: float) -> None:
        """Delete an object. One that does not exist is a finding."""
        resource = self._resource(obj, place)
        if resource is None:
            return
        key = key_of(_normalized(obj, resource))
        before = self._objects.get(resource.group_resource, {}).pop(key, None)
        if before is None:
            self.find(place, "it is deleted, but was not created", "it is left out", f"{resource.singular} {key}")
            return
        self._changes.append(RecordedChange(seconds, "DELETED", resource.group_resource, key, before))

    def find(self, place: str, problem: str, effect: str, subject: str = "") -> None:
        """Add a finding."""
        self.findings.append(Finding(place, problem, effect, subject))

    def finish(self) -> CollectedRecording:
        """Add the findings about all objects; return the recording."""
        for (kind, api_version), count in sorted(self._unused.items()):
            self.find(
                self._first_place[kind, api_version],
                f"{count} {'objects' if count > 1 else 'object'} of kind {kind} ({api_version})",
                "this kind decides about no pod here, and is left out",
            )
        if not self._objects.get(NODES.group_resource):
            self.find(self.name, "there are no nodes", "no pod can be scheduled; add a file with nodes")
        return self

    def _resource(self, obj: JSON, place: str) -> Resource[Any] | None:
        kind, api_version = str(obj.get("kind", "")), str(obj.get("apiVersion", ""))
        resource = resource_of_kind(api_version, kind)
        if resource is None:
            self._unused[kind, api_version] += 1
            self._first_place.setdefault((kind, api_version), place)
            return None
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            raise UserError(f"{place}: {kind} without metadata.name", hint="every object needs a name")
        return resource


def _normalized(obj: JSON, resource: Resource[Any]) -> JSON:
    """Return the object in the version that is recorded, with a namespace, and without what an API server adds."""
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _SERVER_FIELDS}
    if resource.namespaced:
        metadata["namespace"] = metadata.get("namespace") or "default"
    else:
        metadata.pop("namespace", None)
    return {**obj, "apiVersion": resource.api_version, "metadata": metadata}
