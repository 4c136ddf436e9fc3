"""Reading the metadata of cached objects, Structs and plain JSON alike, and comparing resource versions.

May import `kubeloop.kube` alone.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

import msgspec

from kubeloop.kube.objects.api_types import Object
from kubeloop.kube.objects.resources import Resource

T = TypeVar("T")

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class MetadataAccessor(Generic[T]):
    """How to read one resource's objects: `key`, `uid`, `resource_version`, whichever way they are held."""

    def __init__(self, resource: Resource[T]) -> None:
        self.plain = not issubclass(resource.type, msgspec.Struct)
        self._kind = resource.kind
        self._api_version = resource.api_version

    def key(self, obj: T) -> str:
        """ "namespace/name", or "name" for what lives in no namespace."""
        if self.plain:
            metadata = cast("dict[str, Any]", obj).get("metadata") or {}
            namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
            return f"{namespace}/{name}" if namespace else name
        return cast("Object", obj).key

    def uid(self, obj: T) -> str:
        if self.plain:
            return str((cast("dict[str, Any]", obj).get("metadata") or {}).get("uid", ""))
        return cast("Object", obj).metadata.uid

    def resource_version(self, obj: T) -> str:
        if self.plain:
            return str((cast("dict[str, Any]", obj).get("metadata") or {}).get("resourceVersion", ""))
        return cast("Object", obj).metadata.resource_version

    def initial_events_end(self, obj: T) -> bool:
        """Is this bookmark the one that ends the initial events of a WatchList stream?"""
        if self.plain:
            annotations = (cast("dict[str, Any]", obj).get("metadata") or {}).get("annotations") or {}
        else:
            annotations = cast("Object", obj).metadata.annotations
        return annotations.get(INITIAL_EVENTS_END) == "true"

    def normalize_decoded(self, obj: T) -> T:
        """The object as it is kept: with kind and apiVersion (items of a list come without), without managedFields.

        Changes `obj` itself, which nobody else has seen yet.
        """
        if self.plain:
            plain = cast("dict[str, Any]", obj)
            metadata = plain.get("metadata")
            if metadata:
                metadata.pop("managedFields", None)
            plain.setdefault("kind", self._kind)
            plain.setdefault("apiVersion", self._api_version)
        elif not cast("Object", obj).kind:
            msgspec.structs.force_setattr(cast("Object", obj), "kind", self._kind)
            msgspec.structs.force_setattr(cast("Object", obj), "api_version", self._api_version)
        return obj


def controller_uid(obj: Any) -> tuple[str, ...]:
    """The uid of the owner reference with controller=true, if there is one. For the index "owner"."""
    if isinstance(obj, dict):
        references = (obj.get("metadata") or {}).get("ownerReferences") or ()
        return tuple(each.get("uid", "") for each in references if each.get("controller"))[:1]
    for reference in obj.metadata.owner_references:
        if reference.controller:
            return (reference.uid,)
    return ()


def namespace(obj: Any) -> tuple[str, ...]:
    """For the index "namespace"."""
    if isinstance(obj, dict):
        return ((obj.get("metadata") or {}).get("namespace", ""),)
    return (obj.metadata.namespace,)


def node_name(obj: Any) -> tuple[str, ...]:
    """spec.nodeName, if set. For the index "node"."""
    name = (obj.get("spec") or {}).get("nodeName", "") if isinstance(obj, dict) else obj.spec.node_name
    return (name,) if name else ()


def compare_resource_versions(left: str, right: str) -> int:
    """-1, 0 or 1 as `left` is older than, as old as or newer than `right`; of the same resource and cluster.

    Since v1.35 a resource version is a decimal number without a bound, and comparable within its resource (KEP-5504).
    Raises ValueError for anything else, such as what an aggregated API server may hand out: compare those for equality
    at most. Source: apimachinery pkg/util/resourceversion.
    """
    for version in (left, right):
        if not (version.isascii() and version.isdigit()) or version[0] == "0":
            raise ValueError(f"not a comparable resource version: {version!r}")
    if len(left) != len(right):
        return -1 if len(left) < len(right) else 1
    return (left > right) - (left < right)


def is_older(left: str, right: str) -> bool:
    """Is `left` surely older than `right`? False where resource versions do not compare."""
    if left == right or not (left.isascii() and left.isdigit() and right.isascii() and right.isdigit()):
        return False
    if left[0] == "0" or right[0] == "0":
        return False
    return left < right if len(left) == len(right) else len(left) < len(right)
