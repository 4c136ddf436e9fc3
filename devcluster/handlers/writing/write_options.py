"""Query options of all writes: dryRun and fieldManager."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.writer import ApplyOptions, Writer
from kubeloop.devcluster.serializer.request_bodies import field_validation_cause
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import MAX_MANAGER, validate_field_manager
from kubeloop.kube.json_object import JSON

_encode = msgspec.json.Encoder().encode


def writer_of(request: ApiRequest) -> Writer:
    """Return the author of a write: ?fieldManager, else the user agent up to its first slash."""
    manager = request.option("fieldManager") or request.user_agent.partition("/")[0][:MAX_MANAGER] or "unknown"
    return Writer(manager, user=request.user)


def apply_options(context: RequestContext) -> ApplyOptions:
    """Return the options of an apply, which must name its field manager."""
    request = context.request
    manager, force = request.option("fieldManager"), request.flag("force")
    return ApplyOptions(manager, context.now(), force=force, subresource=context.info.subresource)


def read_dry_run(request: ApiRequest, options_kind: str, other_causes: Sequence[JSON] = ()) -> bool:
    """Return True for ?dryRun=All; validates the field manager and the field validation as well.

    other_causes: those against other options. Raises StatusError 422 with all causes.
    """
    causes = ErrorList(other_causes)
    if manager := request.option("fieldManager"):
        validate_field_manager(causes, "fieldManager", manager)
    values = request.query.get("dryRun", ())
    if any(value != "All" for value in values):
        text = f'Unsupported value: {_encode(values).decode()}: supported values: "All"'
        causes.append(errors.cause("FieldValueNotSupported", "dryRun", text))
    if (cause := field_validation_cause(request)) is not None:
        causes.append(cause)
    if causes:
        raise errors.options_invalid(options_kind, causes)
    return bool(values)
