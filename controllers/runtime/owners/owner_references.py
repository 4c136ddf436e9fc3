"""The index by which a controller looks up the objects it owns.

Pure functions of objects. Source: apimachinery meta/v1 controller_ref.go, pkg/controller/controller_utils.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import Object, ObjectMeta
from kubeloop.kube.objects.object_fields import controller_of

T = TypeVar("T", bound=Object)

CONTROLLER_INDEX = "controller"
"""Index of objects by controller reference (`controller_index_key`); orphans by namespace (`orphan_index_key`)."""


def cached_controller(owners: Store[T], kind: str, obj: Object) -> T | None:
    """Return the controller of `obj`, by name and UID, if it is of this kind and in the store."""
    reference = controller_of(obj.metadata)
    if reference is None or reference.kind != kind:
        return None
    owner = owners.get(f"{obj.metadata.namespace}/{reference.name}")
    return owner if owner is not None and owner.metadata.uid == reference.uid else None


def _index_value(namespace: str, kind: str, name: str, uid: str) -> str:
    return f"{namespace}/{kind}/{name}/{uid}"


def index_by_controller(obj: object) -> Iterable[str]:
    """Index function of CONTROLLER_INDEX."""
    metadata: ObjectMeta = obj.metadata  # type: ignore[attr-defined]
    reference = controller_of(metadata)
    if reference is None:
        return (metadata.namespace,)
    return (_index_value(metadata.namespace, reference.kind, reference.name, reference.uid),)


def controller_index_key(owner: Object) -> str:
    """Return the value in CONTROLLER_INDEX of the objects that `owner` controls."""
    metadata = owner.metadata
    return _index_value(metadata.namespace, owner.kind, metadata.name, metadata.uid)


def orphan_index_key(namespace: str) -> str:
    """Return the value in CONTROLLER_INDEX of the objects in `namespace` that have no controller."""
    return namespace
