"""Access to the metadata of cached objects, Structs and dicts alike, and the order of resource versions."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

import msgspec

from kubeloop.kube.objects.api_types import Object
from kubeloop.kube.objects.resources import Resource

T = TypeVar("T")


class MetadataAccessor(Generic[T]):
    """Reads metadata of the objects of one resource, which are Structs or dicts of decoded JSON."""

    def __init__(self, resource: Resource[T]) -> None:
        self.is_dict = not issubclass(resource.type, msgspec.Struct)
        self._kind = resource.kind
        self._api_version = resource.api_version

    def key(self, obj: T) -> str:
        """Return "namespace/name", or "name" for a cluster-scoped object."""
        if self.is_dict:
            metadata = cast("dict[str, Any]", obj).get("metadata") or {}
            namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
            return f"{namespace}/{name}" if namespace else name
        return cast("Object", obj).key

    def uid(self, obj: T) -> str:
        if self.is_dict:
            return str((cast("dict[str, Any]", obj).get("metadata") or {}).get("uid", ""))
        return cast("Object", obj).metadata.uid

    def resource_version(self, obj: T) -> str:
        if self.is_dict:
            return str((cast("dict[str, Any]", obj).get("metadata") or {}).get("resourceVersion", ""))
        return cast("Object", obj).metadata.resource_version

    def normalize_decoded(self, obj: T) -> T:
        """Return the object in the form that is stored: with kind and apiVersion, and without managedFields.

        Items of a list come without kind and apiVersion. Modifies `obj`, which must not be shared yet.
        """
        if self.is_dict:
            body = cast("dict[str, Any]", obj)
            metadata = body.get("metadata")
            if metadata:
                metadata.pop("managedFields", None)
            body.setdefault("kind", self._kind)
            body.setdefault("apiVersion", self._api_version)
        elif not cast("Object", obj).kind:
            msgspec.structs.force_setattr(cast("Object", obj), "kind", self._kind)
            msgspec.structs.force_setattr(cast("Object", obj), "api_version", self._api_version)
        return obj


def is_older(left: str, right: str) -> bool:
    """Return True if resource version `left` is older than `right`, of one resource; False if they have no order.

    Since v1.35 a resource version is a decimal number of any size, and comparable within its resource (KEP-5504). Other
    values, which aggregated API servers may use, have no order. Source: apimachinery pkg/util/resourceversion.
    """
    if left == right or not (left.isascii() and left.isdigit() and right.isascii() and right.isdigit()):
        return False
    if left[0] == "0" or right[0] == "0":
        return False
    return left < right if len(left) == len(right) else len(left) < len(right)
