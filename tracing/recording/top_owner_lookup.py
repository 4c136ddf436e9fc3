"""Top owners of pods of Jobs: labels and annotations of a pod name neither the CronJob nor another owner of its Job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubeloop.kube.objects.api_types import OwnerReference
from kubeloop.kube.objects.resources import JOBS
from kubeloop.tracing.spans.pod_record import PodRecord

MAX_UNRESOLVED: Final = 10_000  # records that wait for their topmost owner; further ones show the controller only

FindTopOwner = Callable[[str, OwnerReference], tuple[str, str] | None]
"""Namespace and controller of a pod -> kind and name of its topmost owner; None if it is not known yet."""


def controller_is_top_owner(namespace: str, controller: OwnerReference) -> tuple[str, str]:
    """Return the controller itself: the FindTopOwner of a process that cannot look up others."""
    return controller.kind, controller.name


class TopOwnerLookup:
    """Adds the topmost owner to records of pods of Jobs that another process created."""

    def __init__(self, find: FindTopOwner) -> None:
        """`find` must not block."""
        self._find = find
        self._unresolved: dict[str, tuple[PodRecord, OwnerReference]] = {}  # by UID

    def add(self, record: PodRecord, controller: OwnerReference | None) -> None:
        """Add the topmost owner to the record, now or in a later resolve()."""
        if controller is None or controller.kind != JOBS.kind or record.top_owner_kind:
            return
        if not self._resolve(record, controller) and len(self._unresolved) < MAX_UNRESOLVED:
            self._unresolved[record.uid] = record, controller

    def has_unresolved(self) -> bool:
        return bool(self._unresolved)

    def resolve(self) -> None:
        """Add the topmost owners that have become known, also to finished records."""
        for uid, (record, controller) in [*self._unresolved.items()]:
            if self._resolve(record, controller):
                del self._unresolved[uid]

    def _resolve(self, record: PodRecord, controller: OwnerReference) -> bool:
        """Add the topmost owner; return False if it is not known yet."""
        top_owner = self._find(record.namespace, controller)
        if top_owner is not None and top_owner != (controller.kind, controller.name):
            record.top_owner_kind, record.top_owner_name = top_owner
            record.finished_facts += 1  # views compare it
            record.is_journaled = False
        return top_owner is not None
