"""ControllerRevisions of a DaemonSet: one per version of its template.

Source: constructHistory, dedupCurHistories, cleanupHistory and snapshot in v1.36 pkg/controller/daemon/update.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from msgspec import Raw

from kubeloop.controllers.daemonset.daemon_pods import REVISION_LABEL
from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.owners.adoption import claim_cached
from kubeloop.controllers.runtime.revisions.controller_history import (
    ControllerHistory,
    data_text,
    sorted_revisions,
    surplus_revisions,
)
from kubeloop.controllers.runtime.revisions.pod_template_hash import pod_template_hash
from kubeloop.controllers.runtime.writes.object_patch import patch_object, patch_status
from kubeloop.kube.errors import AlreadyExists
from kubeloop.kube.objects.api_types import ControllerRevision, DaemonSet, JSONValue, Pod
from kubeloop.kube.objects.object_fields import controller_reference
from kubeloop.kube.objects.resources import CONTROLLER_REVISIONS, DAEMON_SETS, PODS
from kubeloop.kube.selectors.selectors import Selector
from kubeloop.tracing.recording.reconcile_recorder import Reconcile


class HashCollision(ReconcileError):
    """Another template has the name of the new revision; the next sync uses another one."""


class DaemonSetRevisions(NamedTuple):
    """current: those with the template of the DaemonSet. old: all others. Both by number."""

    current: list[ControllerRevision]
    old: list[ControllerRevision]

    @property
    def next_number(self) -> int:
        """The number of the current revision: larger than that of all others."""
        return self.old[-1].revision + 1 if self.old else 1


def revision_data(daemon_set: DaemonSet) -> JSONValue:
    """Return the patch that restores the template of a DaemonSet."""
    return {"spec": {"template": {**daemon_set.spec.template, "$patch": "replace"}}}


def split_revisions(daemon_set: DaemonSet, revisions: Iterable[ControllerRevision]) -> DaemonSetRevisions:
    data = revision_data(daemon_set)
    split = DaemonSetRevisions([], [])
    for revision in sorted_revisions(revisions):
        (split.current if revision.data == data else split.old).append(revision)
    return split


def revisions_to_delete(
    daemon_set: DaemonSet, old: Sequence[ControllerRevision], live_hashes: Collection[str]
) -> list[ControllerRevision]:
    """Return the oldest of `old` that exceed spec.revisionHistoryLimit. live_hashes: revisions that pods have."""
    live = {revision.metadata.name for revision in old if revision.metadata.labels.get(REVISION_LABEL) in live_hashes}
    limit = daemon_set.spec.revision_history_limit
    return surplus_revisions(old, live, 10 if limit is None else limit, limit_includes_live=True)


class DaemonSetHistory:
    """Reads and writes the revisions of DaemonSets."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._history = ControllerHistory(context)

    async def sync(
        self, daemon_set: DaemonSet, selector: Selector, owned_pods: Callable[[], Iterable[Pod]], reconcile: Reconcile
    ) -> DaemonSetRevisions:
        """Return the revisions, with exactly one current one, after the writes that this takes.

        owned_pods: returns the pods that get the label of the current revision if there were several.
        """
        revisions = await self._claim(daemon_set, selector, reconcile)
        for index, revision in enumerate(revisions):
            if REVISION_LABEL not in revision.metadata.labels:
                label = {"metadata": {"labels": {REVISION_LABEL: revision.metadata.name}}}
                with reconcile.action_span(f"label controllerrevision {revision.metadata.name}"):
                    revisions[index] = await self._history.patch(revision, label)
        split = split_revisions(daemon_set, revisions)
        number = split.next_number
        if not split.current:
            return DaemonSetRevisions([await self._create(daemon_set, number, reconcile)], split.old)
        *duplicates, current = split.current
        if duplicates:
            await self._remove_duplicates(duplicates, current, owned_pods, reconcile)
        if current.revision < number:
            with reconcile.action_span(f"update controllerrevision {current.metadata.name}"):
                await self._history.update(current, number)
        return DaemonSetRevisions([current], split.old)

    async def delete(self, revisions: Iterable[ControllerRevision], reconcile: Reconcile) -> None:
        for revision in revisions:
            with reconcile.action_span(f"delete controllerrevision {revision.metadata.name}"):
                await self._history.delete(revision)

    async def _claim(self, daemon_set: DaemonSet, selector: Selector, reconcile: Reconcile) -> list[ControllerRevision]:
        revisions = self._history.list(daemon_set, selector)
        return await claim_cached(
            self._client, DAEMON_SETS, daemon_set, CONTROLLER_REVISIONS, revisions, selector, reconcile
        )

    async def _create(self, daemon_set: DaemonSet, number: int, reconcile: Reconcile) -> ControllerRevision:
        """Create the current revision, or return it if it exists. Raises HashCollision."""
        metadata, template = daemon_set.metadata, daemon_set.spec.template
        data = revision_data(daemon_set)
        collision_count = daemon_set.status.collision_count
        hash_ = pod_template_hash(template, collision_count)
        name = f"{metadata.name}-{hash_}"
        body: dict[str, JSONValue] = {
            "apiVersion": CONTROLLER_REVISIONS.api_version,
            "kind": CONTROLLER_REVISIONS.kind,
            "metadata": {
                "name": name,
                "labels": {**((template.get("metadata") or {}).get("labels") or {}), REVISION_LABEL: hash_},
                "annotations": metadata.annotations,
                "ownerReferences": [controller_reference(daemon_set)],
            },
            "data": Raw(data_text(data)),
            "revision": number,
        }
        try:
            with reconcile.action_span(f"create controllerrevision {name}"):
                return await self._client.create(CONTROLLER_REVISIONS, body, metadata.namespace)
        except AlreadyExists:
            existing = await self._client.get(CONTROLLER_REVISIONS, name, metadata.namespace)
            if existing.data == data:
                return existing
        fresh = await self._client.get(DAEMON_SETS, metadata.name, metadata.namespace)
        if fresh.status.collision_count != collision_count:
            raise HashCollision(
                f"found a stale collision count ({collision_count}, expected {fresh.status.collision_count}) of "
                f'DaemonSet "{metadata.name}" while processing; will retry until it is updated'
            )
        await patch_status(self._client, DAEMON_SETS, fresh, {"collisionCount": (collision_count or 0) + 1})
        raise HashCollision(f'controllerrevisions.apps "{name}" already exists')

    async def _remove_duplicates(
        self,
        duplicates: Iterable[ControllerRevision],
        current: ControllerRevision,
        owned_pods: Callable[[], Iterable[Pod]],
        reconcile: Reconcile,
    ) -> None:
        hash_ = current.metadata.labels[REVISION_LABEL]
        for pod in owned_pods():
            if pod.metadata.labels.get(REVISION_LABEL) != hash_:
                label = {"metadata": {"labels": {REVISION_LABEL: hash_}}}
                with reconcile.action_span(f"label pod {pod.metadata.name}"):
                    await patch_object(self._client, PODS, pod, label)
        await self.delete(duplicates, reconcile)
