"""Adoption and release: which objects a controller owns, which it adopts and which it releases.

An object that matches the selector and has no controller is adopted; an owned object that no longer matches is
released. The decision is `decide_claim`, a pure function; `claim_objects` sends the patches. Source:
PodControllerRefManager and ReplicaSetControllerRefManager in pkg/controller/controller_ref_manager.go.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, TypeVar

from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.controllers.runtime.writes.object_patch import patch_object
from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.errors import ApiError, Invalid, NotFound
from kubeloop.kube.objects.api_types import JSONValue, LabelSelector, Object
from kubeloop.kube.objects.object_fields import controller_of, controller_reference
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.selectors.selectors import Selector, SelectorError, selector_from
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

T = TypeVar("T", bound=Object)


class Claim(Enum):
    """Relation of a controller to an object, or the change of it that is due."""

    OWNED = "owned"
    IGNORE = "ignore"
    ADOPT = "adopt"
    RELEASE = "release"


class CannotAdopt(ReconcileError):
    """The owner, read again before its first adoption, is being deleted or has another UID."""


class ClaimErrors(ReconcileError):
    """Some adoptions or releases failed. `errors` holds the failures, `claimed` the objects that were claimed."""

    def __init__(self, errors: Sequence[Exception], claimed: Sequence[Object]) -> None:
        super().__init__("; ".join(str(error) for error in errors))
        self.errors = tuple(errors)
        self.claimed = tuple(claimed)


def decide_claim(owner: Object, obj: Object, selector: Selector, *, is_member: bool = True) -> Claim:
    """Return whether `owner` owns, adopts, releases or ignores `obj`.

    is_member: False if `owner` cannot have `obj` although the selector matches, such as for its name.
    """
    reference = controller_of(obj.metadata)
    owner_deleted = owner.metadata.deletion_timestamp is not None
    if reference is not None:
        if reference.uid != owner.metadata.uid:
            return Claim.IGNORE
        if is_member and selector.matches(obj.metadata.labels):
            return Claim.OWNED
        return Claim.IGNORE if owner_deleted else Claim.RELEASE
    if owner_deleted or obj.metadata.deletion_timestamp is not None:
        return Claim.IGNORE
    if not is_member or not selector.matches(obj.metadata.labels):
        return Claim.IGNORE
    if owner.metadata.namespace and owner.metadata.namespace != obj.metadata.namespace:
        return Claim.IGNORE
    return Claim.ADOPT


def possible_owners(
    orphan: Object, owners: Iterable[T], selector_of: Callable[[T], LabelSelector | None]
) -> Iterator[T]:
    """Return the owners that select an orphan and may adopt it. An empty or invalid selector selects nothing here."""
    labels = orphan.metadata.labels
    if not labels:
        return
    for owner in owners:
        try:
            selector = selector_from(selector_of(owner))
        except SelectorError:
            continue
        if not selector.empty and selector.matches(labels):
            yield owner


def adoption_patch(owner: Object, obj: Object, finalizer: str = "") -> JSONValue:
    """Return the strategic merge patch that makes `owner` the controller of `obj`, with the UID as precondition.

    finalizer: added, if there is one.
    """
    finalizers = {"finalizers": [finalizer]} if finalizer else {}
    return {"metadata": {"ownerReferences": [controller_reference(owner)], "uid": obj.metadata.uid, **finalizers}}


def release_patch(owner: Object, obj: Object, finalizer: str = "") -> JSONValue:
    """Return the strategic merge patch that removes `owner` from the owner references of `obj`, and a finalizer."""
    finalizers = {"$deleteFromPrimitiveList/finalizers": [finalizer]} if finalizer else {}
    return {
        "metadata": {
            "uid": obj.metadata.uid,
            "ownerReferences": [{"$patch": "delete", "uid": owner.metadata.uid}],
            **finalizers,
        }
    }


def check_can_adopt(owner: Object, fresh: Object) -> None:
    """Raise CannotAdopt unless `fresh`, just read from the API server, is `owner` and is not being deleted."""
    metadata = fresh.metadata
    if metadata.uid != owner.metadata.uid:
        raise CannotAdopt(
            f"original {owner.kind} {owner.key} is gone: got uid {metadata.uid}, wanted {owner.metadata.uid}"
        )
    if metadata.deletion_timestamp is not None:
        raise CannotAdopt(f"{fresh.key} has just been deleted at {metadata.deletion_timestamp}")


async def claim_cached(
    client: ApiClient,
    owner_resource: Resource[Any],
    owner: Object,
    resource: Resource[T],
    objects: Iterable[T],
    selector: Selector,
    reconcile: Reconcile,
    *,
    wrote: Callable[[T, Claim], object] = lambda _object, _claim: None,
    finalizer: str = "",
    is_member: Callable[[T], bool] = lambda _object: True,
) -> list[T]:
    """Claim objects of an informer's cache with requests to the API server; see `claim_objects`.

    wrote: called with the response to each patch.
    """

    async def read_fresh() -> Object:
        fresh: Object = await client.get(owner_resource, owner.metadata.name, owner.metadata.namespace)
        return fresh

    async def patch(obj: T, body: JSONValue, claim: Claim) -> None:
        with reconcile.action_span(f"{claim.value} {resource.singular} {obj.metadata.name}"):
            written = await patch_object(client, resource, obj, body, PatchType.STRATEGIC)
        wrote(written, claim)

    return await claim_objects(
        owner, objects, selector, read_fresh=read_fresh, patch=patch, finalizer=finalizer, is_member=is_member
    )


async def claim_objects(
    owner: Object,
    objects: Iterable[T],
    selector: Selector,
    *,
    read_fresh: Callable[[], Awaitable[Object]],
    patch: Callable[[T, JSONValue, Claim], Awaitable[None]],
    finalizer: str = "",
    is_member: Callable[[T], bool] = lambda _object: True,
) -> list[T]:
    """Adopt and release objects as needed, and return those that `owner` then controls, in order.

    Before the first adoption `read_fresh` reads `owner` again: if it was deleted and recreated under the same name,
    the new owner must not lose its Pods to the old one. finalizer: added by adoption, removed by release.
    is_member: see `decide_claim`. Raises ClaimErrors after all objects were tried. Cancellation: safe.
    """
    claimed: list[T] = []
    errors: list[Exception] = []
    checked = False
    refusal: Exception | None = None
    for obj in objects:
        claim = decide_claim(owner, obj, selector, is_member=is_member(obj))
        if claim is Claim.OWNED:
            claimed.append(obj)
        elif claim is Claim.RELEASE:
            try:
                await patch(obj, release_patch(owner, obj, finalizer), claim)
            except (NotFound, Invalid):
                pass  # deleted, owned by another controller, or replaced under the same name: nothing to release
            except ApiError as error:
                errors.append(error)
        elif claim is Claim.ADOPT:
            if not checked:
                checked = True
                try:
                    check_can_adopt(owner, await read_fresh())
                except CannotAdopt as error:
                    refusal = error
                except ApiError as error:
                    refusal = CannotAdopt(f"can't recheck DeletionTimestamp: {error}")
                    refusal.__cause__ = error
            if refusal is not None:
                errors.append(CannotAdopt(f"can't adopt {obj.kind} {obj.key} ({obj.metadata.uid}): {refusal}"))
                continue
            try:
                await patch(obj, adoption_patch(owner, obj, finalizer), claim)
                claimed.append(obj)
            except NotFound:
                pass  # deleted in the meantime
            except ApiError as error:
                errors.append(error)
    if errors:
        raise ClaimErrors(errors, claimed)
    return claimed
