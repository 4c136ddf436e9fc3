"""Errors of a v1.36 kubelet for an image that it cannot use. Pure functions. Source: pkg/kubelet/images."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from kubeloop.devcluster.serializer.image_references import image_reference
from kubeloop.kube.validation.field_errors import quoted


class ImageProblem(NamedTuple):
    """Why a container has no image. reason, message: of its waiting state. events: (type, reason, message) of each."""

    reason: str
    message: str
    events: tuple[tuple[str, str, str], ...]


def image_problem(image: str, pull_policy: str, pull_error: str, missing: tuple[str, ...]) -> ImageProblem | None:
    """Return why a kubelet cannot use the image, None if it can.

    pull_error: text of the error with which all pulls fail, "" if they succeed. missing: patterns of images that cannot
    be pulled and are not on the node.
    """
    reference = image_reference(image)
    if reference.error:
        message = f"Failed to apply default image tag {quoted(image)}: {reference.error}"
        return ImageProblem("InvalidImageName", message, tuple(_failure("InspectFailed", message, "InvalidImageName")))
    if not pull_error and not (missing and is_missing(image, missing)):
        return None
    if pull_policy == "Never":
        message = f"Container image {quoted(image)} is not present with pull policy of Never"
        events = _failure("ErrImageNeverPull", message, "ErrImageNeverPull")
        return ImageProblem("ErrImageNeverPull", message, tuple(events))
    error = pull_error or _not_found(reference.name)
    pulling = ("Normal", "Pulling", f"Pulling image {quoted(image)}")
    events = _failure("Failed", f"Failed to pull image {quoted(image)}: {error}", "ErrImagePull")
    return ImageProblem("ErrImagePull", error, (pulling, *events))


def _failure(reason: str, message: str, error: str) -> Iterator[tuple[str, str, str]]:
    yield "Warning", reason, message
    yield "Warning", "Failed", f"Error: {error}"


@lru_cache(maxsize=4096)
def is_missing(image: str, patterns: tuple[str, ...]) -> bool:
    """Return True if a pattern (`*`, `?`, `[...]`) matches the image, as it is written or with registry and tag."""
    name = image_reference(image).name
    return any(fnmatchcase(image, pattern) or fnmatchcase(name, pattern) for pattern in patterns)


def _not_found(name: str) -> str:
    """Return the error of containerd for an image that its registry does not have."""
    cause = f'failed to resolve reference "{name}": {name}: not found'
    return f'rpc error: code = NotFound desc = failed to pull and unpack image "{name}": {cause}'
