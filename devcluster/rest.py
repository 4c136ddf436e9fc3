"""The verbs of the REST API on one store: what each does and answers.

Reading is `lists`, writing `writing`, `deleting`, `patching` and `subresources`; here requests become their calls and
results become answers. Everything is synchronous, so that a request sees one state of the store.
"""

from __future__ import annotations

import base64
import random
from datetime import timedelta
from typing import Any

import msgspec
import yaml

from kubeloop.devcluster import decoding, errors, protobuf
from kubeloop.devcluster.admission import Admission
from kubeloop.devcluster.apply import apply_configuration
from kubeloop.devcluster.bodies import (
    PROTOBUF_TYPE,
    Body,
    View,
    check_metadata_form,
    check_type_meta,
    drop_repeated_owners,
    field_validation,
    media_type,
    negotiate,
    parse_body,
    read_object,
)
from kubeloop.devcluster.conversions import from_stored, to_stored
from kubeloop.devcluster.custom.definition_rules import definition_warnings
from kubeloop.devcluster.defaulting import apply_defaults
from kubeloop.devcluster.deleting import DeleteOptions, Deleting, delete_options
from kubeloop.devcluster.lists import list_json, list_page, open_watch, parse_list_options, parse_revision
from kubeloop.devcluster.managed import Writer, track_create, track_update
from kubeloop.devcluster.patch_requests import (
    APPLY,
    PATCH_TYPES,
    check_patch_options,
    decoded_patch,
    patched_object,
    read_configuration,
)
from kubeloop.devcluster.registry import CUSTOM_RESOURCE_DEFINITIONS, SELF_SUBJECT_REVIEWS, Served, served, stored_form
from kubeloop.devcluster.request import Request, Response, json_response, text_response, warning_headers
from kubeloop.devcluster.reviews import review
from kubeloop.devcluster.routes import Route, verb
from kubeloop.devcluster.storage import Store, Stored, object_key
from kubeloop.devcluster.stored_kinds import warnings_of
from kubeloop.devcluster.subresources import PodSubresources, scale_of, scaled
from kubeloop.devcluster.table import table
from kubeloop.devcluster.validation import warnings_before, warnings_for
from kubeloop.devcluster.watch import Frame, Watcher, plain_frame
from kubeloop.devcluster.writing import Writing
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.resources import PODS, Resource

JSON = dict[str, Any]
_encode = msgspec.json.Encoder().encode

_MAX_MANAGER = 128


def _plain(group: str, version: str, kind: str) -> Resource[JSON]:
    return Resource(group, version, kind, "", True, dict)


_SCALE = _plain("autoscaling", "v1", "Scale")
_OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"
_BINDING = _plain("", "v1", "Binding")
_EVICTION = _plain("policy", "v1", "Eviction")
_TOKEN_REQUEST = _plain("authentication.k8s.io", "v1", "TokenRequest")
_SUCCESS: JSON = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class Rest:
    """All verbs. `token` is the one that token reviews know; `bookmark_seconds` and `watch_buffer` are of watches."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        rng: random.Random,
        token: str | None,
        bookmark_seconds: float,
        watch_buffer: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._token = token
        self._bookmark_seconds = bookmark_seconds
        self._watch_buffer = watch_buffer
        admission = Admission(store, clock)
        self._writing = Writing(store, admission, clock=clock, rng=rng)
        self.deleting = Deleting(store, admission, clock)
        self._pods = PodSubresources(store, self._writing, self.deleting, clock)
        self._watchers: set[Watcher] = set()

    def answer(self, request: Request, found: Route) -> Response:
        """Answer a request for a resource. Raises StatusError."""
        asked = verb(found, request.method)
        if found.subresource:
            return self._subresource(request, found, asked)
        match asked:
            case "get":
                return self._get(request, found)
            case "list":
                return self._watch(request, found) if request.flag("watch") else self._list(request, found)
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

    def _stored(self, found: Route) -> Stored:
        resource = found.served.resource
        stored = self._store.table(resource).get(object_key(found.namespace, found.name))
        if stored is None:
            raise errors.not_found(resource, found.name)
        return stored

    def _get(self, request: Request, found: Route) -> Response:
        view = negotiate(request.headers.get("accept", ""))
        try:
            revision = parse_revision(request.option("resourceVersion"))
        except ValueError as error:
            raise errors.internal(str(error)) from error
        if revision is not None and revision > self._store.revision:
            raise errors.too_large_revision(revision, self._store.revision)
        stored = self._stored(found)
        return self._object(request, found.served, 200, stored.object, stored=stored, view=view)

    def _list(self, request: Request, found: Route) -> Response:
        view = negotiate(request.headers.get("accept", ""), "list")
        target = found.served
        options = parse_list_options(request, target, found.namespace, found.name)
        page = list_page(self._store.table(target.resource), self._store.revision, options)
        if view.form == "objects" and not view.yaml and target.shown_as_stored:
            return Response(200, list_json(target, page))
        objects = [from_stored(target, stored.object) for stored in page.items]
        return self._list_of(request, target, objects, page.metadata, view)

    def _list_of(self, request: Request, target: Served, objects: list[JSON], metadata: JSON, view: View) -> Response:
        resource = target.resource
        check_metadata_form(view, resource, is_list=True)
        if view.form == "table":
            return self._send(200, self._table(request, target, objects, metadata, view), view)
        if view.form == "metadata":
            items = [_metadata_of(obj, view, whole=False) for obj in objects]
            kind, api_version = "PartialObjectMetadataList", f"meta.k8s.io/{view.version}"
        else:
            left_out = () if target.custom is not None else ("kind", "apiVersion")
            metadata = metadata if target.custom is None else {"continue": "", **metadata}
            items = [{name: value for name, value in obj.items() if name not in left_out} for obj in objects]
            kind, api_version = target.list_kind, resource.api_version
        return self._send(200, {"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items}, view)

    def _watch(self, request: Request, found: Route) -> Response:
        view = negotiate(request.headers.get("accept", ""), "watch")
        target = found.served
        options = parse_list_options(request, target, found.namespace, found.name)
        try:
            stream, watcher = open_watch(
                target,
                self._store.table(target.resource),
                options,
                revision_now=lambda: self._store.revision,
                rng=self._rng,
                frame=self._frame(request, target, view),
                bookmark_seconds=self._bookmark_seconds,
                buffer=self._watch_buffer,
            )
        except errors.StatusError as error:
            if error.code not in (410, 504):
                raise
            return Response(200, plain_frame("ERROR", error.status))  # the stream says it, not the answer
        self._watchers = {each for each in self._watchers if not each.closed}
        self._watchers.add(watcher)
        return Response(200, stream)

    def _frame(self, request: Request, target: Served, view: View) -> Frame | None:
        if view.form == "objects":
            if not target.shown_as_stored:
                return lambda type_, obj: plain_frame(type_, from_stored(target, obj))
            return None
        if view.form == "metadata":
            return lambda type_, obj: plain_frame(type_, _metadata_of(obj, view, whole=True))
        first = True

        def frame(type_: str, obj: JSON) -> bytes:
            nonlocal first
            objects = [] if type_ == "BOOKMARK" else [from_stored(target, obj)]
            metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            if type_ == "BOOKMARK" and "annotations" in obj["metadata"]:
                metadata["annotations"] = obj["metadata"]["annotations"]
            content = self._table(request, target, objects, metadata, view)
            if not first:  # only the first event says what the columns are
                content["columnDefinitions"] = None
            first = False
            return plain_frame(type_, content)

        return frame

    def end_watches(self, target: Served) -> None:
        """End the watches of a custom resource whose definition has changed, for their clients to begin anew."""
        table = self._store.table(target.resource)
        for watcher in self._watchers:
            if watcher.table is table:
                watcher.cut()

    def cut_watches(self) -> None:
        """End every open watch, as a server does that shuts down."""
        for watcher in self._watchers:
            watcher.cut()
        self._watchers.clear()

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
        warnings: list[str] | None = None,
    ) -> Response:
        """One object in the form the client wants."""
        view = view or negotiate(request.headers.get("accept", ""))
        headers = warning_headers(warnings) if warnings else []
        if view.protobuf and protobuf.has_form(target.resource.group, target.resource.version, obj["kind"]):
            return Response(status, protobuf.encode(from_stored(target, obj)), PROTOBUF_TYPE, headers)
        if view.form == "objects" and not view.yaml and target.shown_as_stored:
            return Response(status, (stored.json() if stored is not None else _encode(obj)) + b"\n", headers=headers)
        obj = from_stored(target, obj)
        if view.form == "table":
            metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            obj = self._table(request, target, [obj], metadata, view)
        elif view.form == "metadata":
            check_metadata_form(view, target.resource, is_list=False)
            obj = _metadata_of(obj, view, whole=True)
        response = self._send(status, obj, view)
        response.headers += headers
        return response

    def _send(self, status: int, value: JSON, view: View) -> Response:
        if view.yaml:
            text = yaml.safe_dump(msgspec.to_builtins(value), sort_keys=True, allow_unicode=True)
            return Response(status, text.encode(), "application/yaml")
        return json_response(status, value)

    # --- writing ------------------------------------------------------------------------------------------------------

    def _writer(self, request: Request) -> Writer:
        manager = request.option("fieldManager") or request.user_agent.partition("/")[0][:_MAX_MANAGER] or "unknown"
        return Writer(manager)

    def _read(self, request: Request, target: Served, options_kind: str) -> Body:
        body = read_object(request, target.resource, field_validation(request, options_kind))
        request.warnings += body.warnings  # whatever becomes of it
        return body

    def _incoming(self, request: Request, target: Served, body: Body) -> Body:
        metadata = body.obj["metadata"]
        if len(metadata.get("ownerReferences", ())) > 1 and (told := drop_repeated_owners(metadata)):
            body.warnings.append(told)
            request.warnings.append(told)
        apply_defaults(target.resource, body.obj)
        return body

    def _track(self, target: Served, body: Body, writer: Writer, before: Stored | None) -> Writer:
        """Turn an object of a second version into what is stored; its fields are owned under the names it came with."""
        if target.stored_as is None:
            return writer
        if not writer.applied:
            if before is None:
                track_create(target, body.obj, writer, self._writing.now)
            else:
                live = from_stored(target, before.object)
                track_update(target, body.obj, live, writer, self._writing.now, subresource="")
        body.obj = self._stored_form(target, body.obj)
        return Writer(writer.manager, applied=True)

    def _stored_form(self, target: Served, obj: JSON) -> JSON:
        if target.stored_as is None:
            return obj
        stored = to_stored(target, obj)
        apply_defaults(target.stored_as, stored)
        return stored

    def _create(self, request: Request, found: Route) -> Response:
        target = found.served
        view = negotiate(request.headers.get("accept", ""))
        dry_run = _dry_run(request, "CreateOptions")
        if not target.stored:
            return self._virtual(request, found)
        body = self._incoming(request, target, self._read(request, target, "CreateOptions"))
        writer = self._track(target, body, self._writer(request), None)
        body.warnings += self._said_before(request, target, body.obj)
        obj = self._writing.create(stored_form(target), body.obj, found.namespace, writer, dry_run=dry_run)
        return self._written(request, target, 201, obj, body.warnings, view)

    @staticmethod
    def _said_before(request: Request, target: Served, obj: JSON) -> list[str]:
        """Warnings about a new object as it came; they are told even if it is refused."""
        told = [] if target.custom is not None else warnings_before(target.resource, obj)
        request.warnings += told
        return told

    def _written(
        self,
        request: Request,
        target: Served,
        status: int,
        obj: JSON,
        warnings: list[str],
        view: View | None = None,
        *,
        old: JSON | None = None,
    ) -> Response:
        if target.custom is not None:
            warnings = [*warnings, *target.custom.warnings(obj, old)]
        else:
            warnings = [*warnings, *warnings_for(target.resource, obj, old)]
            warnings += warnings_of(target.resource, new=status == 201)
            if target.resource is CUSTOM_RESOURCE_DEFINITIONS:
                warnings += definition_warnings(obj, old)
        metadata = obj["metadata"]
        key = object_key(metadata.get("namespace", ""), metadata.get("name", ""))
        stored = self._store.table(target.resource).get(key)
        if stored is not None and stored.object is not obj:
            stored = None
        return self._object(request, target, status, obj, stored=stored, view=view, warnings=warnings)

    def _virtual(self, request: Request, found: Route) -> Response:
        target = found.served
        body = read_object(request, target.resource, field_validation(request, "CreateOptions"))
        if target.resource.kind == "Binding":
            name = body.obj["metadata"].get("name", "")
            self._bind(request, found.namespace, name, body.obj)
            return json_response(201, {**_SUCCESS, "code": 201})
        track_create(target, body.obj, self._writer(request), self._writing.now)
        obj = review(target.resource, body.obj, self._token)
        if target.resource is SELF_SUBJECT_REVIEWS:
            obj["metadata"]["creationTimestamp"] = self._writing.now()
        return self._object(request, target, 201, obj, warnings=body.warnings)

    def _update(self, request: Request, found: Route, subresource: str = "") -> Response:
        target = found.served
        view = negotiate(request.headers.get("accept", ""))
        dry_run = _dry_run(request, "UpdateOptions")
        body = self._read(request, target, "UpdateOptions")
        self._check_names(found, body.obj)
        body = self._incoming(request, target, body)
        resource = target.resource
        before = self._store.table(resource).get(object_key(found.namespace, found.name))
        writer = self._track(target, body, self._writer(request), before)
        if before is None:
            if subresource or not target.create_on_update or body.obj["metadata"].get("uid"):
                raise errors.not_found(resource, found.name)
            body.obj["metadata"].pop("resourceVersion", None)
            body.warnings += self._said_before(request, target, body.obj)
            obj = self._writing.create(stored_form(target), body.obj, found.namespace, writer, dry_run=dry_run)
            return self._written(request, target, 201, obj, body.warnings, view)
        obj = self._writing.update(
            stored_form(target), before, body.obj, writer, dry_run=dry_run, subresource=subresource
        )
        return self._written(request, target, 200, obj, body.warnings, view, old=before.object)

    def _check_names(self, found: Route, obj: JSON) -> None:
        metadata = obj["metadata"]
        if not found.served.resource.namespaced:
            metadata.pop("namespace", None)
        elif (metadata.get("namespace") or found.namespace) != found.namespace:
            raise errors.bad_request(_OTHER_NAMESPACE)
        else:
            metadata["namespace"] = found.namespace
        name = metadata.get("name")
        if not name:
            raise errors.bad_request(
                f"the name of the object ({found.name} based on URL) was undeterminable: name must be provided"
            )
        if name != found.name:
            raise errors.bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({found.name})"
            )

    # --- patches ------------------------------------------------------------------------------------------------------

    def _patch(self, request: Request, found: Route, subresource: str = "") -> Response:
        kind = media_type(request)
        custom = found.served.custom
        if kind not in (PATCH_TYPES if custom is None else custom.patch_types):
            raise errors.unsupported_patch() if custom is None else custom.unsupported_patch()
        view = negotiate(request.headers.get("accept", ""))
        dry_run = _dry_run(request, "PatchOptions")
        mode = field_validation(request, "PatchOptions")
        target = found.served
        check_patch_options(request, kind)
        if kind == APPLY:
            return self._apply(request, found, subresource, dry_run=dry_run, view=view)
        before = self._stored(found)
        live = from_stored(target, before.object)
        patched, patch, strict = patched_object(live, request.body, kind, target.resource)
        body = decoded_patch(patched, patch, strict, target.resource, mode, kind)
        request.warnings += body.warnings
        self._check_names(found, body.obj)
        body = self._incoming(request, target, body)
        writer = self._track(target, body, self._writer(request), before)
        obj = self._writing.update(
            stored_form(target),
            before,
            body.obj,
            writer,
            dry_run=dry_run,
            subresource=subresource,
            patched=True,
        )
        return self._written(request, target, 200, obj, body.warnings, view, old=before.object)

    def _apply(self, request: Request, found: Route, subresource: str, *, dry_run: bool, view: View) -> Response:
        target, resource = found.served, found.served.resource
        given, warnings = read_configuration(request.body, resource, field_validation(request, "PatchOptions"))
        before = self._store.table(resource).get(object_key(found.namespace, found.name))
        if before is None and subresource:
            raise errors.not_found(resource, found.name)
        given["metadata"] = given.get("metadata") or {}
        if before is not None and not given["metadata"].get("name"):
            given["metadata"]["name"] = found.name  # a configuration need not say what is there already
        self._check_names(found, given)
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
        writer = Writer(request.option("fieldManager"), applied=True)
        body = self._incoming(request, target, Body(decoding.normal(resource, obj), warnings))
        body.obj = self._stored_form(target, body.obj)
        if before is None:
            body.obj["metadata"].pop("resourceVersion", None)
            warnings = [*warnings, *self._said_before(request, target, body.obj)]
            created = self._writing.create(stored_form(target), body.obj, found.namespace, writer, dry_run=dry_run)
            return self._written(request, target, 201, created, warnings, view)
        updated = self._writing.update(
            stored_form(target), before, body.obj, writer, dry_run=dry_run, subresource=subresource, patched=True
        )
        return self._written(request, target, 200, updated, warnings, view, old=before.object)

    # --- deleting -----------------------------------------------------------------------------------------------------

    def _delete_options(self, request: Request) -> DeleteOptions:
        body: JSON = {}
        if request.body:
            try:
                raw, _ = parse_body(request)
            except ValueError as error:
                raise errors.bad_request(str(error)) from error
            if not isinstance(raw, dict):
                wrong = f"json: cannot unmarshal {decoding.json_kind(raw)} into Go value of type"
                raise errors.bad_request(f"couldn't get version/kind; json parse error: {wrong} v1.DeleteOptions")
            try:
                check_type_meta(raw)
                kind = raw.get("kind") or "DeleteOptions"
                if kind != "DeleteOptions":
                    raise errors.bad_request(f'no kind "{kind}" is registered for version "{raw.get("apiVersion")}"')
                body, _ = decoding.decode_named("meta/v1.DeleteOptions", raw)
            except (ValueError, decoding.DecodeError) as error:
                told = f'DeleteOptions in version "v1" cannot be handled as a DeleteOptions: {error}'
                raise errors.bad_request(told) from error
        query = {name: values[0] for name, values in request.query.items() if values and name in _DELETE_QUERY}
        grace = query.get("gracePeriodSeconds")
        if grace is not None:
            try:
                int(grace)
            except ValueError as error:
                raise errors.bad_request(f'strconv.ParseInt: parsing "{grace}": invalid syntax') from error
        return delete_options(body, {} if request.body else query)

    def _delete(self, request: Request, found: Route) -> Response:
        view = negotiate(request.headers.get("accept", ""))
        options = self._delete_options(request)
        stored = self._stored(found)
        target = found.served
        obj, gone = self.deleting.delete(stored_form(target), stored, options)
        if not gone or target.deleted_whole:
            return self._written(request, target, 200, obj, [], view)
        resource = target.resource
        details: JSON = {"name": found.name}
        if resource.group:
            details["group"] = resource.group
        details |= {"kind": resource.plural, "uid": obj["metadata"]["uid"]}
        return json_response(200, {**_SUCCESS, "details": details})

    def _delete_collection(self, request: Request, found: Route) -> Response:
        view = negotiate(request.headers.get("accept", ""))
        target = found.served
        listing = Request(request.method, request.path, {**request.query}, request.headers)
        chosen = parse_list_options(listing, target, found.namespace)
        options = self._delete_options(request)
        page = list_page(self._store.table(target.resource), self._store.revision, chosen)
        for stored in page.items:
            self.deleting.delete(stored_form(target), stored, options)
        metadata = {"resourceVersion": str(self._store.revision)}
        objects = [from_stored(target, stored.object) for stored in page.items]
        return self._list_of(request, target, objects, metadata, view)

    # --- subresources -------------------------------------------------------------------------------------------------

    def _subresource(self, request: Request, found: Route, asked: str) -> Response:
        match found.subresource:
            case "status":
                return self._like_the_object(request, found, asked, "status")
            case "scale":
                return self._scale(request, found, asked)
            case "binding":
                body = read_object(request, _BINDING, field_validation(request, "CreateOptions"))
                given = body.obj["metadata"]
                if "ownerReferences" in given and (told := drop_repeated_owners(given)):
                    request.warnings.append(told)
                    body.warnings.append(told)
                if (given.get("namespace") or found.namespace) != found.namespace:
                    raise errors.bad_request(_OTHER_NAMESPACE)
                if given.get("name", "") != found.name:
                    raise errors.bad_request("name in URL does not match name in Binding object")
                request.warnings += body.warnings
                self._bind(request, found.namespace, found.name, body.obj)
                return json_response(201, {**_SUCCESS, "code": 201}, warning_headers(body.warnings))
            case "eviction":
                return self._evict(request, found)
            case "finalize":
                return self._update(request, found, "finalize")
            case "approval" | "ephemeralcontainers" | "resize":
                return self._like_the_object(request, found, asked, found.subresource)
            case "token":
                return self._token_request(request, found)
            case "log":
                self._stored(found)
                return text_response(200, "")
        self._stored(found)
        raise errors.bad_request(f"simulated nodes run no containers: there is no {found.subresource}")

    def _like_the_object(self, request: Request, found: Route, asked: str, subresource: str) -> Response:
        if asked == "get":
            return self._get(request, found)
        if asked == "update":
            return self._update(request, found, subresource)
        return self._patch(request, found, subresource)

    def _bind(self, request: Request, namespace: str, name: str, binding: JSON) -> None:
        dry_run = _dry_run(request, "CreateOptions")
        self._pods.bind(name, namespace, binding, dry_run=dry_run)

    def _evict(self, request: Request, found: Route) -> Response:
        body = read_object(request, _EVICTION, field_validation(request, "CreateOptions"))
        given = body.obj["metadata"].get("name")
        if given and given != found.name:
            raise errors.bad_request("name in URL does not match name in Eviction object")
        dry_run = {"dryRun": "All"} if _dry_run(request, "CreateOptions") else {}
        options = delete_options({**dry_run, **(body.obj.get("deleteOptions") or {})}, {})
        self._pods.evict(_PODS, found.name, found.namespace, options)
        return json_response(201, {**_SUCCESS, "code": 201})

    def _scale(self, request: Request, found: Route, asked: str) -> Response:
        if asked == "get":
            return self._object(request, found.served, 200, _scale_of(found.served, self._stored(found), reading=True))
        kind = "UpdateOptions" if asked == "update" else "PatchOptions"
        dry_run = _dry_run(request, kind)
        mode = field_validation(request, kind)
        if asked == "update":
            scale = read_object(request, _SCALE, mode).obj
            before = self._stored(found)
        else:
            patch_type = media_type(request)
            if patch_type not in PATCH_TYPES or patch_type == APPLY:
                raise errors.unsupported_patch()
            before = self._stored(found)
            whole = _whole_scale(_scale_of(found.served, before))
            patched, patch, strict = patched_object(whole, request.body, patch_type, _SCALE)
            scale = decoded_patch(patched, patch, strict, _SCALE, mode, patch_type).obj
        live = from_stored(found.served, before.object)
        custom = found.served.custom
        wanted = scaled(found.served, live, scale) if custom is None else custom.scaled(live, scale)
        obj = self._writing.update(
            found.served, before, wanted, self._writer(request), dry_run=dry_run, subresource="scale"
        )
        return self._object(request, found.served, 200, scale_of(obj) if custom is None else custom.scale_of(obj))

    def _token_request(self, request: Request, found: Route) -> Response:
        """A token that says whose it is and is good for nothing: there is one administrator."""
        body = read_object(request, _TOKEN_REQUEST, field_validation(request, "CreateOptions"))
        account = self._stored(found).object
        spec = body.obj.get("spec") or {}
        seconds = spec.get("expirationSeconds") or 3600  # as where nobody says how long
        if not 600 <= seconds <= _LONGEST_TOKEN_SECONDS:
            wrong = "less than 10 minutes" if seconds < 600 else "larger than 2^32 seconds"
            told = f"Invalid value: {seconds}: may not specify a duration {wrong}"
            cause = errors.cause("FieldValueInvalid", "spec.expirationSeconds", told)
            raise errors.invalid("authentication.k8s.io", "TokenRequest", "", [cause])
        until = rfc3339(self._clock.now() + timedelta(seconds=seconds))
        subject = f"system:serviceaccount:{found.namespace}:{account['metadata']['name']}"
        claims = _encode({"sub": subject, "exp": until})
        token = ".".join(
            base64.urlsafe_b64encode(part).rstrip(b"=").decode()
            for part in (b'{"alg":"none"}', claims, self._rng.randbytes(16))
        )
        obj = {**body.obj, "status": {"token": token, "expirationTimestamp": until}}
        return self._object(request, found.served, 201, obj)


# --- pieces -----------------------------------------------------------------------------------------------------------

_LONGEST_TOKEN_SECONDS = 2**32
_DELETE_QUERY = ("gracePeriodSeconds", "propagationPolicy", "orphanDependents", "dryRun")


_PODS = served(PODS)


def _scale_of(target: Served, stored: Stored, *, reading: bool = False) -> JSON:
    if target.custom is None:
        return scale_of(stored.object)
    return target.custom.scale_of(stored.object, reading=reading)


def _whole_scale(scale: JSON) -> JSON:
    """The Scale as a patch meets it: in the server's memory replicas are there even if they are 0."""
    scale["spec"].setdefault("replicas", 0)
    return scale


def _metadata_of(obj: JSON, view: View, *, whole: bool) -> JSON:
    del whole
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{view.version}", "metadata": obj["metadata"]}


def _dry_run(request: Request, options_kind: str) -> bool:
    """?dryRun; the field manager is looked at with it. Raises StatusError 422."""
    causes = []
    if manager := request.option("fieldManager"):
        if len(manager.encode()) > _MAX_MANAGER:
            text = f"Too long: may not be more than {_MAX_MANAGER} bytes"
            causes.append(errors.cause("FieldValueTooLong", "fieldManager", text))
        elif not manager.isprintable():
            causes += _unprintable(manager)
    values = request.query.get("dryRun", ())
    if any(value != "All" for value in values):
        text = f'Unsupported value: {_encode(values).decode()}: supported values: "All"'
        causes.append(errors.cause("FieldValueNotSupported", "dryRun", text))
    if causes:
        raise errors.options_invalid(options_kind, causes)
    return bool(values)


def _unprintable(manager: str) -> list[JSON]:
    for place, char in enumerate(manager):
        if not (char == " " or (char.isprintable() and not char.isspace())):
            wrong = f"invalid character U+{ord(char):04X} (at position {place})"
            text = f"Invalid value: {_encode(manager).decode()}: {wrong}"
            return [errors.cause("FieldValueInvalid", "fieldManager", text)]
    return []
