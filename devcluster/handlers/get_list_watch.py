"""GET of an object, of a collection (with paging and resourceVersion), and the opening of watches.

Source of the semantics: apiserver pkg/endpoints/handlers/get.go, pkg/storage/etcd3, apimachinery's
metainternalversion validation of ListOptions.
"""

from __future__ import annotations

import random
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from dataclasses import dataclass
from posixpath import normpath

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import Request
from kubeloop.devcluster.api.served_resources import Served
from kubeloop.devcluster.handlers.selectors import Selection, selection, the_name
from kubeloop.devcluster.serializer.decoding import decode, json_kind
from kubeloop.devcluster.serializer.go_json_errors import json_error
from kubeloop.devcluster.storage.store import Stored, Table
from kubeloop.devcluster.storage.watch import INITIAL_EVENTS_END, Watcher, WatchStream
from kubeloop.devcluster.storage.watch_frames import Frames
from kubeloop.kube.json_object import JSON

MIN_WATCH_SECONDS = 1800.0
_encode = msgspec.json.Encoder().encode

_INCONSISTENT = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(slots=True)
class ListOptions:
    """The query of a list or watch. resource_version None: not given."""

    watch: bool
    namespace: str
    name: str
    """The only object that can be selected, where the field selector says so; else ""."""
    select: Selection | None
    limit: int
    continue_token: str
    resource_version: int | None
    match: str
    timeout_seconds: int | None
    allow_bookmarks: bool
    send_initial_events: bool | None


def parse_revision(text: str) -> int | None:
    """A resourceVersion as the API takes it; "" is None. Raises ValueError with Kubernetes' message."""
    if not text:
        return None
    wrong = ""
    if not (text.isascii() and text.isdigit()):
        wrong = "invalid syntax"
    elif int(text) >= 1 << 64:
        wrong = "value out of range"
    if wrong:
        raise ValueError(f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {wrong}')
    return int(text)


_INTEGER = re.compile(r"[-+]?[0-9]+")


def query_integer(request: Request, name: str) -> int | None:
    """A number of the query; None if it is not there. Raises StatusError 400 in Go's words."""
    if name not in request.query:
        return None
    text = request.option(name)
    wrong = "" if _INTEGER.fullmatch(text) else "invalid syntax"
    if not wrong and not -(1 << 63) <= int(text) < 1 << 63:
        wrong = "value out of range"
    if wrong:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": {wrong}')
    return int(text)


def parse_list_options(request: Request, served: Served, namespace: str, name: str = "") -> ListOptions:
    """Read and validate the query. `name` narrows to one object, as a watch of a named object does."""
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
    if watch and send is None and not match and version in ("", "0"):
        send, match = True, "NotOlderThan"  # a watch without a beginning starts with the present state
    causes = _watch_causes(match, send, token) if watch else _list_causes(match, send, version, token)
    if causes:
        raise errors.options_invalid("ListOptions", causes)
    if token and not watch:
        _parse_continue(token)
        if version not in ("", "0"):
            raise errors.bad_request("specifying resource version is not allowed when using continue")
    try:
        revision = parse_revision(version)
    except ValueError as error:
        if watch:
            raise errors.internal(str(error)) from error
        raise errors.bad_request(f"invalid resource version: {error}") from error
    return ListOptions(
        watch=watch,
        namespace=namespace,
        name=the_name(fields) if namespace or not served.resource.namespaced else "",
        select=select,
        limit=limit or 0,
        continue_token=token,
        resource_version=revision,
        match=match,
        timeout_seconds=timeout,
        allow_bookmarks=request.flag("allowWatchBookmarks"),
        send_initial_events=send,
    )


def _forbidden(field: str, why: str) -> JSON:
    return errors.cause("FieldValueForbidden", field, f"Forbidden: {why}")


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


def _watch_causes(match: str, send: bool | None, token: str) -> list[JSON]:
    field = "resourceVersionMatch"
    causes = []
    if send is not None and match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes.append(_forbidden(field, why))
    if not match:
        return causes
    if send is None:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(_forbidden(field, why))
    if match != "NotOlderThan":
        text = f'Unsupported value: "{match}": supported values: "NotOlderThan"'
        causes.append(errors.cause("FieldValueNotSupported", field, text))
    if token:
        causes.append(_forbidden(field, "resourceVersionMatch is forbidden when continue is provided"))
    return causes


# --- paging -----------------------------------------------------------------------------------------------------------


def _continue_token(revision: int, start: str) -> str:
    token = _encode({"v": "meta.k8s.io/v1", "rv": revision, "start": start})
    return urlsafe_b64encode(token).rstrip(b"=").decode()


def _parse_continue(token: str) -> tuple[int, str]:
    """(revision, or -1 for an inconsistent remainder; first key). Raises StatusError 400."""
    try:
        if "=" in token or not _URL_BASE64.fullmatch(token):
            good = _URL_BASE64.match(token)
            raise ValueError(f": illegal base64 data at input byte {good.end() if good else 0}")
        try:
            text = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        except Base64Error as error:
            raise ValueError(f": illegal base64 data at input byte {len(token) - 1}") from error
        if wrong := json_error(text):
            raise ValueError(f": {wrong}")
        decoded = msgspec.json.decode(text)
        if not isinstance(decoded, dict):
            kind = json_kind(decoded)
            raise ValueError(f": json: cannot unmarshal {kind} into Go value of type storage.continueToken")
        version, revision, start = decoded.get("v", ""), decoded.get("rv", 0), decoded.get("start", "")
        if type(revision) is not int or type(start) is not str:
            raise ValueError(": json: cannot unmarshal")
        if version != "meta.k8s.io/v1":
            raise ValueError(f": server does not recognize this encoded version {version}")
        if not revision:
            raise ValueError(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
        if not start:
            raise ValueError(": encoded start key empty (version meta.k8s.io/v1)")
        if normpath(f"/{start.removeprefix('/')}") != f"/{start.removeprefix('/')}":
            raise ValueError(f": {start}")
    except ValueError as error:
        raise errors.bad_request(f"invalid continue token: continue key is not valid{error}") from error
    return revision, start


_URL_BASE64 = re.compile(r"[-_A-Za-z0-9]*")


@dataclass(slots=True)
class Page:
    """What a list answers: the objects and the list's metadata."""

    items: list[Stored]
    metadata: JSON


def list_page(table: Table, revision_now: int, options: ListOptions) -> Page:
    """One page of the collection. Raises StatusError: 410 for what is compacted, 504 for the future, 400."""
    start = ""
    revision = revision_now
    if options.continue_token:
        asked, start = _parse_continue(options.continue_token)
        if asked >= 0:
            revision = asked
            _not_in_the_future(revision, revision_now)
            try:
                items = table.snapshot_at(revision, options.namespace)
            except errors.StatusError as gone:
                failure = errors.expired(_INCONSISTENT)
                failure.list_metadata = {"continue": _continue_token(-1, start)}
                raise failure from gone
        else:
            items = _present(table, options)
        first = _prefix(options) + start.removeprefix("/")
        items = [stored for stored in items if stored.key >= first]
    elif options.match == "Exact" or (
        options.limit > 0 and options.resource_version and options.match != "NotOlderThan"
    ):
        assert options.resource_version is not None
        revision = options.resource_version
        _not_in_the_future(revision, revision_now)
        items = table.snapshot_at(revision, options.namespace)
    else:
        if options.resource_version:
            _not_in_the_future(options.resource_version, revision_now)
        items = _present(table, options)
    return _cut(items, revision, options)


def _present(table: Table, options: ListOptions) -> list[Stored]:
    """The objects there are now; the only one that can be selected is looked up, and so there are never more of it."""
    if not options.name:
        return table.list(options.namespace)
    stored = table.get(_prefix(options) + options.name)
    return [] if stored is None else [stored]


def _prefix(options: ListOptions) -> str:
    """What the keys of a list begin with; a continue token is without it, and so goes for any namespace."""
    return f"{options.namespace}/" if options.namespace else ""


def _not_in_the_future(revision: int, now: int) -> None:
    if revision > now:
        raise errors.too_large_revision(revision, now)


def _cut(items: list[Stored], revision: int, options: ListOptions) -> Page:
    """The first objects that are selected, up to the limit.

    Whether there are more is said as kube-apiserver knows it: of objects, not of selected ones.
    """
    select, limit = options.select, options.limit
    metadata: JSON = {"resourceVersion": str(revision)}
    # resourceVersion=0 is answered from the watch cache, which does not page
    unlimited = limit <= 0 or (options.resource_version == 0 and not options.continue_token)
    if unlimited or len(items) <= limit:
        return Page(items if select is None else [each for each in items if select(each.object)], metadata)
    if select is None:
        metadata["remainingItemCount"] = len(items) - limit
        chosen, more = items[:limit], True
    else:
        chosen, more = [], False
        for position, each in enumerate(items, 1):
            if select(each.object):
                chosen.append(each)
                if len(chosen) == limit:
                    more = position < len(items)
                    break
    if more:
        after = chosen[-1].key.removeprefix(_prefix(options)) + "\0"
        metadata["continue"] = _continue_token(revision, after)
    return Page(chosen, metadata)


def list_json(served: Served, page: Page) -> bytes:
    """The page as a JSON list; items come without kind and apiVersion, as Go's typed lists write them."""
    resource = served.resource
    if served.custom is not None:
        metadata = {"continue": "", **page.metadata}  # which only typed lists leave out
        whole = {"kind": served.list_kind, "apiVersion": resource.api_version, "metadata": metadata, "items": []}
        return _encode(whole)[:-2] + b",".join([stored.json() for stored in page.items]) + b"]}\n"
    prefix = item_prefix_length(resource.kind, resource.api_version)
    head = b'{"kind":"%s","apiVersion":"%s","metadata":%s,"items":[' % (
        served.list_kind.encode(),
        resource.api_version.encode(),
        _encode(page.metadata),
    )
    return head + b",".join([b"{" + stored.json()[prefix:] for stored in page.items]) + b"]}\n"


def item_prefix_length(kind: str, api_version: str) -> int:
    """Length of what every stored object's JSON begins with: {"kind":"Pod","apiVersion":"v1", (see writing.order)."""
    return len(f'{{"kind":"{kind}","apiVersion":"{api_version}",')


# --- watches ----------------------------------------------------------------------------------------------------------


def _empty(served: Served) -> JSON:
    """An object of the kind with nothing set, as bookmarks carry it: converted from the server's own form."""
    empty = decode(served.resource, {})[0]
    name = served.resource.group_resource
    if name in _COUNTED:
        empty["spec"]["replicas"] = 0  # a plain number in the server's memory
    elif name == "daemonsets.apps":
        empty["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "0"}
    return empty


_COUNTED = ("deployments.apps", "replicasets.apps", "statefulsets.apps")


def open_watch(
    served: Served,
    table: Table,
    options: ListOptions,
    *,
    revision_now: Callable[[], int],
    rng: random.Random,
    frames: Frames,
    bookmark_seconds: float,
    buffer: int,
) -> tuple[WatchStream, Watcher]:
    """Begin a watch where its options say. Raises StatusError: 410 if that is compacted, 504 if it is to come."""
    watcher = Watcher(table, namespace=options.namespace, selection=options.select, frames=frames, buffer=buffer)
    revision = options.resource_version
    if options.send_initial_events:
        if revision:
            _not_in_the_future(revision, revision_now())
        changes = []
        for stored in _present(table, options):
            if options.select is None or options.select(stored.object):
                watcher.add(stored)
    else:
        changes = table.changes_since(revision) if revision else []
        watcher.after = revision or 0  # of a revision that is to come, nothing before it is told
    watcher.open(changes)
    resource = served.resource

    empty = _empty(served)

    def bookmark(initial_events_end: bool) -> bytes:
        metadata: JSON = {"resourceVersion": str(revision_now())}
        annotations = {
            **empty.get("metadata", {}).get("annotations", {}),
            **(INITIAL_EVENTS_END if initial_events_end else {}),
        }
        if annotations:
            metadata["annotations"] = annotations
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, **empty, "metadata": metadata}
        return frames.object("BOOKMARK", obj)

    timeout = options.timeout_seconds or MIN_WATCH_SECONDS * (1 + rng.random())
    stream = WatchStream(
        watcher,
        timeout_seconds=float(timeout),
        bookmark=bookmark if options.allow_bookmarks else None,
        initial_events_end=bool(options.send_initial_events),
        bookmark_seconds=bookmark_seconds,
    )
    return stream, watcher
