"""Query of list and watch requests: metav1.ListOptions, parsed and validated.

Source: apimachinery pkg/apis/meta/internalversion (validation), apiserver pkg/endpoints/handlers/get.go."""

from __future__ import annotations

import re

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.handlers.reading.continue_token import decode_continue_token
from kubeloop.devcluster.handlers.reading.selectors import Selection, selected_name, selection
from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.integers import parse_integer


class ListOptions(msgspec.Struct):
    """Query of a list or watch. resource_version None: not set."""

    watch: bool
    namespace: str
    name: str
    """The only name that the field selector allows; "" for any."""
    select: Selection | None
    limit: int
    continue_token: str
    resource_version: int | None
    match: str
    timeout_seconds: int | None
    allow_bookmarks: bool
    send_initial_events: bool | None
    marks_initial_events_end: bool
    counts_remaining: bool
    """True without a label or field selector: a page has the number of remaining objects, of all shards."""
    shard_selector: str
    """In canonical form, part of `select`; "" for all objects."""


def parse_resource_version(text: str) -> int | None:
    """Parse a resourceVersion; "" is None. Raises ValueError with Kubernetes' message."""
    if not text:
        return None
    problem = ""
    if not (text.isascii() and text.isdigit()):
        problem = "invalid syntax"
    elif parse_integer(text) >= 1 << 64:
        problem = "value out of range"
    if problem:
        raise ValueError(f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {problem}')
    return parse_integer(text)


_INTEGER = re.compile(r"[-+]?[0-9]+")


def query_integer(request: ApiRequest, name: str) -> int | None:
    """Return an integer of the query, None if absent. Raises StatusError 400 with Go's message."""
    if name not in request.query:
        return None
    text = request.option(name)
    problem = "" if _INTEGER.fullmatch(text) else "invalid syntax"
    if not problem and not -(1 << 63) <= parse_integer(text) < 1 << 63:
        problem = "value out of range"
    if problem:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": {problem}')
    return parse_integer(text)


def parse_list_options(
    request: ApiRequest,
    served: ServedResource,
    namespace: str,
    name: str = "",
    *,
    watch_list: bool = True,
    shards: bool = False,
) -> ListOptions:
    """Parse and validate the query; `name` restricts it to one object. Raises StatusError 400, 422, 500.

    watch_list: False to refuse sendInitialEvents. shards: False to ignore shardSelector.
    """
    watch = request.flag("watch")
    limit = query_integer(request, "limit")
    timeout = query_integer(request, "timeoutSeconds")
    send = request.flag("sendInitialEvents") if "sendInitialEvents" in request.query else None
    match = request.option("resourceVersionMatch")
    version = request.option("resourceVersion")
    token = request.option("continue")
    fields = request.option("fieldSelector")
    if name:
        fields = f"metadata.name={name},{fields}" if fields else f"metadata.name={name}"
    select = selection(served, request.option("labelSelector"), fields)
    shard_selector = request.option("shardSelector") if shards else ""
    starts_now = watch and send is None and not match and version in ("", "0")
    if starts_now and watch_list:
        send, match = True, "NotOlderThan"  # a watch without a beginning starts with the present state
    causes = _watch_causes(match, send, token, watch_list) if watch else _list_causes(match, send, version, token)
    if causes:
        raise errors.options_invalid("ListOptions", causes)
    if token and not watch:
        decode_continue_token(token)
        if version not in ("", "0"):
            raise errors.bad_request("specifying resource version is not allowed when using continue")
    try:
        revision = parse_resource_version(version)
    except ValueError as error:
        if watch:
            raise errors.internal(str(error)) from error
        raise errors.bad_request(f"invalid resource version: {error}") from error
    counts_remaining = select is None
    if shard_selector:
        shard_selector, select = _within_shards(shard_selector, select)
    return ListOptions(
        watch=watch,
        namespace=namespace,
        name=selected_name(fields) if namespace or not served.resource.namespaced else "",
        select=select,
        limit=limit or 0,
        continue_token=token,
        resource_version=revision,
        match=match,
        timeout_seconds=timeout,
        allow_bookmarks=request.flag("allowWatchBookmarks"),
        send_initial_events=True if starts_now else send,
        marks_initial_events_end=watch_list,
        counts_remaining=counts_remaining,
        shard_selector=shard_selector,
    )


def _within_shards(text: str, select: Selection | None) -> tuple[str, Selection]:
    """Return a shard selector in canonical form, and the objects that both select. Raises StatusError 500."""
    from kubeloop.devcluster.handlers.reading.shard_selector import ShardSelectorError, parse_shard_selector

    try:
        shards = parse_shard_selector(text)
    except ShardSelectorError as error:
        raise errors.internal(f"invalid shard selector: {error}") from error
    if select is None:
        return str(shards), shards.matches
    return str(shards), lambda obj: shards.matches(obj) and select(obj)


def _forbidden(field: str, message: str) -> JSON:
    return errors.cause("FieldValueForbidden", field, f"Forbidden: {message}")


def _list_causes(match: str, send: bool | None, version: str, token: str) -> list[JSON]:
    causes = []
    if send is not None:
        causes.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if match:
        field = "resourceVersionMatch"
        if not version:
            causes.append(_forbidden(field, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if token:
            causes.append(_forbidden(field, "resourceVersionMatch is forbidden when continue is provided"))
        if match not in ("Exact", "NotOlderThan"):
            supported = '"Exact", "NotOlderThan", ""'
            text = f'Unsupported value: "{match}": supported values: {supported}'
            causes.append(errors.cause("FieldValueNotSupported", field, text))
        if match == "Exact" and version == "0":
            causes.append(_forbidden(field, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    return causes


def _watch_causes(match: str, send: bool | None, token: str, watch_list: bool) -> list[JSON]:
    field = "resourceVersionMatch"
    causes = []
    if send is not None and match != "NotOlderThan":
        message = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes.append(_forbidden(field, message))
    if send is not None and not watch_list:
        message = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        causes.append(_forbidden("sendInitialEvents", message))
    if not match:
        return causes
    if send is None:
        message = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(_forbidden(field, message))
    if match != "NotOlderThan":
        text = f'Unsupported value: "{match}": supported values: "NotOlderThan"'
        causes.append(errors.cause("FieldValueNotSupported", field, text))
    if token:
        causes.append(_forbidden(field, "resourceVersionMatch is forbidden when continue is provided"))
    return causes
