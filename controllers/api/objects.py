"""Objects of the API in both forms, plain JSON and Structs: identity, metadata, JSON, owner references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from kubeloop.kube.objects.api_types import JSONValue, Object, ObjectMeta, OwnerReference, convert
from kubeloop.kube.objects.object_fields import controller_of

ApiObject = Object | Mapping[str, Any]
"""An object: a Struct derived from `Object`, or a dict of decoded JSON."""

T = TypeVar("T", bound=ApiObject)


class Request(msgspec.Struct, frozen=True, order=True):
    """Name of the object to reconcile. namespace: "" for a cluster-scoped object.

    Source: controller-runtime pkg/reconcile.Request.
    """

    namespace: str
    name: str

    @classmethod
    def of(cls, obj: ApiObject) -> Request:
        """Return the request of an object."""
        metadata = metadata_of(obj)
        return cls(metadata.namespace, metadata.name)

    @classmethod
    def parse(cls, key: str) -> Request:
        """Return the request of a key, "namespace/name" or "name"."""
        namespace, _, name = key.rpartition("/")
        return cls(namespace, name)

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        return self.key


def metadata_of(obj: ApiObject) -> ObjectMeta:
    """Return the metadata of an object."""
    if isinstance(obj, Object):
        return obj.metadata
    metadata = obj.get("metadata") or {}
    try:
        return msgspec.convert(metadata, ObjectMeta)
    except msgspec.ValidationError:  # has null for an empty list or map
        return convert(ObjectMeta, metadata)


def manifest_of(obj: ApiObject) -> dict[str, JSONValue]:
    """Return an object as JSON; a copy that can be changed."""
    manifest: dict[str, JSONValue] = msgspec.json.decode(msgspec.json.encode(obj))
    return manifest


def status_of(obj: ApiObject) -> Any:
    """Return the status of an object, as a Struct or JSON; {} if there is none."""
    status = getattr(obj, "status", None) if isinstance(obj, Object) else obj.get("status")
    return {} if status is None else status


def group_of(api_version: str) -> str:
    """Return the API group of an apiVersion; "" for the core group."""
    return api_version.rpartition("/")[0]


# --- owner references -------------------------------------------------------------------------------------------------


class AlreadyOwnedError(Exception):
    """The object has another controller. Source: controllerutil.AlreadyOwnedError."""


def get_controller_of(obj: ApiObject) -> OwnerReference | None:
    """Return the owner reference with controller=true, or None. Source: metav1.GetControllerOf."""
    return controller_of(metadata_of(obj))


def is_controlled_by(obj: ApiObject, owner: ApiObject) -> bool:
    """Return True if `owner` is the controller of `obj`. Source: metav1.IsControlledBy."""
    reference = get_controller_of(obj)
    return reference is not None and reference.uid == metadata_of(owner).uid


def set_controller_reference(owner: ApiObject, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the manifest with `owner` as its controller: it is deleted with the owner.

    Raises AlreadyOwnedError if it has another controller, ValueError if `owner` cannot own it. Source:
    controllerutil.SetControllerReference.
    """
    reference = get_controller_of(manifest)
    metadata = metadata_of(owner)
    if reference is not None and reference.uid != metadata.uid:
        raise AlreadyOwnedError(f"{_text(manifest)} has the controller {reference.kind} {reference.name}")
    return _with_owner(owner, manifest, {"controller": True, "blockOwnerDeletion": True})


def set_owner_reference(owner: ApiObject, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the manifest with `owner` as one of its owners. Raises ValueError if it cannot own it.

    Source: controllerutil.SetOwnerReference.
    """
    return _with_owner(owner, manifest, {})


def _with_owner(owner: ApiObject, manifest: Mapping[str, Any], flags: Mapping[str, bool]) -> dict[str, Any]:
    owner_metadata, metadata = metadata_of(owner), manifest.get("metadata") or {}
    if not owner_metadata.uid:
        raise ValueError(f"{owner_metadata.name} has no uid: an owner is an object that was read from the API server")
    if owner_metadata.namespace and owner_metadata.namespace != metadata.get("namespace"):
        raise ValueError(
            f"{_text(manifest)} is not in the namespace {owner_metadata.namespace} of its owner {owner_metadata.name}: "
            "owners are in the same namespace, or cluster-scoped"
        )
    api_version, kind = kind_of(owner)
    reference = {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner_metadata.name,
        "uid": owner_metadata.uid,
        **flags,
    }
    others = [other for other in metadata.get("ownerReferences") or () if other.get("uid") != owner_metadata.uid]
    return {
        **manifest,
        "metadata": {**metadata, "ownerReferences": [*others, reference]},
    }


def kind_of(obj: ApiObject) -> tuple[str, str]:
    """Return apiVersion and kind of an object; "" if it does not state them."""
    if isinstance(obj, Object):
        return obj.api_version, obj.kind
    return str(obj.get("apiVersion", "")), str(obj.get("kind", ""))


def _text(obj: ApiObject) -> str:
    return f"{kind_of(obj)[1] or 'object'} {Request.of(obj)}"
