"""Reads of stored and computed objects: get, list and watch.

They are handled synchronously, so that they see one state of the store. Only those that need a conversion webhook wait.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import partial

from msgspec import structs

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import PROTOBUF_TYPE, Response
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.request_info import RequestInfo
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.api.slow_work import Handling
from kubeloop.devcluster.handlers.reading.list import list_json, list_page
from kubeloop.devcluster.handlers.reading.list_options import ListOptions, parse_list_options, parse_resource_version
from kubeloop.devcluster.handlers.reading.object_responses import (
    list_response,
    metadata_of,
    object_response,
    protobuf_writer,
    table_content,
)
from kubeloop.devcluster.handlers.reading.watch import WatchSettings, open_watch
from kubeloop.devcluster.printers.table import check_include_object
from kubeloop.devcluster.serializer.conversion import all_from_stored, from_stored, prepare_conversions
from kubeloop.devcluster.serializer.negotiation import OutputFormat, negotiate_output
from kubeloop.devcluster.storage.store import ObjectStore, StoredObject, object_key
from kubeloop.devcluster.storage.watch import Watcher
from kubeloop.devcluster.storage.watch_encoding import (
    JSON_WATCH_ENCODER,
    TransformingWatchEncoder,
    WatchEncoder,
    encode_json_event,
)
from kubeloop.kube.json_object import JSON


class ObjectReader:
    """Handles reads, and holds the open watches. list_options: parses the options of a list or watch."""

    def __init__(self, store: ObjectStore, watch_settings: WatchSettings) -> None:
        self._store = store
        self._watch_settings = watch_settings
        self.list_options = partial(
            parse_list_options, watch_list=watch_settings.watch_list, shards=watch_settings.shards
        )
        self._watchers: dict[Watcher, RequestInfo] = {}

    def stored(self, info: RequestInfo) -> StoredObject:
        """Return the object of a request. Raises StatusError 404."""
        resource = info.served.resource
        stored = self._store.table(resource).get(object_key(info.namespace, info.name))
        if stored is None:
            raise errors.not_found(resource, info.name)
        return stored

    def get(self, context: RequestContext) -> Response | Handling[Response]:
        """Read one object. Raises StatusError."""
        request, info = context.request, context.info
        output = negotiate_output(request.headers.get("accept", ""))
        if request.flag("export"):
            raise errors.bad_request("the export parameter, deprecated since v1.14, is no longer supported")
        try:
            revision = parse_resource_version(request.option("resourceVersion"))
        except ValueError as error:
            raise errors.internal(str(error)) from error
        if revision is not None and revision > self._store.revision:
            raise errors.too_large_revision(revision, self._store.revision)
        if info.served.compute_objects is not None:
            return object_response(context, 200, _computed_object(info.served, info.name), output=output)
        self._store.refresh(info.served.resource, object_key(info.namespace, info.name))
        stored = self.stored(info)
        if info.served.crd_version is not None and info.served.crd_version.uses_webhook:
            return self._get_converted(context, stored, output)
        return object_response(context, 200, stored.object, stored=stored, output=output)

    async def _get_converted(self, context: RequestContext, stored: StoredObject, output: OutputFormat) -> Response:
        await prepare_conversions(context.info.served, [stored.object])
        return object_response(context, 200, stored.object, output=output)

    def list(self, context: RequestContext) -> Response | Handling[Response]:
        """Read a collection, or a page of it. Raises StatusError."""
        request, info = context.request, context.info
        output = negotiate_output(request.headers.get("accept", ""), "list")
        target = info.served
        options = self.list_options(request, target, info.namespace, info.name)
        if target.compute_objects is not None:
            selected = [obj for obj in target.compute_objects() if options.select is None or options.select(obj)]
            return list_response(context, selected, {}, output)
        if target.crd_version is not None and target.crd_version.uses_webhook:
            return self._list_converted(context, options, output)
        self._store.refresh(target.resource)
        page = list_page(self._store.table(target.resource), self._store.revision, options)
        if output.form == "objects" and output.protobuf and target.crd_version is None:
            return Response(200, protobuf_writer(target).list_body(page), PROTOBUF_TYPE)
        if output.form == "objects" and not output.yaml and target.reads_as_stored:
            return Response(200, list_json(target, page))
        objects = [from_stored(target, stored.object) for stored in page.items]
        return list_response(context, objects, page.metadata, output)

    async def _list_converted(self, context: RequestContext, options: ListOptions, output: OutputFormat) -> Response:
        target, table = context.info.served, self._store.table(context.info.served.resource)
        if options.select is not None:
            await prepare_conversions(target, [stored.object for stored in table.list(context.info.namespace)])
        page = list_page(table, self._store.revision, options)
        objects = await all_from_stored(target, [stored.object for stored in page.items])
        return list_response(context, objects, page.metadata, output)

    def watch(self, context: RequestContext) -> Response | Handling[Response]:
        """Watch a collection, or one object in it. Raises StatusError."""
        request, target = context.request, context.info.served
        output = negotiate_output(request.headers.get("accept", ""), "watch")
        if "watch" not in target.verbs:
            name = target.resource.group_resource
            message = f'watch is not supported on resources of kind "{name}"'
            raise errors.StatusError(405, "MethodNotAllowed", message, details={"kind": name})
        options = self.list_options(request, target, context.info.namespace, context.info.name)
        encoder = self._watch_encoder(context, output)
        if target.crd_version is not None and target.crd_version.uses_webhook:
            target.crd_version.is_watched = True
            return self._watch_converted(context, options, encoder)
        return self._open_watch(context, options, encoder)

    async def _watch_converted(self, context: RequestContext, options: ListOptions, encoder: WatchEncoder) -> Response:
        target, table = context.info.served, self._store.table(context.info.served.resource)
        await prepare_conversions(target, [stored.object for stored in table.list(context.info.namespace)])
        return self._open_watch(context, options, encoder)

    def _open_watch(self, context: RequestContext, options: ListOptions, encoder: WatchEncoder) -> Response:
        if not context.request.wants_websocket:
            return self._watch_response(context, options, encoder)
        from kubeloop.devcluster.handlers.containers.websocket import watch_over_websocket

        return watch_over_websocket(context.request, lambda: self._watch_response(context, options, encoder))

    def _watch_response(self, context: RequestContext, options: ListOptions, encoder: WatchEncoder) -> Response:
        target = context.info.served
        self._store.refresh(target.resource)
        try:
            stream, watcher = open_watch(
                target,
                self._store.table(target.resource),
                options,
                encoder,
                self._watch_settings,
                revision_now=lambda: self._store.revision,
                rng=context.rng,
            )
        except errors.StatusError as error:
            if error.code not in (410, 504):
                raise
            return Response(200, encoder.failure(error.status), encoder.content_type)  # an ERROR event, status 200
        self._watchers[watcher] = context.info
        watcher.when_closed(lambda: self._watchers.pop(watcher, None))
        return Response(200, stream, encoder.content_type)

    def _watch_encoder(self, context: RequestContext, output: OutputFormat) -> WatchEncoder:
        target = context.info.served
        if output.form == "objects":
            if output.protobuf and target.crd_version is None:
                from kubeloop.devcluster.handlers.reading.protobuf_responses import ObjectFrames

                return ObjectFrames(protobuf_writer(target))
            if not target.reads_as_stored:
                return TransformingWatchEncoder(
                    _end_if_unconverted(lambda type_, obj: encode_json_event(type_, from_stored(target, obj)))
                )
            return JSON_WATCH_ENCODER
        if output.form == "metadata":
            if output.is_list_metadata:
                return TransformingWatchEncoder(lambda type_, obj: b"")  # lists of metadata have no form for events
            if output.protobuf:
                from kubeloop.devcluster.handlers.reading.protobuf_responses import MetadataFrames

                return MetadataFrames(lambda obj: metadata_of(obj, output))
            return TransformingWatchEncoder(lambda type_, obj: encode_json_event(type_, metadata_of(obj, output)))
        check_include_object(context.request.option("includeObject"))
        first = True

        def frame(type_: str, obj: JSON) -> bytes:
            nonlocal first
            metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            content = table_content(context, [from_stored(target, obj)], metadata, output)
            if not first:  # only the first event has column definitions
                content["columnDefinitions"] = None
            first = False
            return encode_json_event(type_, content)

        return TransformingWatchEncoder(_end_if_unconverted(frame))

    def watched(self) -> builtins.list[RequestInfo]:
        """Return the targets of all open watches."""
        return [*self._watchers.values()]

    def end_watches(self, target: ServedResource) -> None:
        """End the watches of a custom resource whose definition has changed; clients start new ones."""
        table = self._store.table(target.resource)
        for watcher in [watcher for watcher in self._watchers if watcher.table is table]:
            watcher.cut()

    def cut_watches(self) -> None:
        """End every open watch, as at shutdown."""
        for watcher in [*self._watchers]:
            watcher.cut()


def _end_if_unconverted(encode_event: Callable[[str, JSON], bytes]) -> Callable[[str, JSON], bytes]:
    """Wrap an event encoder: an object that still needs a conversion ends the watch, because writes do not wait."""

    def encode_or_end(type_: str, obj: JSON) -> bytes:
        try:
            return encode_event(type_, obj)
        except errors.StatusError:
            return encode_json_event("ERROR", errors.internal("the object is still to be converted").status)

    return encode_or_end


def _computed_object(target: ServedResource, name: str) -> JSON:
    """Return an object of a kind that is not stored. Raises StatusError 404 with the resource's singular name."""
    assert target.compute_objects is not None
    for obj in target.compute_objects():
        if obj["metadata"]["name"] == name:
            return obj
    raise errors.not_found(structs.replace(target.resource, plural=target.resource.singular), name)
