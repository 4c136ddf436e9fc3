"""Results of the readers of a recorded cluster: changes in the order of time, states, and findings.

A change refers to its resource by name, as kubectl does: "pods", "deployments.apps".
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.values.times import time_plus

ChangeType = Literal["ADDED", "MODIFIED", "DELETED", "LISTED", "GAP", "RESTART"]


_CHECKED_SECONDS: Final = 60.0  # a checksum follows a line within this time


class RecordedChange(NamedTuple):
    """One change of an object, or a remark about the recording.

    seconds: since the start of the recording. initial: of the first list of its resource: the object existed before.
    object: of DELETED the last state; None if the change is of no object. before: the state that it replaces. LISTED:
    the first list of `resource` is complete. GAP: changes of `resource` are missing; those that follow at the same time
    are the difference. RESTART: changes of all resources are missing until the LISTED of each.
    """

    seconds: float
    type: ChangeType
    resource: str = ""
    key: str = ""
    object: JSON | None = None
    before: JSON | None = None
    initial: bool = False


class Finding(msgspec.Struct, frozen=True):
    """Something of the input that is not used, or not complete.

    place: file and line. subject: the object. problem, effect: what is wrong, and what it means for the result.
    """

    place: str
    problem: str
    effect: str
    subject: str = ""

    def __str__(self) -> str:
        subject = f"{self.subject}: " if self.subject else ""
        return f"{self.place}: {subject}{self.problem}; {self.effect}"


class ClusterState(msgspec.Struct):
    """All objects at one time. objects: by resource, then by key ("namespace/name", or the name)."""

    moment: datetime
    objects: dict[str, dict[str, JSON]] = {}

    def of(self, resource: Resource[Any]) -> dict[str, JSON]:
        """Return the objects of a resource by key."""
        return self.objects.get(resource.group_resource, {})

    def put(self, resource: Resource[Any], obj: JSON) -> None:
        """Add or replace an object."""
        self.objects.setdefault(resource.group_resource, {})[key_of(obj)] = obj


class Recording(Protocol):
    """A cluster over time. changes() begins with the objects that exist at the start.

    name: of the file, for messages. findings: complete when changes() has ended. is_projected: objects lack what a
    recording leaves out (see projection.py). Objects without a UID were never stored by an API server.
    """

    name: str
    findings: list[Finding]
    is_projected: bool

    @property
    def start(self) -> datetime:
        """Time of 0 seconds."""
        ...

    def changes(self) -> Iterator[RecordedChange]: ...


def key_of(obj: JSON) -> str:
    """Return "namespace/name", or the name of an object without a namespace."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def apply_change(state: ClusterState, change: RecordedChange) -> None:
    """Apply a change of an object to the state."""
    if change.type == "DELETED":
        state.objects.get(change.resource, {}).pop(change.key, None)
    elif change.object is not None:
        state.objects.setdefault(change.resource, {})[change.key] = change.object


def state_at(recording: Recording, seconds: float | None = None) -> ClusterState:
    """Return the state so many seconds after the start; None: the last one."""
    state, latest = ClusterState(recording.start), 0.0
    for change in recording.changes():
        if seconds is not None and change.seconds > seconds and not change.initial:
            if change.seconds > seconds + _CHECKED_SECONDS:
                break
            continue
        apply_change(state, change)
        latest = change.seconds
    state.moment = time_plus(recording.start, latest if seconds is None else seconds)
    return state
