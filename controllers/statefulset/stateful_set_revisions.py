"""Revisions of a StatefulSet: which ControllerRevision its template has, and which are deleted.

Functions decide, `RevisionSync` applies. Source: getStatefulSetRevisions, newRevision and truncateHistory in
pkg/controller/statefulset.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec.structs import replace

from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.revisions.controller_history import (
    ControllerHistory,
    equal_revisions,
    new_revision,
    next_revision_number,
    sorted_revisions,
    surplus_revisions,
)
from kubeloop.controllers.statefulset.stateful_pods import revision_of
from kubeloop.controllers.statefulset.stateful_set_plan import StatefulSetRevisions
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import ApiError, NotFound
from kubeloop.kube.objects.api_types import ControllerRevision, JSONValue, Pod, StatefulSet
from kubeloop.kube.objects.object_fields import controller_of
from kubeloop.kube.objects.resources import CONTROLLER_REVISIONS, STATEFUL_SETS
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

_MAX_EQUAL_REVISIONS = 10_000


def revision_data(template: dict[str, JSONValue]) -> JSONValue:
    """Return the data of a revision: the strategic merge patch that restores the template."""
    return {"spec": {"template": {**template, "$patch": "replace"}}}


def proposed_revision(
    sts: StatefulSet, revisions: Sequence[ControllerRevision], collision_count: int
) -> ControllerRevision:
    """Return the revision of the present template as it is created if there is no equal one yet."""
    template = sts.spec.template
    labels = (template.get("metadata") or {}).get("labels") or {}
    number = next_revision_number(revisions)
    revision = new_revision(sts, labels, revision_data(template), number, collision_count)
    return replace(revision, metadata=replace(revision.metadata, annotations=sts.metadata.annotations))


Choice = Literal["keep", "roll back", "create"]


def choose_revision(
    revisions: Sequence[ControllerRevision], proposed: ControllerRevision
) -> tuple[Choice, ControllerRevision]:
    """Return the update revision, and how to get it.

    "keep": the latest of the sorted revisions is equal. "roll back": an older one is equal and gets the next number.
    """
    equal = equal_revisions(revisions, proposed)
    if not equal:
        return "create", proposed
    return ("keep" if equal[-1] is revisions[-1] else "roll back"), equal[-1]


def current_revision(sts: StatefulSet, revisions: Iterable[ControllerRevision]) -> ControllerRevision | None:
    """Return the revision named in the status, if it is one of `revisions`."""
    name = sts.status.current_revision
    return next((revision for revision in revisions if revision.metadata.name == name), None)


class RevisionSync:
    """Creates, renumbers and deletes the ControllerRevisions of StatefulSets."""

    def __init__(self, context: ControllerContext, history: ControllerHistory) -> None:
        self._client = context.client
        self._history = history
        self._compares_defaults = context.feature_gates.enabled("StatefulSetSemanticRevisionComparison")
        # (UID, generation of the StatefulSet, resourceVersion of the revision) of equal ones, in order of insertion
        self._equal: dict[tuple[str, int, str], None] = {}

    async def sync(
        self, sts: StatefulSet, revisions: Sequence[ControllerRevision], reconcile: Reconcile
    ) -> tuple[StatefulSetRevisions, int]:
        """Return current and update revision, which may be created or renumbered, and the collision count."""
        revisions = sorted_revisions(revisions)
        collision_count = sts.status.collision_count or 0
        proposed = proposed_revision(sts, revisions, collision_count)
        choice, update = choose_revision(revisions, proposed)
        if choice == "roll back":
            with reconcile.action_span(f"update controllerrevision {update.metadata.name}"):
                update = await self._history.update(update, proposed.revision)
        elif choice == "create":
            if revisions and await self._restores_same_template(sts, proposed, revisions[-1]):
                update = revisions[-1]
            else:
                with reconcile.action_span("create controllerrevision"):
                    update, collision_count = await self._history.create(sts, proposed, collision_count)
        current = current_revision(sts, [*revisions, update]) or await self._read_current(sts) or update
        return StatefulSetRevisions(current, update), collision_count

    async def _read_current(self, sts: StatefulSet) -> ControllerRevision | None:
        """Return the revision named in the status, which the cache does not show, from the API server.

        v1.36 takes the update revision instead, and creates pods of it below the partition.
        """
        name = sts.status.current_revision
        if not name:
            return None
        try:
            revision = await self._client.get(CONTROLLER_REVISIONS, name, sts.metadata.namespace)
        except NotFound:
            return None
        owner = controller_of(revision.metadata)
        return revision if owner is not None and owner.uid == sts.metadata.uid else None

    async def _restores_same_template(
        self, sts: StatefulSet, proposed: ControllerRevision, latest: ControllerRevision
    ) -> bool:
        """Return True if `latest` differs only in fields that the API server sets to their defaults.

        Such a revision was written by an older version of Kubernetes. The API server applies it in a dry run.
        """
        if not self._compares_defaults:
            return False
        metadata = sts.metadata
        comparison = metadata.uid, metadata.generation, latest.metadata.resource_version
        if comparison in self._equal:
            return True
        try:
            restored = await self._client.patch(
                STATEFUL_SETS,
                metadata.name,
                latest.data,
                PatchType.STRATEGIC,
                metadata.namespace,
                query={"dryRun": "All"},
            )
        except ApiError:  # invalid by now, or not allowed: another revision is created
            return False
        if revision_data(restored.spec.template) != proposed.data:
            return False
        if len(self._equal) >= _MAX_EQUAL_REVISIONS:
            del self._equal[next(iter(self._equal))]
        self._equal[comparison] = None
        return True

    async def truncate(
        self,
        sts: StatefulSet,
        listed: Sequence[ControllerRevision],
        revisions: StatefulSetRevisions,
        pods: Iterable[Pod],
        reconcile: Reconcile,
    ) -> None:
        """Delete the oldest revisions beyond the history limit that no Pod has."""
        limit = sts.spec.revision_history_limit
        if limit is None or limit < 0 or len(listed) <= limit:
            return
        live = {revision_of(pod) for pod in pods}
        live |= {revisions.current.metadata.name, revisions.update.metadata.name}
        for revision in surplus_revisions(sorted_revisions(listed), live, limit):
            with reconcile.action_span(f"delete controllerrevision {revision.metadata.name}"):
                await self._history.delete(revision)
