"""Opening of watches. Source: apiserver pkg/endpoints/handlers/get.go, pkg/storage/cacher."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache

import msgspec

from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.handlers.reading.list import check_not_in_the_future, current_objects
from kubeloop.devcluster.handlers.reading.list_options import ListOptions
from kubeloop.devcluster.serializer.decoding import decode
from kubeloop.devcluster.storage.store import Table
from kubeloop.devcluster.storage.watch import BOOKMARK_SECONDS, INITIAL_EVENTS_END, Watcher, WatchStream
from kubeloop.devcluster.storage.watch_encoding import WatchEncoder
from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.times import go_duration_seconds


class WatchSettings(msgspec.Struct, frozen=True):
    """Settings of all watches. bookmark_seconds: interval of bookmarks. min_seconds: shortest
    duration of a watch that requests none, which ends after up to twice this time. buffer: unsent events per watch.

    watch_list, shards: the feature gates WatchList and ShardedListAndWatch.
    """

    bookmark_seconds: float = BOOKMARK_SECONDS
    min_seconds: float = 1800.0
    buffer: int = 16_384
    watch_list: bool = True
    shards: bool = False


@lru_cache(maxsize=256)
def _empty_object(served: ServedResource) -> JSON:
    """Return an empty object of the kind, as bookmarks contain it: fields that Go encodes even if unset."""
    return decode(served.resource, served.empty_object)[0]


def open_watch(
    served: ServedResource,
    table: Table,
    options: ListOptions,
    encoder: WatchEncoder,
    settings: WatchSettings,
    *,
    revision_now: Callable[[], int],
    rng: random.Random,
) -> tuple[WatchStream, Watcher]:
    """Start a watch at the requested revision. Raises StatusError 410 if it is compacted, 504 if it is future."""
    watcher = Watcher(
        table, namespace=options.namespace, selection=options.select, encoder=encoder, buffer=settings.buffer
    )
    revision = options.resource_version
    if options.send_initial_events:
        if revision:
            check_not_in_the_future(revision, revision_now())
        changes = []
        for stored in current_objects(table, options):
            if options.select is None or options.select(stored.object):
                watcher.add(stored)
    else:
        changes = table.changes_since(revision) if revision else []
        watcher.after = revision or 0  # events up to a future revision are skipped
    watcher.open(changes)
    resource = served.resource

    def bookmark(initial_events_end: bool) -> bytes:
        empty = _empty_object(served)
        metadata: JSON = {"resourceVersion": str(revision_now())}
        annotations = {
            **empty.get("metadata", {}).get("annotations", {}),
            **(INITIAL_EVENTS_END if initial_events_end else {}),
        }
        if annotations:
            metadata["annotations"] = annotations
        names = {"kind": resource.kind, "apiVersion": resource.api_version}
        if served.crd_version is not None:
            names = {"apiVersion": resource.api_version, "kind": resource.kind}
        obj = {**names, **empty, "metadata": metadata}
        return encoder.object("BOOKMARK", obj)

    timeout = go_duration_seconds(options.timeout_seconds or 0) or settings.min_seconds * (1 + rng.random())
    stream = WatchStream(
        watcher,
        timeout_seconds=float(timeout),
        bookmark=bookmark if options.allow_bookmarks else None,
        initial_events_end=bool(options.send_initial_events) and options.marks_initial_events_end,
        bookmark_seconds=settings.bookmark_seconds,
    )
    return stream, watcher
