"""Image references: registry, repository, tag and digest, as container runtimes parse and report them.

Sources: distribution/reference (ParseNormalizedNamed), go-digest, pkg/util/parsers.
"""

from __future__ import annotations

import hashlib
import re
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
