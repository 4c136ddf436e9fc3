"""Resources read for their objects' metadata alone, for controllers that treat all kinds alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from kubeloop.kube.objects.api_types import PartialObjectMetadata
from kubeloop.kube.objects.resources import Resource


def metadata_only(resource: Resource[Any]) -> Resource[PartialObjectMetadata]:
    """`resource`, its objects decoded as PartialObjectMetadata."""
    return cast("Resource[PartialObjectMetadata]", replace(resource, type=PartialObjectMetadata))
