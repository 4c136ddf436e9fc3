"""Lists with paging and resourceVersion.

Source of the semantics: apiserver pkg/endpoints/handlers/get.go, pkg/storage/etcd3, pkg/storage/cacher.
"""

from __future__ import annotations

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.handlers.reading.continue_token import (
    decode_continue_token,
    encode_continue_token,
    expired_continue_token,
)
from kubeloop.devcluster.handlers.reading.list_options import ListOptions
from kubeloop.devcluster.storage.store import StoredObject, Table
from kubeloop.kube.allocator import keep_large_blocks
from kubeloop.kube.json_object import JSON

_LARGE_BYTES = 128 << 10

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class Page(msgspec.Struct):
    """One page of a list: objects and list metadata."""

    items: list[StoredObject]
    metadata: JSON


def list_page(table: Table, revision_now: int, options: ListOptions) -> Page:
    """Return one page of a collection. Raises StatusError 400, 410 for a compacted revision, 504 for a future one."""
    start = ""
    revision = revision_now
    if options.continue_token:
        requested_revision, start = decode_continue_token(options.continue_token)
        if requested_revision >= 0:
            revision = requested_revision
            check_not_in_the_future(revision, revision_now)
            try:
                items = table.snapshot_at(revision, options.namespace)
            except errors.StatusError as error:
                raise expired_continue_token(start) from error
        else:
            items = current_objects(table, options)
        first = _prefix(options) + start.removeprefix("/")
        items = [stored for stored in items if stored.key >= first]
    elif options.match == "Exact" or (
        options.limit > 0 and options.resource_version and options.match != "NotOlderThan"
    ):
        assert options.resource_version is not None
        revision = options.resource_version
        check_not_in_the_future(revision, revision_now)
        items = table.snapshot_at(revision, options.namespace)
    else:
        if options.resource_version:
            check_not_in_the_future(options.resource_version, revision_now)
        items = current_objects(table, options)
    return _first_page_of(items, revision, options)


def current_objects(table: Table, options: ListOptions) -> list[StoredObject]:
    """Return the current objects that options may select; a field selector on the name reads one object only."""
    if not options.name:
        return table.list(options.namespace)
    stored = table.get(_prefix(options) + options.name)
    return [] if stored is None else [stored]


def _prefix(options: ListOptions) -> str:
    """Return the key prefix of a list; continue tokens omit it, so they are valid for any namespace."""
    return f"{options.namespace}/" if options.namespace else ""


def check_not_in_the_future(revision: int, now: int) -> None:
    if revision > now:
        raise errors.too_large_revision(revision, now)


def _first_page_of(items: list[StoredObject], revision: int, options: ListOptions) -> Page:
    """Return the first selected objects, up to the limit.

    As in kube-apiserver, the continue token depends on all remaining objects, selected or not.
    """
    select, limit = options.select, options.limit
    metadata: JSON = {"resourceVersion": str(revision)}
    if options.shard_selector:
        metadata["shardInfo"] = {"selector": options.shard_selector}
    # resourceVersion=0 is served from the watch cache, which does not page
    unlimited = limit <= 0 or (options.resource_version == 0 and not options.continue_token)
    if unlimited or len(items) <= limit:
        return Page(items if select is None else [stored for stored in items if select(stored.object)], metadata)
    if select is None:
        chosen, has_more = items[:limit], True
    else:
        chosen, has_more = [], False
        for position, stored in enumerate(items, 1):
            if select(stored.object):
                chosen.append(stored)
                if len(chosen) == limit:
                    has_more = position < len(items)
                    break
    if has_more:
        after = chosen[-1].key.removeprefix(_prefix(options)) + "\0"
        metadata["continue"] = encode_continue_token(revision, after)
        if options.counts_remaining:
            metadata["remainingItemCount"] = len(items) - limit
    return Page(chosen, metadata)


def list_json(served: ServedResource, page: Page) -> bytes:
    """Encode a page as a JSON list; items lack kind and apiVersion, as in Go's typed lists."""
    body = _list_json(served, page)
    if len(body) >= _LARGE_BYTES:
        keep_large_blocks()
    return body


def _list_json(served: ServedResource, page: Page) -> bytes:
    resource = served.resource
    if served.crd_version is not None:
        tail = {"kind": served.list_kind, "metadata": {"continue": "", **page.metadata}}  # with an empty token
        items = b",".join([stored.json() for stored in page.items])
        head = b'{"apiVersion":"%s","items":[%b],' % (resource.api_version.encode(), items)
        return head + _encode_sorted(tail)[1:] + b"\n"
    prefix = item_prefix_length(resource.kind, resource.api_version)
    head = b'{"kind":"%s","apiVersion":"%s","metadata":%s,"items":[' % (
        served.list_kind.encode(),
        resource.api_version.encode(),
        _encode(page.metadata),
    )
    return head + b",".join([b"{" + stored.json()[prefix:] for stored in page.items]) + b"]}\n"


def item_prefix_length(kind: str, api_version: str) -> int:
    """Return the length of the prefix {"kind":"Pod","apiVersion":"v1", of stored objects (create_update._ordered)."""
    return len(f'{{"kind":"{kind}","apiVersion":"{api_version}",')
