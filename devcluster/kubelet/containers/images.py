"""Image references, and the errors of a v1.36 kubelet for an image that it cannot use. Pure functions.

Sources: distribution/reference (ParseNormalizedNamed), go-digest, pkg/util/parsers, pkg/kubelet/images.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from kubeloop.kube.validation.field_errors import quoted

_DOMAIN = (
    r"(?:(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
    r"(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
)
_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"({_DOMAIN})/({_COMPONENT}(?:/{_COMPONENT})*)(?::([a-zA-Z0-9_][a-zA-Z0-9_.-]{{0,127}}))?"
    r"(?:@([A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?"
)
_IDENTIFIER = re.compile(r"[a-f0-9]{64}")
_DIGEST = re.compile(r"[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+")
_DIGEST_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}
_MAX_REPOSITORY = 255
_DOCKER_HUB = "docker.io"


class ImageReference(NamedTuple):
    """A parsed image. name: with registry and tag or digest, as container runtimes report it. image_id: its ID there.

    error: why the image cannot be parsed, "" if it can; `name` is then the image as it is written.
    """

    name: str
    image_id: str
    error: str = ""


@lru_cache(maxsize=4096)
def image_reference(image: str) -> ImageReference:
    """Return the parsed image, with registry and tag as they default to."""
    if _IDENTIFIER.fullmatch(image):
        return _invalid(image, f"invalid repository name ({image}), cannot specify 64-byte hexadecimal strings")
    domain, remainder = _split_domain(image)
    remote = remainder.partition(":")[0]
    if remote.lower() != remote:
        return _invalid(image, f"invalid reference format: repository name ({remote}) must be lowercase")
    match = _REFERENCE.fullmatch(f"{domain}/{remainder}")
    if match is None:
        has_upper_case = _REFERENCE.fullmatch(f"{domain}/{remainder}".lower()) is not None
        return _invalid(image, "repository name must be lowercase" if has_upper_case else "invalid reference format")
    path, tag, digest = match[2], match[3], match[4]
    if len(path) > _MAX_REPOSITORY:
        return _invalid(image, f"repository name must not be more than {_MAX_REPOSITORY} characters")
    if digest and (problem := _digest_problem(digest)):
        return _invalid(image, problem)
    name = f"{domain}/{path}"
    image_id = f"{name}@{digest or f'sha256:{hashlib.sha256(image.encode()).hexdigest()}'}"
    if tag or not digest:
        name = f"{name}:{tag or 'latest'}"
    return ImageReference(f"{name}@{digest}" if digest else name, image_id)


def _invalid(image: str, problem: str) -> ImageReference:
    return ImageReference(image, "", f"couldn't parse image name {quoted(image)}: {problem}")


def _split_domain(image: str) -> tuple[str, str]:
    """Return the registry, by default Docker Hub, and the rest of the image."""
    first, slash, rest = image.partition("/")
    if not slash:
        return _DOCKER_HUB, f"library/{image}"
    if first == "index.docker.io":
        domain, remainder = _DOCKER_HUB, rest
    elif first == "localhost" or any(sign in first for sign in ".:") or first.lower() != first:
        domain, remainder = first, rest
    else:
        domain, remainder = _DOCKER_HUB, image
    if domain == _DOCKER_HUB and "/" not in remainder:
        remainder = f"library/{remainder}"
    return domain, remainder


def _digest_problem(digest: str) -> str:
    algorithm, _, encoded = digest.partition(":")
    if algorithm not in _DIGEST_LENGTHS:
        return "unsupported digest algorithm" if _DIGEST.fullmatch(digest) else "invalid checksum digest format"
    if len(encoded) != _DIGEST_LENGTHS[algorithm]:
        return "invalid checksum digest length"
    return "" if encoded == encoded.lower() else "invalid checksum digest format"


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
