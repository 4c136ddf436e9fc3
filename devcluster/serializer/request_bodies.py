"""Reading request bodies: media types, kinds, unknown and duplicate fields; negotiating what an answer looks like."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.api.request import PROTOBUF_TYPE, Request
from kubeloop.devcluster.api.served_resources import BY_KIND, CustomResource
from kubeloop.devcluster.serializer import decoding
from kubeloop.devcluster.serializer.controller_revision_data import record_sent_text
from kubeloop.devcluster.serializer.go_json_errors import go_json_error, summarize_body
from kubeloop.devcluster.serializer.negotiation import internal_group
from kubeloop.devcluster.serializer.protobuf.wire import ProtobufError
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

FieldValidation = Literal["Strict", "Warn", "Ignore"]
_RETIRED_VERSIONS = {
    "apps/v1beta1", "apps/v1beta2", "extensions/v1beta1", "batch/v1beta1", "autoscaling/v1", "autoscaling/v2beta1",
    "autoscaling/v2beta2", "policy/v1beta1", "events.k8s.io/v1beta1", "storage.k8s.io/v1beta1",
    "storage.k8s.io/v1alpha1", "scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha1", "networking.k8s.io/v1beta1",
    "rbac.authorization.k8s.io/v1beta1", "rbac.authorization.k8s.io/v1alpha1", "coordination.k8s.io/v1beta1",
    "discovery.k8s.io/v1beta1",
}  # fmt: skip


@dataclass(slots=True)
class Body:
    """A decoded object and what to warn the client of. `sent` is the object before it was decoded."""

    obj: JSON
    warnings: list[str] = field(default_factory=list)
    sent: JSON = field(default_factory=dict)


def _with_duplicates(text: bytes) -> tuple[Any, list[str]]:
    """As parse_json, for a body with repeated keys: objects merge, other values replace, as in Go's decoder."""
    found: list[str] = []

    def walk(value: Any, path: str, into: Any = None) -> Any:
        if isinstance(value, _Pairs):
            result = into if isinstance(into, dict) else {}
            seen = set()
            for key, each in value.pairs:
                below = f"{path}.{key}" if path else key
                if key in seen:
                    found.append(f'duplicate field "{below}"')
                seen.add(key)
                result[key] = walk(each, below, result.get(key))
            return result
        if isinstance(value, list):
            return [walk(each, f"{path}[{index}]") for index, each in enumerate(value)]
        return value

    merged = walk(json.loads(text, object_pairs_hook=_Pairs), "")
    return merged, list(dict.fromkeys(found))


TYPE_META_ERROR = "couldn't get version/kind; json parse error"
_IN_YAML = "yaml: "
_SURROGATE = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def _with_whole_characters(body: bytes) -> bytes:
    """Halves of characters become U+FFFD, as in Go."""
    text = body.decode("utf-8", "replace").encode()
    return _SURROGATE.sub(lambda found: b"\\ufffd" if found[1] else found[0], text)


class _Pairs:
    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def parse_json(body: bytes) -> tuple[Any, list[str]]:
    """The value and its strict errors: 'duplicate field "spec.replicas"'. Raises ValueError in Go's words."""
    try:
        value = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if wrong := go_json_error(body):
            raise ValueError(wrong) from error
        return _with_duplicates(_with_whole_characters(body))
    # a key that is there twice is lost on the way; then the text is shorter by its quotes when written again
    if body.count(b'"') == _encode(value).count(b'"'):
        return value, []
    return _with_duplicates(body)


def media_type(request: Request) -> str:
    """That of the body, without parameters; one with parameters that cannot be read is none that is known."""
    kind, semicolon, parameters = request.headers.get("content-type", "application/json").partition(";")
    if semicolon and not _PARAMETERS(semicolon + parameters):
        return "unreadable"
    return kind.strip().lower()


_NOTHING_IN_PROTOBUF = b"k8s\0"
_PARAMETERS = re.compile(r'(\s*;\s*[^\s;="]+\s*=\s*("[^"]*"|[^\s;"]+))*\s*;?\s*').fullmatch


def parse_body(request: Request, resource: Resource[Any] | None = None) -> tuple[Any, list[str]]:
    """The body as plain JSON, and its strict errors. Raises StatusError 415, ValueError with the parser's words.

    resource: of which kind the object is if the body does not say.
    """
    kind = media_type(request)
    if kind in ("application/json", ""):
        try:
            return parse_json(request.body)
        except ValueError as error:
            raise ValueError(f"{TYPE_META_ERROR}: {error}") from error
        except RecursionError as error:
            raise ValueError(f"{TYPE_META_ERROR}: exceeded max depth") from error
    if kind == "application/yaml":
        from kubeloop.kube import yaml as yaml_text  # once a client sends it

        value, repeated = yaml_text.read_first(request.body)
        return value, [_IN_YAML + each for each in repeated]
    if kind == PROTOBUF_TYPE:
        from kubeloop.devcluster.serializer.protobuf import codec  # once a client sends it

        if request.body == _NOTHING_IN_PROTOBUF:
            raise ValueError("empty body")

        kind_of = ("", "") if resource is None else (resource.api_version, resource.kind)
        return codec.decode(request.body, *kind_of), []
    raise errors.unsupported_body()


# --- kinds ------------------------------------------------------------------------------------------------------------


def _is_registered(api_version: str, kind: str) -> bool:
    group, _, version = api_version.rpartition("/")
    if kind in _IN_EVERY_VERSION or (kind == "List" and api_version == "v1"):
        return (group, version) in {each.rpartition("/")[::2] for each, _ in BY_KIND}
    return (api_version, kind) in BY_KIND or schema.type_for(group, version, kind) is not None


_IN_EVERY_VERSION = (
    "Status", "APIVersions", "APIGroup", "APIGroupList", "APIResourceList", "WatchEvent", "ListOptions",
    "GetOptions", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions",
)  # fmt: skip


def check_type_meta(obj: JSON) -> None:
    """Are kind and apiVersion, where they are there, text? Raises ValueError in Kubernetes' words."""
    for name in ("apiVersion", "kind"):
        value = obj.get(name)
        if value is not None and not isinstance(value, str):
            went = decoding.json_kind(value)
            raise ValueError(
                f"{TYPE_META_ERROR}: json: cannot unmarshal {went} into Go struct field .{name} of type string"
            )
    api_version = obj.get("apiVersion")
    if api_version and api_version.count("/") > 1:
        raise ValueError(f"unexpected GroupVersion string: {api_version}")


def check_kind(obj: JSON, resource: Resource[Any], also: Sequence[str] = ()) -> None:
    """Fill in what is missing of kind and apiVersion, refuse what is wrong. Raises StatusError 400.

    also: further apiVersions, whose objects are like the resource's.
    """
    kind = obj.get("kind") or resource.kind
    api_version = obj.get("apiVersion") or resource.api_version
    if kind == resource.kind and api_version in also:
        api_version = resource.api_version
    if kind == resource.kind and api_version == resource.api_version:
        obj["kind"], obj["apiVersion"] = kind, api_version
        return
    if isinstance(resource, CustomResource):
        raise resource.rules.wrong_kind(obj)
    group, _, version = api_version.rpartition("/")
    handled = f"{kind} in version {quoted(version)} cannot be handled as a {resource.kind}"
    if kind == resource.kind and group == resource.group and api_version in _RETIRED_VERSIONS:
        raise errors.bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({resource.api_version})"
        )
    raise errors.bad_request(f"{handled}: {unknown_kind(api_version, kind, resource)}")


def unknown_kind(api_version: str, kind: str, resource: Resource[Any]) -> str:
    """Why an object of this kind is none of the resource's."""
    if _is_registered(api_version, kind):
        version = api_version.rpartition("/")[2]
        return (
            f"converting ({version}.{kind}) to ({internal_group(resource.group)}.{resource.kind}): unknown conversion"
        )
    return f"no kind {quoted(kind)} is registered for version {quoted(api_version)}"


def field_validation(request: Request, options_kind: str) -> FieldValidation:
    """?fieldValidation, by default Warn. Raises StatusError 422."""
    mode = request.option("fieldValidation")
    if mode in ("", "Warn"):
        return "Warn"
    if mode == "Strict":
        return "Strict"
    if mode == "Ignore":
        return "Ignore"
    text = f'Unsupported value: "{mode}": supported values: "", "Ignore", "Strict", "Warn"'
    raise errors.options_invalid(options_kind, [errors.cause("FieldValueNotSupported", "fieldValidation", text)])


def read_object(request: Request, resource: Resource[Any], mode: FieldValidation, also: Sequence[str] = ()) -> Body:
    """The body as an object of this kind in the server's form, without defaults. Raises StatusError 400, 415.

    also: see check_kind().
    """
    try:
        raw, strict = parse_body(request, resource)
        if raw is None:
            raw = {}
        if not isinstance(raw, dict):
            value = decoding.json_kind(raw)
            raise ValueError(f"{TYPE_META_ERROR}: json: cannot unmarshal {value} into Go value of {TYPE_META_GO_TYPE}")
        check_type_meta(raw)
    except ProtobufError as error:
        api_version, kind = error.of
        if not kind:
            message = f"the object provided is unrecognized (must be of type {resource.kind}): {error}"
            raise errors.bad_request(f"{message} ({summarize_body(request.body)})") from error
        raise errors.bad_request(
            f'{kind} in version "{api_version.rpartition("/")[2]}" cannot be handled as a {resource.kind}: {error}'
        ) from error
    except ValueError as error:
        message = f"the object provided is unrecognized (must be of type {resource.kind}): {error}"
        raise errors.bad_request(f"{message} ({summarize_body(request.body)})") from error
    check_kind(raw, resource, also)
    version = resource.version
    try:
        obj, unknown = decoding.decode(resource, raw)
    except decoding.DecodeError as error:
        raise errors.bad_request(
            f'{resource.kind} in version "{version}" cannot be handled as a {resource.kind}: {error}'
        ) from error
    strict = record_sent_text(resource, obj, request.body, strict)
    if strict or unknown:
        strict = merge_strict_errors(strict, unknown)
        if mode == "Strict":
            raise errors.bad_request(
                f'{resource.kind} in version "{version}" cannot be handled as a {resource.kind}: '
                f"strict decoding error: {format_strict_errors(strict)}"
            )
    obj.setdefault("metadata", {})
    keep_managed_fields_reset(raw, obj)
    return Body(obj, [each.removeprefix(_IN_YAML) for each in strict] if mode == "Warn" else [], raw)


def keep_managed_fields_reset(sent: JSON, obj: JSON) -> None:
    """Put `managedFields: []` of what was sent into `obj`, in place: decoding drops empty lists, this one means that
    nobody owns anything from now on."""
    metadata = sent.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") == []:
        obj["metadata"]["managedFields"] = []


def deduplicate_owner_references(metadata: JSON) -> str:
    """Keep one of owner references that are the same. Returns the warning of it, "" if there are none."""
    kept: list[JSON] = []
    repeated: list[str] = []
    for each in metadata["ownerReferences"]:
        if each not in kept:
            kept.append(each)
        else:
            repeated.append(each.get("uid", ""))
    metadata["ownerReferences"] = kept
    return f"{_REPEATED_OWNERS}: {', '.join(repeated)}" if repeated else ""


_REPEATED_OWNERS = (
    ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed"
)
TYPE_META_GO_TYPE = (
    r'type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
)


def merge_strict_errors(duplicates: list[str], unknown: list[str]) -> list[str]:
    """Repeated and unknown fields together; a field that nobody knows is not told to be there twice."""
    paths = tuple(f"duplicate field {each.removeprefix('unknown field ')}" for each in unknown)
    inner = tuple(f"{each[:-1]}{sign}" for each in paths for sign in (".", "["))
    return [each for each in duplicates if each not in paths and not each.startswith(inner)] + unknown


def format_strict_errors(strict: list[str]) -> str:
    """Strict errors in one line; those of YAML first, as its reader tells them."""
    lines = [each.removeprefix(_IN_YAML) for each in strict if each.startswith(_IN_YAML)]
    rest = [each for each in strict if not each.startswith(_IN_YAML)]
    first = ["yaml: unmarshal errors:\n  " + "\n  ".join(lines)] if lines else []
    return ", ".join([*first, *rest])
