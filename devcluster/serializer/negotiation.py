"""Accept header negotiation, as in kube-apiserver.

Two steps apply in sequence: go-restful compares the media types with those that a path produces, ignoring qualities and
parameters. Then each clause is negotiated in the order of goautoneg: higher qualities and concrete types first.
Sources: go-restful route.go, goautoneg, apiserver endpoints/handlers/negotiation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.errors import BODY_TYPES
from kubeloop.devcluster.api.request import PROTOBUF_TYPE
from kubeloop.kube.objects.resources import Resource


class AcceptClause(msgspec.Struct, frozen=True):
    """One clause of the header: a media type, or "application/*", "*/*", and its parameters except the quality."""

    media_type: str
    quality: float
    parameters: Mapping[str, str]

    def matches(self, media_type: str) -> bool:
        kind, _, subtype = self.media_type.partition("/")
        type_, _, subtype_ = media_type.partition("/")
        return (kind == type_ and subtype in (subtype_, "*")) or self.media_type == "*/*"

    @property
    def conversion(self) -> tuple[str, str, str] | None:
        """Group, version and kind of a requested conversion (Table, PartialObjectMetadata), or None."""
        named = self.parameters
        if not named.keys() & {"as", "g", "v"}:
            return None
        return named.get("g", ""), named.get("v", ""), named.get("as", "")


@lru_cache(maxsize=256)
def clauses(accept: str) -> tuple[AcceptClause, ...]:
    """Return the clauses of a header in order of preference, without invalid media types."""
    result: list[AcceptClause] = []
    for text in accept.split(","):
        kind, *rest = text.split(";")
        kind, slash, subtype = (part.strip(" ") for part in kind.partition("/"))
        if not subtype and kind == "*":
            slash, subtype = "/", "*"
        if not subtype or "/" in subtype:
            continue
        pairs = (part.split("=") for part in rest)
        parameters = {pair[0].strip(" "): pair[1].strip(" ") for pair in pairs if len(pair) == 2 and pair[1]}
        result.append(AcceptClause(f"{kind}{slash}{subtype}", _quality(parameters.pop("q", "1")), parameters))
        # insertion as in goautoneg: the relation is not transitive (a type may precede a better "*/*"), so no sort()
        place = len(result) - 1
        while place and _precedes(result[place], result[place - 1]):
            result[place - 1], result[place] = result[place], result[place - 1]
            place -= 1
    return tuple(result)


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _precedes(one: AcceptClause, other: AcceptClause) -> bool:
    if one.quality > other.quality:
        return True
    if other.media_type.startswith("*/") and not one.media_type.startswith("*/"):
        return True
    return other.media_type.endswith("/*") and not one.media_type.endswith("/*")


def matches_accept(accept: str, media_types: Sequence[str] = BODY_TYPES) -> bool:
    """Return True if go-restful accepts the request for a path that produces these media types."""
    return not accept or any(
        text.partition(";")[0].strip(" ") in ("*/*", *media_types) for text in accept.removesuffix(",").split(",")
    )


def matches_content_type(content_type: str, media_types: Sequence[str] = BODY_TYPES) -> bool:
    """Return True if go-restful accepts the Content-Type of a GET request for a path that consumes them."""
    return not content_type or any(
        text.partition(";")[0].strip(" ") in media_types for text in content_type.removesuffix(",").split(",")
    )


def negotiate_media_type(
    accept: str, allowed: Callable[[str, AcceptClause], bool], media_types: Sequence[str] = BODY_TYPES
) -> tuple[str, AcceptClause] | None:
    """Return the first allowed media type of the response and its clause, or None (406 Not Acceptable)."""
    if not accept:
        return media_types[0], AcceptClause(media_types[0], 1.0, {})
    for clause in clauses(accept):
        stream = clause.parameters.get("stream", "")
        for media_type in media_types:
            streamed = not stream or (stream == "watch" and media_type in _WATCH_MEDIA_TYPES)
            if clause.matches(media_type) and streamed and allowed(media_type, clause):
                return media_type, clause
    return None


_WATCH_MEDIA_TYPES = ("application/json", "application/vnd.kubernetes.protobuf")


def without_conversion(media_type: str, clause: AcceptClause) -> bool:
    """Allow clauses that request no conversion of the object."""
    del media_type
    return clause.conversion is None


# --- output formats ---------------------------------------------------------------------------------------------------


class OutputFormat(msgspec.Struct, frozen=True):
    """The negotiated form of a response: whole objects, a Table, or metadata only; in JSON, YAML or protobuf.

    is_list_metadata: PartialObjectMetadataList is requested. protobuf: not available for tables and custom resources.
    """

    form: Literal["objects", "table", "metadata"] = "objects"
    yaml: bool = False
    version: str = "v1"
    is_list_metadata: bool = False
    protobuf: bool = False


JSON_OUTPUT = OutputFormat()
_YAML = "application/yaml"
_FORMS: dict[str, Literal["table", "metadata"]] = {
    "Table": "table", "PartialObjectMetadata": "metadata", "PartialObjectMetadataList": "metadata"
}  # fmt: skip


def _is_supported_conversion(media_type: str, clause: AcceptClause) -> bool:
    conversion = clause.conversion
    if conversion is None:
        return True
    group, version, kind = conversion
    if kind == "Table" and media_type == PROTOBUF_TYPE:
        return False
    return group == "meta.k8s.io" and version in ("v1", "v1beta1") and kind in _FORMS


def _is_conversion_without_table(media_type: str, clause: AcceptClause) -> bool:
    return _is_supported_conversion(media_type, clause) and (clause.conversion or ("", "", ""))[2] != "Table"


@lru_cache(maxsize=256)
def negotiate_output(
    accept: str, operation: Literal["object", "list", "watch"] = "object", *, has_table: bool = True
) -> OutputFormat:
    """Return the output format that the Accept header selects. Raises StatusError 406.

    has_table: False for reviews, tokens, bindings and evictions, which are answered and not stored.
    """
    if not accept:
        return JSON_OUTPUT
    if not matches_accept(accept):
        raise errors.not_acceptable(streams=operation != "object")
    negotiated = negotiate_media_type(accept, _is_supported_conversion if has_table else _is_conversion_without_table)
    if negotiated is None:
        raise errors.form_not_acceptable()
    media_type, clause = negotiated
    if operation == "watch" and media_type == _YAML:
        raise errors.no_such_stream()
    if (conversion := clause.conversion) is None:
        return OutputFormat(yaml=media_type == _YAML, protobuf=media_type == PROTOBUF_TYPE)
    _, version, kind = conversion
    return OutputFormat(
        _FORMS[kind],
        yaml=media_type == _YAML,
        version=version,
        is_list_metadata=kind.endswith("List"),
        protobuf=media_type == PROTOBUF_TYPE,
    )


@lru_cache(maxsize=256)
def negotiate_error_output(accept: str) -> OutputFormat | None:
    """Return the format of an error Status, or None if none of the accepted formats is available."""
    negotiated = negotiate_media_type(accept, without_conversion)
    return (
        None
        if negotiated is None
        else OutputFormat(yaml=negotiated[0] == _YAML, protobuf=negotiated[0] == PROTOBUF_TYPE)
    )


def internal_group(group: str) -> str:
    """Return the name of a group's internal Go package."""
    return group.partition(".")[0] or "core"


def check_metadata_form(output: OutputFormat, resource: Resource[Any], *, is_list: bool) -> None:
    """Check that PartialObjectMetadata is requested for an object, its List for a list. Raises StatusError 406."""
    if output.form != "metadata" or output.is_list_metadata == is_list:
        return
    go_type = f"*{internal_group(resource.group)}.{resource.kind}"
    if is_list:
        message = f"you requested PartialObjectMetadata, but the requested object is a list ({go_type}List)"
    else:
        message = f"you requested PartialObjectMetadataList, but the requested object is not a list ({go_type})"
    raise errors.form_not_acceptable(message)


def check_custom_resource_is_acceptable(accept: str) -> None:
    """Raise StatusError 406 if the client accepts only protobuf, which only metadata of custom resources has."""
    if accept and all(
        media_type.partition(";")[0].strip() == PROTOBUF_TYPE and "as=PartialObjectMetadata" not in media_type
        for media_type in accept.split(",")
    ):
        raise errors.form_not_acceptable()
