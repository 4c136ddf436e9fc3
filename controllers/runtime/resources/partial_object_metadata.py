"""Resources read as PartialObjectMetadata, for controllers that handle all kinds in the same way."""

from __future__ import annotations

from typing import Any, cast

from msgspec.structs import replace

from kubeloop.kube.objects.api_types import PartialObjectMetadata
from kubeloop.kube.objects.resources import Resource


def metadata_only(resource: Resource[Any]) -> Resource[PartialObjectMetadata]:
    """Return `resource` with its objects decoded as PartialObjectMetadata."""
    return cast("Resource[PartialObjectMetadata]", replace(resource, type=PartialObjectMetadata))
