"""AdmissionReview of admission.k8s.io/v1 and v1beta1: the request that a webhook gets, and checks of its response.

Source: apiserver pkg/admission/plugin/webhook/request/admissionreview.go.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubeloop.devcluster.admission.attributes import Attributes
from kubeloop.devcluster.admission.policies.request_variables import request_value
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.serializer.decoding import json_kind
from kubeloop.devcluster.serializer.go_json_errors import go_json_error
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted

_GROUP = "admission.k8s.io"
_KIND = "AdmissionReview"
_NO_KIND = "couldn't get version/kind; json parse error"
_TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


_GO_TYPES = {
    "uid": "types.UID",
    "allowed": "bool",
    "status": "v1.Status",
    "patch": "[]uint8",
    "patchType": "v1.PatchType",
    "auditAnnotations": "map[string]string",
    "warnings": "[]string",
}


class InvalidResponse(Exception):
    """The response of a webhook is no valid AdmissionReview."""


class UndecodableResponse(InvalidResponse):
    """The response cannot be decoded."""


class _Response(msgspec.Struct):
    """AdmissionResponse, as it is decoded."""

    uid: str = ""
    allowed: bool = False
    status: dict[str, Any] | None = None
    patch: bytes | None = None
    patchType: str | None = None  # noqa: N815 # the name of the field
    auditAnnotations: dict[str, str] | None = None  # noqa: N815
    warnings: list[str] | None = None


class _Review(msgspec.Struct):
    kind: str = ""
    apiVersion: str = ""  # noqa: N815
    response: _Response | None = None


class AdmissionResponse(msgspec.Struct, frozen=True):
    """The verified response of a webhook. status: of a denial; patch: a JSON patch in bytes, b"" for none."""

    allowed: bool
    status: JSON | None
    patch: bytes
    patch_type: str
    audit_annotations: dict[str, str]
    warnings: list[str]


def review_version(versions: list[str]) -> str:
    """Return the first version that both sides know; "" if there is none."""
    return next((version for version in versions if version in ("v1", "v1beta1")), "")


def admission_review(
    version: str, uid: str, request: Attributes, matched: ServedResource, obj: JSON | None, old: JSON | None
) -> bytes:
    """Return the AdmissionReview of a request in JSON. obj, old: in the version of `matched`."""
    value = {**request_value(request, matched), "uid": uid, "object": obj, "oldObject": old}
    return msgspec.json.encode({"kind": _KIND, "apiVersion": f"{_GROUP}/{version}", "request": value})


def verified_response(body: bytes, version: str, uid: str, *, mutates: bool) -> AdmissionResponse:
    """Return the response in an AdmissionReview. Raises InvalidResponse, UndecodableResponse."""
    review = _decoded(body, version)
    response = review.response
    if response is None:
        raise InvalidResponse("webhook response was absent")
    patch, patch_type = response.patch or b"", response.patchType
    if version == "v1":
        if response.uid != uid:
            raise InvalidResponse(f"expected response.uid={quoted(uid)}, got {quoted(response.uid)}")
        _check_kind(review)
        _check_patch(patch, patch_type, mutates=mutates)
    else:  # neither kind, uid nor patch type were verified in this version
        patch_type = "JSONPatch" if patch else ""
    return AdmissionResponse(
        response.allowed,
        response.status,
        patch if mutates else b"",
        patch_type or "",
        response.auditAnnotations or {},
        response.warnings or [],
    )


def _decoded(body: bytes, version: str) -> _Review:
    """Return the AdmissionReview in JSON or YAML. Raises UndecodableResponse."""
    try:
        value: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        value = _decoded_yaml(body)
    if not isinstance(value, dict):
        problem = f"json: cannot unmarshal {json_kind(value)} into Go value of type {_TYPE_META}"
        raise UndecodableResponse(f"{_NO_KIND}: {problem}")
    other = value.get("apiVersion"), value.get("kind")
    known = {f"{_GROUP}/{known}": known for known in ("v1", "v1beta1")}
    if other[1] == _KIND and other[0] in known and known[other[0]] != version:
        conversion = f"({known[other[0]]}.{_KIND}) to ({version}.{_KIND})"
        raise UndecodableResponse(f"converting {conversion}: unknown conversion")
    if other[0] and other[1] not in (None, "", _KIND, "Status"):
        scheme = "k8s.io/apiserver/pkg/util/webhook/client.go:71"
        raise UndecodableResponse(f'no kind "{other[1]}" is registered for version "{other[0]}" in scheme "{scheme}"')
    try:
        return msgspec.convert(value, _Review)
    except msgspec.ValidationError as error:
        raise UndecodableResponse(_type_error(value, str(error))) from None


def _type_error(review: JSON, error: str) -> str:
    """Return Go's text for a field of the wrong type. error: that of msgspec, with the path of the field."""
    name = error.rpartition("`$.response.")[2].partition("[")[0].rstrip("`")
    if name not in _GO_TYPES:
        return f"json: cannot unmarshal response: {error}"
    kind, field = json_kind(review["response"].get(name)), f"AdmissionResponse.response.{name}"
    return f"json: cannot unmarshal {kind} into Go struct field {field} of type {_GO_TYPES[name]}"


def _decoded_yaml(body: bytes) -> Any:
    """Return a body that is no JSON as YAML. Raises UndecodableResponse."""
    from kubeloop.kube.yaml import InvalidYaml, read_first

    if body.lstrip().startswith(b"{"):
        raise UndecodableResponse(f"{_NO_KIND}: {go_json_error(body)}")
    try:
        return read_first(body)[0]
    except InvalidYaml as error:
        raise UndecodableResponse(f"{_NO_KIND}: {error}") from None


def _check_kind(review: _Review) -> None:
    group, _, version = review.apiVersion.rpartition("/")
    expected, actual = f"{_GROUP}/v1, Kind={_KIND}", f"{group}/{version}, Kind={review.kind}"
    if actual != expected:
        raise InvalidResponse(f"expected webhook response of {expected}, got {actual}")


def _check_patch(patch: bytes, patch_type: str | None, *, mutates: bool) -> None:
    if not mutates:
        if patch:
            raise InvalidResponse("validating webhook may not return response.patch")
        if patch_type is not None:
            raise InvalidResponse("validating webhook may not return response.patchType")
    elif patch and patch_type is None:
        raise InvalidResponse("webhook returned response.patch but not response.patchType")
    elif not patch and patch_type is not None:
        raise InvalidResponse("webhook returned response.patchType but not response.patch")
    elif patch_type == "":
        raise InvalidResponse('webhook returned invalid response.patchType of ""')
