"""Check of objects that did not come from an API server as they are: of edited recordings, and of files."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.serializer.decoding import DecodeError, decode
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.user_error import UserError
from kubeloop.recording.changes import key_of


def check_object(resource: Resource[Any], obj: JSON, place: str) -> None:
    """Raise UserError if a field has a value that no API server stores. place: file and line."""
    try:
        if obj.get("kind") != resource.kind:
            raise DecodeError(f"the kind is {obj.get('kind')!r}")
        decode(resource, obj)
    except DecodeError as error:
        raise UserError(
            f"{place}: {resource.singular} {key_of(obj)}: {error}", hint="correct the object, or take the original file"
        ) from None
