"""Claims: which objects a controller owns, which it adopts and which it lets go.

An object that matches the selector and has no controller is adopted; one of ours that matches no longer is released.
The decision is `decide_claim`, a pure function; `claim_objects` sends the patches. Source: PodControllerRefManager and
ReplicaSetControllerRefManager in pkg/controller/controller_ref_manager.go.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from typing import TypeVar

from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.controllers.runtime.owner_references import controller_of, controller_reference
from kubeloop.kube.errors import ApiError, Invalid, NotFound
from kubeloop.kube.objects.api_types import JSON, Object
from kubeloop.kube.selectors import Selector

T = TypeVar("T", bound=Object)


class Claim(Enum):
    OURS = "ours"
    NOT_OURS = "not ours"
    ADOPT = "adopt"
    RELEASE = "release"


class CannotAdopt(ReconcileError):
    """The controller turned out to be deleted, or another one, when it was read again before its first adoption."""


class ClaimErrors(ReconcileError):
    """Some adoptions or releases failed: `errors` holds each failure, `claimed` what was claimed nevertheless."""

    def __init__(self, errors: Sequence[Exception], claimed: Sequence[Object]) -> None:
        super().__init__("; ".join(str(error) for error in errors))
        self.errors = tuple(errors)
        self.claimed = tuple(claimed)


def decide_claim(owner: Object, obj: Object, selector: Selector) -> Claim:
    """What `owner` is to do about `obj`."""
    reference = controller_of(obj.metadata)
    deleted = owner.metadata.deletion_timestamp is not None
    if reference is not None:
        if reference.uid != owner.metadata.uid:
            return Claim.NOT_OURS
        if selector.matches(obj.metadata.labels):
            return Claim.OURS
        return Claim.NOT_OURS if deleted else Claim.RELEASE
    if deleted or obj.metadata.deletion_timestamp is not None or not selector.matches(obj.metadata.labels):
        return Claim.NOT_OURS
    if owner.metadata.namespace and owner.metadata.namespace != obj.metadata.namespace:
        return Claim.NOT_OURS
    return Claim.ADOPT


def adoption_patch(owner: Object, obj: Object) -> JSON:
    """Strategic merge patch that makes `owner` the controller of `obj`; the uid pins the very object."""
    return {"metadata": {"ownerReferences": [controller_reference(owner)], "uid": obj.metadata.uid}}


def release_patch(owner: Object, obj: Object) -> JSON:
    """Strategic merge patch that removes `owner` from the owners of `obj`."""
    return {
        "metadata": {
            "uid": obj.metadata.uid,
            "ownerReferences": [{"$patch": "delete", "uid": owner.metadata.uid}],
        }
    }


def check_can_adopt(owner: Object, fresh: Object) -> None:
    """Raise CannotAdopt unless `fresh`, read from the API server just now, is `owner` and stays."""
    metadata = fresh.metadata
    if metadata.uid != owner.metadata.uid:
        raise CannotAdopt(
            f"original {owner.kind} {owner.key} is gone: got uid {metadata.uid}, wanted {owner.metadata.uid}"
        )
    if metadata.deletion_timestamp is not None:
        raise CannotAdopt(f"{fresh.key} has just been deleted at {metadata.deletion_timestamp}")


async def claim_objects(
    owner: Object,
    objects: Iterable[T],
    selector: Selector,
    *,
    read_fresh: Callable[[], Awaitable[Object]],
    patch: Callable[[T, JSON, Claim], Awaitable[None]],
) -> list[T]:
    """Those of `objects` that `owner` controls after adopting and releasing, in order.

    `owner` is read again (read_fresh) before the first adoption: it may have been deleted, and its successor of the
    same name must not find its Pods taken. Raises ClaimErrors once all were tried. Cancellation: safe.
    """
    claimed: list[T] = []
    errors: list[Exception] = []
    checked = False
    refusal: Exception | None = None
    for obj in objects:
        claim = decide_claim(owner, obj, selector)
        if claim is Claim.OURS:
            claimed.append(obj)
        elif claim is Claim.RELEASE:
            try:
                await patch(obj, release_patch(owner, obj), claim)
            except (NotFound, Invalid):
                pass  # gone, or no longer owned by us, or another object of that name: nothing is left to release
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
                await patch(obj, adoption_patch(owner, obj), claim)
                claimed.append(obj)
            except NotFound:
                pass  # deleted meanwhile
            except ApiError as error:
                errors.append(error)
    if errors:
        raise ClaimErrors(errors, claimed)
    return claimed
