"""Reading and validation of DeleteOptions from a request's body or query.

Source: apiserver pkg/endpoints/handlers/delete.go, apimachinery pkg/apis/meta/v1 (conversion.go, validation).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.delete_options import META_VERSION, DeleteOptions
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.handlers.reading.list_options import query_integer
from kubeloop.devcluster.serializer import decoding
from kubeloop.devcluster.serializer.request_bodies import (
    TYPE_META_ERROR,
    TYPE_META_GO_TYPE,
    check_type_meta,
    parse_body,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted

_INTERNAL_VERSION = "meta.k8s.io/__internal"  # of options without apiVersion, in the audit log
_POLICIES = ("Background", "Foreground", "Orphan")
_IN_EVERY_VERSION = ("Status", "APIVersions", "APIGroup", "APIGroupList", "APIResourceList")
_OF_META = (
    "WatchEvent", "ListOptions", "GetOptions", "CreateOptions", "UpdateOptions", "PatchOptions", "Table",
    "TableOptions", "PartialObjectMetadata", "PartialObjectMetadataList",
)  # fmt: skip


def read_delete_options(request: ApiRequest) -> DeleteOptions:
    """Read the options from the body, else from the query. Raises StatusError 400, 415, 422."""
    if not request.body:
        return delete_options(_query(request))
    options = _body(request)
    if request.audit is not None:
        request.audit.log_request_object({"kind": "DeleteOptions", "apiVersion": _INTERNAL_VERSION} | options)
    return delete_options(options)


def _body(request: ApiRequest) -> JSON:
    """Decode the body; kinds that exist in every version are converted to meta.k8s.io/v1, as in Kubernetes."""
    try:
        raw, _ = parse_body(request)
        raw = {} if raw is None else raw
        if not isinstance(raw, dict):
            went = decoding.json_kind(raw)
            raise ValueError(f"{TYPE_META_ERROR}: json: cannot unmarshal {went} into Go value of {TYPE_META_GO_TYPE}")
        check_type_meta(raw)
        kind, api_version = raw.get("kind") or "DeleteOptions", raw.get("apiVersion") or META_VERSION
        if kind != "DeleteOptions":
            raise ValueError(_other_kind(kind, api_version))
        options, _ = decoding.decode_named("meta/v1.DeleteOptions", raw)
    except (ValueError, decoding.DecodeError) as error:
        raise errors.bad_request(str(error)) from error
    return options


def _other_kind(kind: str, api_version: str) -> str:
    if kind in _IN_EVERY_VERSION or (api_version == META_VERSION and kind in _OF_META):
        return f"converting (v1.{kind}) to (v1.DeleteOptions): unknown conversion"
    return f"no kind {quoted(kind)} is registered for version {quoted(api_version)}"


def _query(request: ApiRequest) -> JSON:
    options: JSON = {}
    if (grace := query_integer(request, "gracePeriodSeconds")) is not None:
        options["gracePeriodSeconds"] = grace
    if "propagationPolicy" in request.query:
        options["propagationPolicy"] = request.option("propagationPolicy")
    if "orphanDependents" in request.query:
        options["orphanDependents"] = request.flag("orphanDependents")
    if "dryRun" in request.query:
        options["dryRun"] = list(request.query["dryRun"])
    preconditions = {name: value for name in ("uid", "resourceVersion") if (value := request.option(name))}
    return {**options, "preconditions": preconditions} if preconditions else options


def delete_options(document: JSON) -> DeleteOptions:
    """Convert a metav1.DeleteOptions object. Raises StatusError 422 for invalid values."""
    check_delete_options(document)
    return unchecked_options(document)


def check_delete_options(document: JSON) -> None:
    """Raises StatusError 422 for invalid values."""
    policy: str | None = document.get("propagationPolicy")
    dry_run: Sequence[str] = document.get("dryRun") or ()
    causes = []
    if document.get("orphanDependents") is not None and policy is not None:
        text = f"Invalid value: {quoted(policy)}: orphanDependents and deletionPropagation cannot be both set"
        causes.append(errors.cause("FieldValueInvalid", "propagationPolicy", text))
    if policy is not None and policy not in _POLICIES:
        text = f'Unsupported value: {quoted(policy)}: supported values: "Foreground", "Background", "Orphan", "nil"'
        causes.append(errors.cause("FieldValueNotSupported", "propagationPolicy", text))
    if any(value != "All" for value in dry_run):
        text = f'Unsupported value: {msgspec.json.encode(dry_run).decode()}: supported values: "All"'
        causes.append(errors.cause("FieldValueNotSupported", "dryRun", text))
    if causes:
        raise errors.options_invalid("DeleteOptions", causes)


def unchecked_options(document: JSON) -> DeleteOptions:
    """Convert a metav1.DeleteOptions object without validation, which the caller does later."""
    preconditions = document.get("preconditions") or {}
    return DeleteOptions(
        grace_period_seconds=document.get("gracePeriodSeconds"),
        propagation_policy=document.get("propagationPolicy"),
        orphan_dependents=document.get("orphanDependents"),
        precondition_uid=preconditions.get("uid"),
        precondition_resource_version=preconditions.get("resourceVersion"),
        dry_run=bool(document.get("dryRun")),
    )
