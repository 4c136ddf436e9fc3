"""The verbs of the REST API on one store: what each does and answers.

Reading is `lists`, writing `writing`, `deleting`, `patching` and `subresources`; here requests become their calls and
results become answers. Everything is synchronous, so that a request sees one state of the store.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from kubeloop.devcluster.admission.chain import Admission
from kubeloop.devcluster.admission.policies.active import Policies
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.deferred_work import Later, Waiting
from kubeloop.devcluster.api.request import PROTOBUF_TYPE, Request, Response
from kubeloop.devcluster.api.request_info import OTHER_NAMESPACE, RequestInfo, check_names, verb
from kubeloop.devcluster.api.served_resources import (
    BINDINGS,
    SELF_SUBJECT_REVIEWS,
    VALIDATING_ADMISSION_POLICIES,
    Served,
    served,
    stored_form,
)
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.authentication.access_reviews import review
from kubeloop.devcluster.authentication.authenticator import Authentication
from kubeloop.devcluster.authentication.token_requests import granted, with_usual_duration
from kubeloop.devcluster.authentication.token_signing import TokenKey
from kubeloop.devcluster.handlers.binding import PodBinder
from kubeloop.devcluster.handlers.create_update import ObjectWriter, check_version
from kubeloop.devcluster.handlers.delete import ObjectDeleter, deletion_warnings
from kubeloop.devcluster.handlers.delete_options import read_delete_options
from kubeloop.devcluster.handlers.eviction import PodEvictor
from kubeloop.devcluster.handlers.list import list_json, list_page
from kubeloop.devcluster.handlers.list_options import parse_list_options, parse_resource_version
from kubeloop.devcluster.handlers.patch import (
    APPLY,
    PATCH_TYPES,
    check_patch_options,
    patch_type,
    patched,
    read_configuration,
    told_of_repeated,
)
from kubeloop.devcluster.handlers.scale import read_scale, write_scale
from kubeloop.devcluster.handlers.streams import check_log_options, check_ports, log_of, refuse_proxy, refuse_stream
from kubeloop.devcluster.handlers.watch import open_watch
from kubeloop.devcluster.handlers.write_options import read_dry_run, writer_of
from kubeloop.devcluster.managedfields.apply import apply_configuration
from kubeloop.devcluster.managedfields.field_sets import track_create, track_update
from kubeloop.devcluster.printers.table import check_include_object, table
from kubeloop.devcluster.registry.service_allocation import ServiceAddresses
from kubeloop.devcluster.serializer import decoding
from kubeloop.devcluster.serializer.controller_revision_data import keep_applied_text
from kubeloop.devcluster.serializer.conversion import all_from_stored, from_stored, to_stored
from kubeloop.devcluster.serializer.defaulting import apply_defaults
from kubeloop.devcluster.serializer.request_bodies import (
    Body,
    View,
    check_metadata_form,
    drop_repeated_owners,
    field_validation,
    negotiate,
    read_object,
)
from kubeloop.devcluster.serializer.responses import document
from kubeloop.devcluster.storage.store import Store, Stored, object_key
from kubeloop.devcluster.storage.watch import Watcher
from kubeloop.devcluster.storage.watch_frames import JSON_FRAMES, Frames, WordedFrames, plain_frame
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES, PODS, Resource

if TYPE_CHECKING:
    from kubeloop.devcluster.handlers.protobuf_responses import ProtobufWriter

_encode = msgspec.json.Encoder().encode


def _plain(group: str, version: str, kind: str) -> Resource[JSON]:
    return Resource(group, version, kind, "", True, dict)


_BINDING = _plain("", "v1", "Binding")
_EVICTION = _plain("policy", "v1", "Eviction")
_TOKEN_REQUEST = _plain("authentication.k8s.io", "v1", "TokenRequest")
_TOKEN_REQUESTS = Served(_TOKEN_REQUEST)
_SUCCESS: JSON = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class Rest:
    """All verbs. `keys` sign service account tokens; `bookmark_seconds` and `watch_buffer` are of watches."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        rng: random.Random,
        authentication: Authentication,
        keys: TokenKey,
        bookmark_seconds: float,
        watch_buffer: int,
        addresses: ServiceAddresses,
        waiting: Waiting,
    ) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._authentication = authentication
        self._keys = keys
        self._bookmark_seconds = bookmark_seconds
        self._watch_buffer = watch_buffer
        self._waiting = waiting
        self.policies = Policies(store, waiting)
        admission = Admission(store, clock, self.policies)
        self._writer = ObjectWriter(store, admission, addresses, clock=clock, rng=rng)
        self.deleter = ObjectDeleter(store, admission, clock)
        self._binder = PodBinder(store, clock)
        self._evictor = PodEvictor(store, self.deleter, clock)
        self._watchers: dict[Watcher, RequestInfo] = {}

    def answer(self, request: Request, found: RequestInfo) -> Response:
        """Answer a request for a resource. Raises StatusError."""
        self.policies.asked = request
        try:
            return self._answer(request, found, verb(found, request.method))
        finally:
            self.policies.asked = None

    def _answer(self, request: Request, found: RequestInfo, asked: str) -> Response:
        if found.subresource:
            return self._subresource(request, found, asked)
        match asked:
            case "get":
                return self._get(request, found)
            case "list":
                return self.watch(request, found) if request.flag("watch") else self._list(request, found)
            case "create":
                return self._create(request, found)
            case "update":
                return self._update(request, found)
            case "patch":
                return self._patch(request, found)
            case "delete":
                return self._delete(request, found)
            case _:
                return self._delete_collection(request, found)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _stored(self, found: RequestInfo) -> Stored:
        resource = found.served.resource
        stored = self._store.table(resource).get(object_key(found.namespace, found.name))
        if stored is None:
            raise errors.not_found(resource, found.name)
        return stored

    def _get(self, request: Request, found: RequestInfo) -> Response:
        view = negotiate(request.headers.get("accept", ""))
        if request.flag("export"):
            raise errors.bad_request("the export parameter, deprecated since v1.14, is no longer supported")
        try:
            revision = parse_resource_version(request.option("resourceVersion"))
        except ValueError as error:
            raise errors.internal(str(error)) from error
        if revision is not None and revision > self._store.revision:
            raise errors.too_large_revision(revision, self._store.revision)
        if found.served.looked_up is not None:
            return self._object(request, found.served, 200, _looked_up(found.served, found.name), view=view)
        stored = self._stored(found)
        return self._object(request, found.served, 200, stored.object, stored=stored, view=view)

    def _list(self, request: Request, found: RequestInfo) -> Response:
        view = negotiate(request.headers.get("accept", ""), "list")
        target = found.served
        options = parse_list_options(request, target, found.namespace, found.name)
        if target.looked_up is not None:
            selected = [each for each in target.looked_up() if options.select is None or options.select(each)]
            return self._list_of(request, target, selected, {}, view)
        page = list_page(self._store.table(target.resource), self._store.revision, options)
        if view.form == "objects" and view.protobuf and target.custom is None:
            return Response(200, _protobuf_writer(target).list_body(page), PROTOBUF_TYPE)
        if view.form == "objects" and not view.yaml and target.shown_as_stored:
            return Response(200, list_json(target, page))
        objects = all_from_stored(target, [stored.object for stored in page.items])
        return self._list_of(request, target, objects, page.metadata, view)

    def _list_of(self, request: Request, target: Served, objects: list[JSON], metadata: JSON, view: View) -> Response:
        resource = target.resource
        check_metadata_form(view, resource, is_list=True)
        if view.form == "table":
            return document(200, self._table(request, target, objects, metadata, view), view)
        if view.form == "metadata":
            # an empty list has none at all, as Go writes a slice that nothing was put into
            items = [_metadata_of(obj, view) for obj in objects] or None
            kind, api_version = "PartialObjectMetadataList", f"meta.k8s.io/{view.version}"
        else:
            left_out = () if target.custom is not None else ("kind", "apiVersion")
            metadata = metadata if target.custom is None else {"continue": "", **metadata}
            items = [{name: value for name, value in obj.items() if name not in left_out} for obj in objects]
            kind, api_version = target.list_kind, resource.api_version
        return document(200, {"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items}, view)

    def watch(self, request: Request, found: RequestInfo) -> Response:
        """The changes of a collection, or of one object in it. Raises StatusError."""
        view = negotiate(request.headers.get("accept", ""), "watch")
        target = found.served
        if "watch" not in target.verbs:
            name = target.resource.group_resource
            told = f'watch is not supported on resources of kind "{name}"'
            raise errors.StatusError(405, "MethodNotAllowed", told, details={"kind": name})
        options = parse_list_options(request, target, found.namespace, found.name)
        frames = self._frames(request, target, view)
        if target.custom is not None and target.custom.is_converted:
            target.custom.prepare([each.object for each in self._store.table(target.resource).list(found.namespace)])
        try:
            stream, watcher = open_watch(
                target,
                self._store.table(target.resource),
                options,
                revision_now=lambda: self._store.revision,
                rng=self._rng,
                frames=frames,
                bookmark_seconds=self._bookmark_seconds,
                buffer=self._watch_buffer,
            )
        except errors.StatusError as error:
            if error.code not in (410, 504):
                raise
            return Response(200, frames.failure(error.status), frames.content_type)  # the stream says it
        self._watchers[watcher] = found
        watcher.when_closed(lambda: self._watchers.pop(watcher, None))
        return Response(200, stream, frames.content_type)

    def _frames(self, request: Request, target: Served, view: View) -> Frames:
        if view.form == "objects":
            if view.protobuf and target.custom is None:
                from kubeloop.devcluster.handlers.protobuf_responses import ObjectFrames

                return ObjectFrames(_protobuf_writer(target))
            if not target.shown_as_stored:
                return WordedFrames(_unless_later(lambda type_, obj: plain_frame(type_, from_stored(target, obj))))
            return JSON_FRAMES
        if view.form == "metadata":
            if view.listed:
                return WordedFrames(lambda type_, obj: b"")  # no event has a list
            if view.protobuf:
                from kubeloop.devcluster.handlers.protobuf_responses import MetadataFrames

                return MetadataFrames(lambda obj: _metadata_of(obj, view))
            return WordedFrames(lambda type_, obj: plain_frame(type_, _metadata_of(obj, view)))
        check_include_object(request.option("includeObject"))
        first = True

        def frame(type_: str, obj: JSON) -> bytes:
            nonlocal first
            metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            content = self._table(request, target, [from_stored(target, obj)], metadata, view)
            if not first:  # only the first event says what the columns are
                content["columnDefinitions"] = None
            first = False
            return plain_frame(type_, content)

        return WordedFrames(_unless_later(frame))

    def watched(self) -> list[RequestInfo]:
        """What open watches watch."""
        return [*self._watchers.values()]

    def end_watches(self, target: Served) -> None:
        """End the watches of a custom resource whose definition has changed, for their clients to begin anew."""
        table = self._store.table(target.resource)
        for watcher in [each for each in self._watchers if each.table is table]:
            watcher.cut()

    def cut_watches(self) -> None:
        """End every open watch, as a server does that shuts down."""
        for watcher in [*self._watchers]:
            watcher.cut()

    # --- answers ------------------------------------------------------------------------------------------------------

    def _table(self, request: Request, target: Served, objects: list[JSON], metadata: JSON, view: View) -> JSON:
        include = request.option("includeObject") or "Metadata"
        version = f"meta.k8s.io/{view.version}"
        return table(
            target, objects, now=self._clock.now(), include_object=include, list_metadata=metadata, api_version=version
        )

    def _object(
        self,
        request: Request,
        target: Served,
        status: int,
        obj: JSON,
        *,
        stored: Stored | None = None,
        view: View | None = None,
    ) -> Response:
        """One object in the form the client wants."""
        view = view or negotiate(request.headers.get("accept", ""))
        if view.protobuf and stored is not None and view.form == "objects" and target.custom is None:
            return Response(status, _protobuf_writer(target).body(stored), PROTOBUF_TYPE)
        if view.form == "objects" and not view.yaml and not view.protobuf and target.shown_as_stored:
            return Response(status, (stored.json() if stored is not None else _encode(obj)) + b"\n")
        obj = from_stored(target, obj)
        if view.form == "table":
            metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            obj = self._table(request, target, [obj], metadata, view)
        elif view.form == "metadata":
            check_metadata_form(view, target.resource, is_list=False)
            obj = _metadata_of(obj, view)
        return document(status, obj, view)

    # --- writing ------------------------------------------------------------------------------------------------------

    def _read(self, request: Request, target: Served, options_kind: str) -> Body:
        body = read_object(request, target.resource, field_validation(request, options_kind))
        request.warnings += body.warnings
        return body

    def _incoming(self, request: Request, target: Served, body: Body) -> Body:
        metadata = body.obj["metadata"]
        if len(metadata.get("ownerReferences", ())) > 1 and (told := drop_repeated_owners(metadata)):
            request.warnings.append(told)
        apply_defaults(target.resource, body.obj)
        return body

    def _track(
        self, target: Served, body: Body, writer: Writer, before: Stored | None, subresource: str = ""
    ) -> Writer:
        """Turn an object of a second version into what is stored; its fields are owned under the names it came with,
        and with those that only the stored form has defaults for."""
        if target.stored_as is None:
            return writer
        if not writer.applied:
            body.obj = from_stored(target, to_stored(target, body.obj))
            if before is None:
                track_create(target, body.obj, writer, self._writer.now, subresource=subresource)
            else:
                live = from_stored(target, before.object)
                track_update(target, body.obj, live, writer, self._writer.now, subresource=subresource)
        body.obj = self._stored_form(target, body.obj)
        return replace(writer, applied=True)

    def _stored_form(self, target: Served, obj: JSON) -> JSON:
        if target.stored_as is None:
            return obj
        stored = to_stored(target, obj)
        apply_defaults(target.stored_as, stored)
        return stored

    def _create(self, request: Request, found: RequestInfo) -> Response:
        target = found.served
        view = negotiate(request.headers.get("accept", ""))
        dry_run = read_dry_run(request, "CreateOptions")
        if target.resource is BINDINGS:
            return self._bind(request, found)
        if not target.stored:
            return self._virtual(request, found)
        body = self._read(request, target, "CreateOptions")
        self._writer.set_namespace(target, body.obj.setdefault("metadata", {}), found.namespace)
        body = self._incoming(request, target, body)
        writer = self._track(target, body, writer_of(request), None)
        obj = self._writer.create(target, body, found.namespace, writer, request.warnings, dry_run=dry_run)
        return self._written(request, target, 201, obj, view)

    def _written(self, request: Request, target: Served, status: int, obj: JSON, view: View) -> Response:
        metadata = obj["metadata"]
        key = object_key(metadata.get("namespace", ""), metadata.get("name", ""))
        stored = self._store.table(target.resource).get(key)
        if stored is not None and stored.object is not obj:
            stored = None
        return self._object(request, target, status, obj, stored=stored, view=view)

    def _virtual(self, request: Request, found: RequestInfo) -> Response:
        target = found.served
        body = self._read(request, target, "CreateOptions")
        self._writer.set_namespace(target, body.obj["metadata"], found.namespace)
        track_create(target, body.obj, writer_of(request), self._writer.now)
        obj = review(target.resource, body.obj, request.user, self._authentication)
        if target.resource is SELF_SUBJECT_REVIEWS:
            obj["metadata"]["creationTimestamp"] = self._writer.now()
        return self._object(request, target, 201, obj)

    def _update(self, request: Request, found: RequestInfo, subresource: str = "") -> Response:
        target = found.served
        view = negotiate(request.headers.get("accept", ""))
        dry_run = read_dry_run(request, "UpdateOptions")
        body = self._read(request, target, "UpdateOptions")
        check_names(found, body.obj)
        body = self._incoming(request, target, body)
        resource = target.resource
        before = self._store.table(resource).get(object_key(found.namespace, found.name))
        writer = self._track(target, body, writer_of(request), before, subresource)
        if before is None:
            if not target.create_on_update:
                raise errors.not_found(resource, found.name)
            if given := body.obj["metadata"].get("uid"):
                raise errors.failed_precondition(resource, found.name, "UID", given, "")
            check_version(body.obj["metadata"].get("resourceVersion"))
            if not dry_run:
                body.obj["metadata"].pop("resourceVersion", None)
            obj = self._writer.create(
                target, body, found.namespace, writer, request.warnings, dry_run=dry_run, subresource=subresource
            )
            return self._written(request, target, 201, obj, view)
        obj = self._writer.update(
            target, before, body, writer, request.warnings, dry_run=dry_run, subresource=subresource
        )
        return self._written(request, target, 200, obj, view)

    # --- patches ------------------------------------------------------------------------------------------------------

    def _patch(self, request: Request, found: RequestInfo, subresource: str = "") -> Response:
        kind = patch_type(request)
        custom = found.served.custom
        if kind not in (PATCH_TYPES if custom is None else custom.patch_types):
            raise errors.unsupported_patch() if custom is None else custom.unsupported_patch()
        view = negotiate(request.headers.get("accept", ""))
        dry_run = read_dry_run(request, "PatchOptions")
        mode = field_validation(request, "PatchOptions")
        target = found.served
        check_patch_options(request, kind)
        if kind == APPLY:
            return self._apply(request, found, subresource, dry_run=dry_run, view=view)
        before = self._stored(found)
        live = from_stored(target, before.object)
        body = patched(live, request.body, kind, target.resource, mode)
        request.warnings += body.warnings
        check_names(found, body.obj)
        body = self._incoming(request, target, body)
        writer = self._track(target, body, writer_of(request), before, subresource)
        obj = self._writer.update(
            target, before, body, writer, request.warnings, dry_run=dry_run, subresource=subresource, patched=True
        )
        return self._written(request, target, 200, obj, view)

    def _apply(self, request: Request, found: RequestInfo, subresource: str, *, dry_run: bool, view: View) -> Response:
        target, resource = found.served, found.served.resource
        mode = field_validation(request, "PatchOptions")
        before = self._store.table(resource).get(object_key(found.namespace, found.name))
        if before is None and subresource and not target.create_on_update and resource not in _MADE_BY_STATUS:
            raise errors.not_found(resource, found.name)
        given, repeated = read_configuration(request.body, resource)
        is_bare = before is not None and "metadata" not in given
        given["metadata"] = given.get("metadata") or {}
        if not resource.namespaced:
            given["metadata"].pop("namespace", None)
        if before is not None and not given["metadata"].get("name"):
            given["metadata"]["name"] = found.name  # a configuration need not say what is there already
        check_names(found, {"metadata": {**given["metadata"]}})
        if is_bare:
            del given["metadata"]  # which is no wish, then
        if before is None and (uid := given["metadata"].get("uid")):
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise errors.conflict(resource, found.name, why)
        obj = apply_configuration(
            target,
            None if before is None else from_stored(target, before.object),
            given,
            manager=request.option("fieldManager"),
            force=request.flag("force"),
            subresource=subresource,
            now=rfc3339(self._clock.now()),
        )
        request.warnings += told_of_repeated(repeated, mode)
        writer = Writer(request.option("fieldManager"), applied=True, user=request.user)
        body = self._incoming(request, target, Body(decoding.normal(resource, obj), sent=obj))
        keep_applied_text(resource, body.obj, obj, None if before is None else before.object)
        body.obj = self._stored_form(target, body.obj)
        if before is None:
            body.obj["metadata"].pop("resourceVersion", None)
            created = self._writer.create(
                target, body, found.namespace, writer, request.warnings, dry_run=dry_run, subresource=subresource
            )
            return self._written(request, target, 201, created, view)
        updated = self._writer.update(
            target, before, body, writer, request.warnings, dry_run=dry_run, subresource=subresource, patched=True
        )
        return self._written(request, target, 200, updated, view)

    # --- deleting -----------------------------------------------------------------------------------------------------

    def _delete(self, request: Request, found: RequestInfo) -> Response:
        view = negotiate(request.headers.get("accept", ""))
        options = read_delete_options(request)
        target = found.served
        request.warnings += deletion_warnings(target, options)
        stored = self._stored(found)
        if target.custom is not None:
            target.custom.prepare([stored.object])  # what cannot be shown is not deleted
        obj, gone = self.deleter.delete(stored_form(target), stored, options)
        if not gone or target.deleted_whole:
            accepted = not gone and options.orphan_dependents is False
            return self._object(request, target, 202 if accepted else 200, obj, view=view)
        resource = target.resource
        details: JSON = {"name": found.name}
        if resource.group:
            details["group"] = resource.group
        details |= {"kind": resource.plural, "uid": obj["metadata"]["uid"]}
        return document(200, {**_SUCCESS, "details": details}, view)

    def _delete_collection(self, request: Request, found: RequestInfo) -> Response:
        view = negotiate(request.headers.get("accept", ""))
        target = found.served
        chosen = parse_list_options(request, target, found.namespace)
        options = read_delete_options(request)
        request.warnings += deletion_warnings(target, options)
        limited = chosen.limit > 0
        if not chosen.limit:
            chosen.limit = _DELETED_TOGETHER
        table = self._store.table(target.resource)
        page = list_page(table, self._store.revision, chosen)
        items, following = [*page.items], page
        while not limited and (token := following.metadata.get("continue")):
            chosen.continue_token, chosen.resource_version, chosen.match = token, None, ""
            following = list_page(table, self._store.revision, chosen)
            items += following.items
        objects = all_from_stored(target, [stored.object for stored in items])  # before anything is done
        self._waiting.allowed = False
        for listed in items:
            if (stored := table.get(listed.key)) is not None:  # a list of the past names what may have changed since
                self.deleter.delete(stored_form(target), stored, options)
        metadata = page.metadata if limited else {"resourceVersion": page.metadata["resourceVersion"]}
        return self._list_of(request, target, objects, metadata, view)

    # --- subresources -------------------------------------------------------------------------------------------------

    def _subresource(self, request: Request, found: RequestInfo, asked: str) -> Response:
        match found.subresource:
            case "status":
                return self._like_the_object(request, found, asked, "status")
            case "scale":
                return self._scale(request, found, asked)
            case "binding":
                return self._bind(request, found)
            case "eviction":
                return self._evict(request, found)
            case "finalize":
                return self._update(request, found, "finalize")
            case "approval" | "ephemeralcontainers" | "resize":
                return self._like_the_object(request, found, asked, found.subresource)
            case "token":
                return self._token_request(request, found)
        return self._stream(request, found)

    def _stream(self, request: Request, found: RequestInfo) -> Response:
        """log, exec, attach, portforward, proxy."""
        asked, container = found.subresource, request.option("container")
        if asked == "log":
            check_log_options(request, found.name)
            return log_of(self._store, self._stored(found).object, container)
        if asked == "portforward":
            check_ports(request)
        self.policies.check("CONNECT", None, None)
        if asked == "proxy":
            return refuse_proxy(self._store, found.served.resource, found.namespace, found.name)
        return refuse_stream(self._store, self._stored(found).object, asked, container)

    def _like_the_object(self, request: Request, found: RequestInfo, asked: str, subresource: str) -> Response:
        if asked == "get":
            return self._get(request, found)
        if asked == "update":
            return self._update(request, found, subresource)
        return self._patch(request, found, subresource)

    def _bind(self, request: Request, found: RequestInfo) -> Response:
        """pods/binding, and bindings, which name their pod themselves and know nothing of uids."""
        view = negotiate(request.headers.get("accept", ""))
        dry_run = read_dry_run(request, "CreateOptions")
        body = self._created_below(request, found, _BINDING)
        given = body.obj["metadata"]
        name = given.get("name", "")
        if not found.name:
            given.pop("uid", None)
        elif name != found.name:
            raise errors.bad_request("name in URL does not match name in Binding object")
        self.policies.check("CREATE", body.obj, None)
        self._binder.bind(name, found.namespace, body.obj, dry_run=dry_run)
        return document(201, {**_SUCCESS, "code": 201}, view)

    def _evict(self, request: Request, found: RequestInfo) -> Response:
        view = negotiate(request.headers.get("accept", ""))
        read_dry_run(request, "CreateOptions")
        body = self._created_below(request, found, _EVICTION, also=_EVICTION_VERSIONS)
        if body.obj["metadata"].get("name", "") != found.name:
            raise errors.bad_request("name in URL does not match name in Eviction object")
        options = body.obj.get("deleteOptions") or {}
        asked, wanted = list(request.query.get("dryRun", ())), options.get("dryRun") or []
        if options.get(_UNSAFE):
            told = "Invalid value: true: can not be set for pod eviction, try after removing the option"
            causes = [errors.cause("FieldValueInvalid", f"deleteOptions.{_UNSAFE}", told)]
            raise errors.invalid("policy", "Eviction", found.name, causes)
        if asked and wanted and asked != wanted:
            one, other = (f"[{' '.join(each)}]" for each in (asked, wanted))
            raise errors.internal(f"Non-matching dry-run options in request and content: {one} and {other}")
        self.policies.check("CREATE", body.obj, None)
        self._evictor.evict(_PODS, found.name, found.namespace, {**options, "dryRun": wanted or asked})
        return document(201, {**_SUCCESS, "code": 201}, view)

    def _created_below(
        self, request: Request, found: RequestInfo, resource: Resource[JSON], also: Sequence[str] = ()
    ) -> Body:
        """The body of what is created for a pod and not kept. Raises StatusError 400, 404."""
        body = read_object(request, resource, field_validation(request, "CreateOptions"), also)
        metadata = body.obj["metadata"]
        if "ownerReferences" in metadata and (told := drop_repeated_owners(metadata)):
            body.warnings.append(told)
        request.warnings += body.warnings
        if (metadata.get("namespace") or found.namespace) != found.namespace:
            raise errors.bad_request(OTHER_NAMESPACE)
        if self._store.table(NAMESPACES).get(found.namespace) is None:
            raise errors.not_found(NAMESPACES, found.namespace)
        return body

    def _scale(self, request: Request, found: RequestInfo, asked: str) -> Response:
        target, stored = found.served, self._stored
        if asked == "get":
            return self._object(request, target, 200, read_scale(target, stored(found)))
        scale = write_scale(request, found, asked, lambda: stored(found), self._writer)
        return self._object(request, target, 200, scale)

    def _token_request(self, request: Request, found: RequestInfo) -> Response:
        body = read_object(request, _TOKEN_REQUEST, field_validation(request, "CreateOptions"))
        request.warnings += body.warnings
        if (body.obj["metadata"].get("namespace") or found.namespace) != found.namespace:
            raise errors.bad_request(OTHER_NAMESPACE)
        read_dry_run(request, "CreateOptions")
        with_usual_duration(body.obj)
        track_create(_TOKEN_REQUESTS, body.obj, writer_of(request), self._writer.now, subresource="token")
        obj = granted(self._store, found.name, found.namespace, body.obj, self._clock.now(), self._rng, self._keys)
        self.policies.check("CREATE", {**obj, "status": {"token": "", "expirationTimestamp": None}}, None)
        return self._object(request, found.served, 201, obj)


# --- pieces -----------------------------------------------------------------------------------------------------------

_MADE_BY_STATUS = (VALIDATING_ADMISSION_POLICIES,)
"""What an apply of its status creates, beside what any update creates."""
_UNSAFE = "ignoreStoreReadErrorWithClusterBreakingPotential"
_EVICTION_VERSIONS = ("policy/v1beta1",)
_DELETED_TOGETHER = 10_000
"""How many objects the deletion of a collection lists at once."""


_PODS = served(PODS)


def _unless_later(word: Callable[[str, JSON], bytes]) -> Callable[[str, JSON], bytes]:
    """Whoever writes does not wait for those who watch: what is not converted yet ends a watch, which begins anew."""

    def worded(type_: str, obj: JSON) -> bytes:
        try:
            return word(type_, obj)
        except (Later, errors.StatusError):
            return plain_frame("ERROR", errors.internal("the object is still to be converted").status)

    return worded


@cache
def _protobuf_writer(target: Served) -> ProtobufWriter:
    """What writes a resource's answers in protobuf; imported when the first client asks for it."""
    from kubeloop.devcluster.handlers.protobuf_responses import ProtobufWriter

    return ProtobufWriter(target)


def _looked_up(target: Served, name: str) -> JSON:
    """An object that nobody keeps. Raises StatusError 404, which has these resources' singular name."""
    assert target.looked_up is not None
    for each in target.looked_up():
        if each["metadata"]["name"] == name:
            return each
    raise errors.not_found(replace(target.resource, plural=target.resource.singular), name)


def _metadata_of(obj: JSON, view: View) -> JSON:
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{view.version}", "metadata": obj["metadata"]}
