"""Request bodies: JSON, YAML and protobuf by media type; kinds, and errors of unknown and duplicate fields."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import PROTOBUF_TYPE, ApiRequest
from kubeloop.devcluster.api.served_resources import BY_KIND
from kubeloop.devcluster.api.strategy import CustomResource
from kubeloop.devcluster.serializer import decoding
from kubeloop.devcluster.serializer.controller_revision_data import record_sent_text
from kubeloop.devcluster.serializer.go_json_errors import exceeds_max_depth, go_json_error, summarize_body
from kubeloop.devcluster.serializer.negotiation import internal_group
from kubeloop.devcluster.serializer.protobuf.wire import ProtobufError
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.validation.field_errors import quoted

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode

FieldValidation = Literal["Strict", "Warn", "Ignore"]
UNSERVED_KINDS = {
    api_version: frozenset(kinds.split())
    for api_version, kinds in {
        "admissionregistration.k8s.io/v1alpha1": "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding "
        "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding",
        "admissionregistration.k8s.io/v1beta1": "ValidatingWebhookConfiguration MutatingWebhookConfiguration "
        "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding MutatingAdmissionPolicy "
        "MutatingAdmissionPolicyBinding",
        "apps/v1beta1": "Deployment DeploymentRollback Scale StatefulSet ControllerRevision",
        "apps/v1beta2": "Deployment Scale StatefulSet DaemonSet ReplicaSet ControllerRevision",
        "authentication.k8s.io/v1alpha1": "SelfSubjectReview",
        "authentication.k8s.io/v1beta1": "SelfSubjectReview TokenReview",
        "authorization.k8s.io/v1beta1": "SelfSubjectRulesReview SelfSubjectAccessReview SubjectAccessReview "
        "LocalSubjectAccessReview",
        "batch/v1beta1": "CronJob",
        "certificates.k8s.io/v1alpha1": "ClusterTrustBundle",
        "certificates.k8s.io/v1beta1": "CertificateSigningRequest ClusterTrustBundle PodCertificateRequest",
        "coordination.k8s.io/v1alpha2": "LeaseCandidate",
        "coordination.k8s.io/v1beta1": "Lease LeaseCandidate",
        "discovery.k8s.io/v1beta1": "EndpointSlice",
        "events.k8s.io/v1beta1": "Event",
        "extensions/v1beta1": "Deployment DeploymentRollback Scale DaemonSet Ingress ReplicaSet NetworkPolicy",
        "flowcontrol.apiserver.k8s.io/v1beta1": "FlowSchema PriorityLevelConfiguration",
        "flowcontrol.apiserver.k8s.io/v1beta2": "FlowSchema PriorityLevelConfiguration",
        "flowcontrol.apiserver.k8s.io/v1beta3": "FlowSchema PriorityLevelConfiguration",
        "imagepolicy.k8s.io/v1alpha1": "ImageReview",
        "internal.apiserver.k8s.io/v1alpha1": "StorageVersion",
        "networking.k8s.io/v1beta1": "Ingress IngressClass IPAddress ServiceCIDR",
        "node.k8s.io/v1alpha1": "RuntimeClass",
        "node.k8s.io/v1beta1": "RuntimeClass",
        "policy/v1beta1": "PodDisruptionBudget Eviction",
        "rbac.authorization.k8s.io/v1alpha1": "Role RoleBinding ClusterRole ClusterRoleBinding",
        "rbac.authorization.k8s.io/v1beta1": "Role RoleBinding ClusterRole ClusterRoleBinding",
        "resource.k8s.io/v1alpha3": "DeviceTaintRule ResourcePoolStatusRequest",
        "resource.k8s.io/v1beta1": "DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice",
        "resource.k8s.io/v1beta2": "DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourceSlice",
        "scheduling.k8s.io/v1alpha2": "Workload PodGroup",
        "scheduling.k8s.io/v1beta1": "PriorityClass",
        "storage.k8s.io/v1alpha1": "VolumeAttachment CSIStorageCapacity VolumeAttributesClass",
        "storage.k8s.io/v1beta1": "StorageClass VolumeAttachment CSIDriver CSINode CSIStorageCapacity "
        "VolumeAttributesClass",
        "storagemigration.k8s.io/v1beta1": "StorageVersionMigration",
    }.items()
}
"""Kinds in the scheme of v1.36 that are not served, or not in this version. Source: staging/src/k8s.io/api."""
_INTERNAL_GROUPS = {
    ("extensions", "Deployment"): "apps",
    ("extensions", "DaemonSet"): "apps",
    ("extensions", "ReplicaSet"): "apps",
    ("extensions", "Ingress"): "networking.k8s.io",
    ("extensions", "NetworkPolicy"): "networking.k8s.io",
    ("events.k8s.io", "Event"): "",
}
"""Group of the internal type, where it is not the kind's own. Source: pkg/apis/*/register.go."""


class Body(msgspec.Struct):
    """A decoded object and its warnings. `sent` is the object before it was decoded."""

    obj: JSON
    warnings: list[str] = msgspec.field(default_factory=list)
    sent: JSON = msgspec.field(default_factory=dict)


def _parse_duplicate_fields(text: bytes, *, untyped: bool) -> tuple[Any, list[str]]:
    """Parse a body with duplicate fields. See parse_json()."""
    duplicates: list[_Path] = []

    def walk(value: Any, path: _Path | None, into: Any = None) -> Any:
        if isinstance(value, _Pairs):
            result = into if isinstance(into, dict) else {}
            keys, repeated = set[str](), set[str]()
            for key, member in value.pairs:
                inner_path = path, key
                if key in keys and key not in repeated and len(duplicates) < _MAX_DUPLICATES:
                    duplicates.append(inner_path)
                    repeated.add(key)
                keys.add(key)
                result[key] = walk(member, inner_path, None if untyped else result.get(key))
            return result
        if isinstance(value, list):
            return [walk(item, (path, index)) for index, item in enumerate(value)]
        return value

    merged = walk(json.loads(text, object_pairs_hook=_Pairs), None)
    return merged, list(dict.fromkeys(f'duplicate field "{_path_text(path)}"' for path in duplicates))


_MAX_DUPLICATES = 100  # source: saveStrictError in sigs.k8s.io/json
_Path = tuple[Any, str | int]
"""The path of the parent (None: the root), and a field or index. As text only when it is reported: it may be long."""


def _path_text(path: _Path | None) -> str:
    parts = []
    while path is not None:
        path, part = path
        parts.append(f"[{part}]" if isinstance(part, int) else part if path is None else f".{part}")
    return "".join(reversed(parts))


TYPE_META_ERROR = "couldn't get version/kind; json parse error"
_YAML_PREFIX = "yaml: "
_SURROGATE = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def _replace_surrogates(body: bytes) -> bytes:
    """Replace invalid UTF-8 and unpaired surrogates by U+FFFD, as in Go."""
    text = body.decode("utf-8", "replace").encode()
    return _SURROGATE.sub(lambda match: b"\\ufffd" if match[1] else match[0], text)


class _Pairs:
    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def parse_json(body: bytes, *, untyped: bool = False) -> tuple[Any, list[str]]:
    """Return the value and its strict errors: 'duplicate field "spec.replicas"'.

    Duplicate objects merge, as in Go's decoder of structs; `untyped`: the last one replaces the others, as of maps.
    Raises ValueError with Go's text, RecursionError for a text nested too deeply (which Python 3.14 would decode).
    """
    if exceeds_max_depth(body):
        raise RecursionError
    try:
        value = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if problem := go_json_error(body):
            raise ValueError(problem) from error
        return _parse_duplicate_fields(_replace_surrogates(body), untyped=untyped)
    # decoding drops duplicate keys, so the re-encoded text then has fewer quotes
    if body.count(b'"') == _encode(value).count(b'"'):
        return value, []
    return _parse_duplicate_fields(body, untyped=untyped)


def media_type(request: ApiRequest) -> str:
    """Return the body's media type without parameters, or "unreadable" if the parameters are invalid."""
    kind, semicolon, parameters = request.headers.get("content-type", "application/json").partition(";")
    if semicolon and not _PARAMETERS(semicolon + parameters):
        return "unreadable"
    return kind.strip().lower()


_EMPTY_PROTOBUF = b"k8s\0"
_PARAMETERS = re.compile(r'(\s*;\s*[^\s;="]+\s*=\s*("[^"]*"|[^\s;"]+))*\s*;?\s*').fullmatch


def parse_yaml(body: bytes) -> tuple[Any, list[str]]:
    """Return the first document as JSON, and messages about repeated keys. Raises InvalidYaml."""
    from kubeloop.kube import yaml  # imported with the first YAML

    return yaml.read_first(body)


def parse_body(request: ApiRequest, resource: Resource[Any] | None = None) -> tuple[Any, list[str]]:
    """Return the body as JSON value, and its strict errors. Raises StatusError 415, ValueError with the parser's text.

    resource: defines kind and apiVersion if the body has none.
    """
    kind = media_type(request)
    if kind in ("application/json", ""):
        try:
            return parse_json(request.body, untyped=isinstance(resource, CustomResource))
        except ValueError as error:
            raise ValueError(f"{TYPE_META_ERROR}: {error}") from error
        except RecursionError as error:
            raise ValueError(f"{TYPE_META_ERROR}: exceeded max depth") from error
    if kind == "application/yaml":
        value, repeated = parse_yaml(request.body)
        return value, [_YAML_PREFIX + error for error in repeated]
    if kind == PROTOBUF_TYPE:
        from kubeloop.devcluster.serializer.protobuf import codec  # imported on first use

        if request.body == _EMPTY_PROTOBUF:
            raise ValueError("empty body")

        kind_of = ("", "") if resource is None else (resource.api_version, resource.kind)
        return codec.decode(request.body, *kind_of), []
    raise errors.unsupported_body()


# --- kinds ------------------------------------------------------------------------------------------------------------


def _is_registered(api_version: str, kind: str) -> bool:
    group, _, version = api_version.rpartition("/")
    if kind in _KINDS_OF_EVERY_VERSION or (kind == "List" and api_version == "v1"):
        return (group, version) in {api_version_.rpartition("/")[::2] for api_version_, _ in BY_KIND}
    if (api_version, kind) in BY_KIND or kind.removesuffix("List") in UNSERVED_KINDS.get(api_version, ()):
        return True
    return schema.type_for(group, version, kind) is not None


def _is_another_version(api_version: str, kind: str, resource: Resource[Any]) -> bool:
    """Return True if upstream's scheme converts the kind to the resource's internal type."""
    group = api_version.rpartition("/")[0]
    if kind != resource.kind or not _is_registered(api_version, kind):
        return False
    own_group = _INTERNAL_GROUPS.get((resource.group, kind), resource.group)
    return _INTERNAL_GROUPS.get((group, kind), group) == own_group


_KINDS_OF_EVERY_VERSION = (
    "Status", "APIVersions", "APIGroup", "APIGroupList", "APIResourceList", "WatchEvent", "ListOptions",
    "GetOptions", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions",
)  # fmt: skip


def check_type_meta(obj: JSON) -> None:
    """Check that kind and apiVersion, if present, are strings. Raises ValueError with Kubernetes' message."""
    for name in ("apiVersion", "kind"):
        value = obj.get(name)
        if value is not None and not isinstance(value, str):
            value_kind = decoding.json_kind(value)
            raise ValueError(
                f"{TYPE_META_ERROR}: json: cannot unmarshal {value_kind} into Go struct field .{name} of type string"
            )
    api_version = obj.get("apiVersion")
    if api_version and api_version.count("/") > 1:
        raise ValueError(f"unexpected GroupVersion string: {api_version}")


def check_kind(obj: JSON, resource: Resource[Any], equivalent_versions: Sequence[str] = ()) -> None:
    """Set a missing kind, and a missing apiVersion but of custom resources. Raises StatusError 400 for others.

    equivalent_versions: further apiVersions whose objects have the same form as the resource's.
    """
    if isinstance(resource, CustomResource) and not obj.get("apiVersion"):
        raise resource.rules.wrong_kind(obj)
    kind = obj.get("kind") or resource.kind
    api_version = obj.get("apiVersion") or resource.api_version
    if kind == resource.kind and api_version in equivalent_versions:
        api_version = resource.api_version
    if kind == resource.kind and api_version == resource.api_version:
        obj["kind"], obj["apiVersion"] = kind, api_version
        return
    if isinstance(resource, CustomResource):
        raise resource.rules.wrong_kind(obj)
    if _is_another_version(api_version, kind, resource):
        raise errors.bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({resource.api_version})"
        )
    handled = f"{kind} in version {quoted(api_version.rpartition('/')[2])} cannot be handled as a {resource.kind}"
    raise errors.bad_request(f"{handled}: {kind_mismatch_message(api_version, kind, resource)}")


def kind_mismatch_message(api_version: str, kind: str, resource: Resource[Any]) -> str:
    """Return the error for an object whose kind is not the resource's."""
    if _is_registered(api_version, kind):
        version = api_version.rpartition("/")[2]
        group = internal_group(_INTERNAL_GROUPS.get((resource.group, resource.kind), resource.group))
        return f"converting ({version}.{kind}) to ({group}.{resource.kind}): unknown conversion"
    return f"no kind {quoted(kind)} is registered for version {quoted(api_version)}"


def field_validation(request: ApiRequest, options_kind: str) -> FieldValidation:
    """Return the mode of ?fieldValidation, by default Warn. Raises StatusError 422."""
    if (cause := field_validation_cause(request)) is not None:
        raise errors.options_invalid(options_kind, [cause])
    return cast("FieldValidation", request.option("fieldValidation") or "Warn")


def field_validation_cause(request: ApiRequest) -> JSON | None:
    """Return the cause against an unknown mode of ?fieldValidation."""
    mode = request.option("fieldValidation")
    if mode in ("", "Ignore", "Strict", "Warn"):
        return None
    message = f'Unsupported value: "{mode}": supported values: "", "Ignore", "Strict", "Warn"'
    return errors.cause("FieldValueNotSupported", "fieldValidation", message)


def read_object(
    request: ApiRequest, resource: Resource[Any], mode: FieldValidation, equivalent_versions: Sequence[str] = ()
) -> Body:
    """Return the body as a decoded object of the resource, without defaults. Raises StatusError 400, 415.

    equivalent_versions: see check_kind().
    """
    try:
        raw, strict = parse_body(request, resource)
        if raw is None:
            raw = {}
        if not isinstance(raw, dict):
            value = decoding.json_kind(raw)
            raise ValueError(f"{TYPE_META_ERROR}: json: cannot unmarshal {value} into Go value of {TYPE_META_GO_TYPE}")
        check_type_meta(raw)
        if isinstance(resource, CustomResource) and not raw.get("kind"):
            raise ValueError(f"Object 'Kind' is missing in '{request.body.decode(errors='replace')}'")
    except ValueError as error:
        api_version, kind = error.of if isinstance(error, ProtobufError) else ("", "")
        message = f"the object provided is unrecognized (must be of type {resource.kind}): {error}"
        if not kind:
            raise errors.bad_request(f"{message} ({summarize_body(request.body)})") from error
        version = quoted(api_version.rpartition("/")[2])
        raise errors.bad_request(
            f"{kind} in version {version} cannot be handled as a {resource.kind}: {error}"
        ) from error
    check_kind(raw, resource, equivalent_versions)
    version = resource.version
    try:
        obj, unknown = decoding.decode(resource, raw)
    except decoding.DecodeError as error:
        raise errors.bad_request(
            f'{resource.kind} in version "{version}" cannot be handled as a {resource.kind}: {error}'
        ) from error
    strict = record_sent_text(resource, obj, request.body, strict)
    if strict or unknown:
        if isinstance(resource, CustomResource):
            strict = strict + unknown  # Go decodes a map, which has no unknown fields, and prunes it
        elif media_type(request) == "application/yaml":
            strict = merge_strict_errors(strict, unknown_in_sorted_order(resource, raw, unknown))
        else:
            in_order = bool(strict and unknown)
            strict = merge_strict_errors(strict, unknown)
            strict = in_document_order(request.body, strict) if in_order else strict
        if mode == "Strict":
            raise errors.bad_request(
                f'{resource.kind} in version "{version}" cannot be handled as a {resource.kind}: '
                f"strict decoding error: {format_strict_errors(strict)}"
            )
    obj.setdefault("metadata", {})
    keep_managed_fields_reset(raw, obj)
    return Body(obj, [error.removeprefix(_YAML_PREFIX) for error in strict] if mode == "Warn" else [], raw)


def keep_managed_fields_reset(sent: JSON, obj: JSON) -> None:
    """Copy `managedFields: []` of the request to `obj`: decoding drops empty lists, but this one clears all owners."""
    metadata = sent.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") == []:
        obj["metadata"]["managedFields"] = []


def deduplicate_owner_references(metadata: JSON) -> str:
    """Remove duplicate owner references, in place. Return the warning, or "" if there were none."""
    unique: list[JSON] = []
    duplicate_uids: list[str] = []
    for reference in metadata["ownerReferences"]:
        if reference not in unique:
            unique.append(reference)
        else:
            duplicate_uids.append(reference.get("uid", ""))
    metadata["ownerReferences"] = unique
    return f"{_DUPLICATE_OWNERS_WARNING}: {', '.join(duplicate_uids)}" if duplicate_uids else ""


_DUPLICATE_OWNERS_WARNING = (
    ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed"
)
TYPE_META_GO_TYPE = (
    r'type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
)


def merge_strict_errors(duplicates: list[str], unknown: list[str]) -> list[str]:
    """Return duplicate and unknown field errors; an unknown field is not reported as duplicate, too."""
    paths = tuple(f"duplicate field {error.removeprefix('unknown field ')}" for error in unknown)
    inner = tuple(f"{path[:-1]}{sign}" for path in paths for sign in (".", "["))
    return [error for error in duplicates if error not in paths and not error.startswith(inner)] + unknown


def unknown_in_sorted_order(resource: Resource[Any], raw: JSON, unknown: list[str]) -> list[str]:
    """Return the unknown fields of a document that Go has encoded again, which sorts its fields, before decoding it."""
    return unknown if len(unknown) < 2 else decoding.decode(resource, _decode(_encode_sorted(raw)))[1]


def in_document_order(body: bytes, strict: list[str]) -> list[str]:
    """Return the errors of JSON in the order in which Go's decoder meets their fields."""
    paths = [error.partition('"')[2][:-1] for error in strict]
    parents = {"", *(path[: sign.start()] for path in paths for sign in _SIGNS.finditer(path))}
    expected = frozenset(strict)
    positions: dict[str, int] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, _Pairs):
            keys = set[str]()
            for key, member in value.pairs:
                inner = f"{path}.{key}" if path else key
                error = f'{"duplicate" if key in keys else "unknown"} field "{inner}"'
                if error in expected:
                    positions.setdefault(error, len(positions))
                keys.add(key)
                if inner in parents:
                    walk(member, inner)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if (inner := f"{path}[{index}]") in parents:
                    walk(item, inner)

    walk(json.loads(_replace_surrogates(body), object_pairs_hook=_Pairs), "")
    return sorted(strict, key=lambda error: positions.get(error, len(positions)))


_SIGNS = re.compile(r"[.\[]")


def format_strict_errors(strict: list[str]) -> str:
    """Return the strict errors in one line; those of YAML first, in the form of its parser."""
    lines = [error.removeprefix(_YAML_PREFIX) for error in strict if error.startswith(_YAML_PREFIX)]
    rest = [error for error in strict if not error.startswith(_YAML_PREFIX)]
    first = ["yaml: unmarshal errors:\n  " + "\n  ".join(lines)] if lines else []
    return ", ".join([*first, *rest])
