"""History of a StatefulSet or DaemonSet: ControllerRevisions, one per version of its template.

The functions decide, `ControllerHistory` lists and writes. Source: pkg/controller/history/controller_history.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.owners.adoption import adoption_patch
from kubeloop.controllers.runtime.owners.owner_references import (
    CONTROLLER_INDEX,
    controller_index_key,
    index_by_controller,
    orphan_index_key,
)
from kubeloop.controllers.runtime.revisions.name_hash import fnv1_32, safe_encode
from kubeloop.controllers.runtime.writes.object_patch import patch_object
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import AlreadyExists, Conflict
from kubeloop.kube.objects.api_types import ControllerRevision, JSONValue, Object, ObjectMeta, OwnerReference, to_json
from kubeloop.kube.objects.resources import CONTROLLER_REVISIONS
from kubeloop.kube.selectors.selectors import Selector

REVISION_HASH_LABEL = "controller.kubernetes.io/hash"

_MAX_PREFIX_LENGTH = 223
_CONFLICT_TRIES, _CONFLICT_BASE_SECONDS, _CONFLICT_FACTOR = 4, 0.01, 5.0
_BEGINNING = datetime.min.replace(tzinfo=UTC)
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def data_text(data: JSONValue) -> bytes:
    """Return the JSON text of a revision's data as Go encodes a map; its hash depends on every byte."""
    text: bytes = _encode_sorted(data)
    for character in ("&", "<", ">", "\u2028", "\u2029"):
        text = text.replace(character.encode(), f"\\u{ord(character):04x}".encode())
    return text


def revision_hash(data: JSONValue, collision_count: int | None) -> str:
    """Return the hash in the name and in the hash label of a revision."""
    probe = b"" if collision_count is None else str(collision_count).encode()
    return safe_encode(fnv1_32(data_text(data) + probe))


def revision_name(owner_name: str, hash_: str) -> str:
    return f"{owner_name[:_MAX_PREFIX_LENGTH]}-{hash_}"


def new_revision(
    owner: Object, template_labels: Mapping[str, str], data: JSONValue, number: int, collision_count: int | None
) -> ControllerRevision:
    """Return a revision of `owner` that is not yet created. data: the patch that restores the version."""
    hash_ = revision_hash(data, collision_count)
    metadata = owner.metadata
    reference = OwnerReference(
        api_version=owner.api_version,
        kind=owner.kind,
        name=metadata.name,
        uid=metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    return ControllerRevision(
        api_version=CONTROLLER_REVISIONS.api_version,
        kind=CONTROLLER_REVISIONS.kind,
        metadata=ObjectMeta(
            name=revision_name(metadata.name, hash_),
            namespace=metadata.namespace,
            labels={**template_labels, REVISION_HASH_LABEL: hash_},
            owner_references=(reference,),
        ),
        data=data,
        revision=number,
    )


def sorted_revisions(revisions: Iterable[ControllerRevision]) -> list[ControllerRevision]:
    """Return the revisions by number, then by time of creation and name."""
    return sorted(
        revisions, key=lambda it: (it.revision, it.metadata.creation_timestamp or _BEGINNING, it.metadata.name)
    )


def equal_revisions(revisions: Iterable[ControllerRevision], revision: ControllerRevision) -> list[ControllerRevision]:
    """Return those of `revisions` with the data of `revision`, in order."""
    return [candidate for candidate in revisions if candidate.data == revision.data]


def next_revision_number(revisions: Sequence[ControllerRevision]) -> int:
    """Return the number of a new revision after sorted `revisions`."""
    return revisions[-1].revision + 1 if revisions else 1


def surplus_revisions(
    revisions: Sequence[ControllerRevision], live: Collection[str], limit: int, *, limit_includes_live: bool = False
) -> list[ControllerRevision]:
    """Return the oldest of sorted `revisions` that exceed the history limit.

    live: names of revisions that Pods have or will have, which are never returned. limit_includes_live: True if they
    count towards the limit (DaemonSet), False if not (StatefulSet).
    """
    old = [revision for revision in revisions if revision.metadata.name not in live]
    count = len(revisions if limit_includes_live else old)
    return old[: max(0, count - limit)]


class ControllerHistory:
    """Lists and writes the ControllerRevisions of one controller's objects."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._revisions = context.informers.informer(CONTROLLER_REVISIONS).store
        self._revisions.add_index(CONTROLLER_INDEX, index_by_controller)

    def list(self, owner: Object, selector: Selector) -> list[ControllerRevision]:
        """Return the cached revisions that `selector` matches and that `owner` or no controller owns."""
        index_keys = (controller_index_key(owner), orphan_index_key(owner.metadata.namespace))
        return [
            revision
            for index_key in index_keys
            for revision in self._revisions.by_index(CONTROLLER_INDEX, index_key)
            if selector.matches(revision.metadata.labels)
        ]

    async def create(
        self, owner: Object, revision: ControllerRevision, collision_count: int
    ) -> tuple[ControllerRevision, int]:
        """Create a revision. Returns it, or the existing one with the same name and data, and the collision count.

        The name changes with the count, which grows by one for each existing name with other data.
        """
        namespace = owner.metadata.namespace
        body = to_json(revision)
        body["data"] = msgspec.Raw(data_text(revision.data))
        while True:
            name = revision_name(owner.metadata.name, revision_hash(revision.data, collision_count))
            body["metadata"]["name"] = name
            try:
                return await self._client.create(CONTROLLER_REVISIONS, body, namespace), collision_count
            except AlreadyExists:
                existing = await self._client.get(CONTROLLER_REVISIONS, name, namespace)
                if existing.data == revision.data:
                    return existing, collision_count
                collision_count += 1

    async def update(self, revision: ControllerRevision, number: int) -> ControllerRevision:
        """Set the number of a revision. Retries conflicts from the cache, as client-go's RetryOnConflict."""
        seconds = _CONFLICT_BASE_SECONDS
        for tries_left in range(_CONFLICT_TRIES - 1, -1, -1):
            if revision.revision == number:
                return revision
            body = {"metadata": {"resourceVersion": revision.metadata.resource_version}, "revision": number}
            try:
                return await patch_object(self._client, CONTROLLER_REVISIONS, revision, body)
            except Conflict:
                if not tries_left:
                    raise
            await asyncio.sleep(seconds)
            seconds *= _CONFLICT_FACTOR
            revision = self._revisions.get(revision.key) or revision
        raise AssertionError("unreachable")

    async def delete(self, revision: ControllerRevision) -> None:
        metadata = revision.metadata
        await self._client.delete(
            CONTROLLER_REVISIONS, metadata.name, metadata.namespace, precondition_uid=metadata.uid
        )

    async def adopt(self, owner: Object, revision: ControllerRevision) -> ControllerRevision:
        """Make `owner` the controller of an orphan."""
        return await self.patch(revision, adoption_patch(owner, revision))

    async def patch(self, revision: ControllerRevision, body: JSONValue) -> ControllerRevision:
        """Send a strategic merge patch."""
        return await patch_object(self._client, CONTROLLER_REVISIONS, revision, body, PatchType.STRATEGIC)
