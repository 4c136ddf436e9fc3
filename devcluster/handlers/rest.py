"""REST verbs on one store: dispatch of requests, and writes.

Writes may wait for slow work: they raise Outdated if the stored object has changed meanwhile.
"""

from __future__ import annotations

from msgspec.structs import replace

from kubeloop.devcluster.admission.dynamic_admission import DynamicAdmission
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.delete_options import DeleteOptions
from kubeloop.devcluster.api.request import Response
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.request_info import OTHER_NAMESPACE, RequestInfo, check_names, request_verb
from kubeloop.devcluster.api.served_resources import (
    BINDINGS,
    SELF_SUBJECT_REVIEWS,
    VALIDATING_ADMISSION_POLICIES,
    ServedResource,
    storage_version_of,
)
from kubeloop.devcluster.api.slow_work import Handling
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.authentication.authenticator import Authenticator
from kubeloop.devcluster.authentication.service_account_token_requests import (
    account_uid_warning,
    create_token,
    default_token_duration,
)
from kubeloop.devcluster.authorization.modes import AuthorizationChain
from kubeloop.devcluster.handlers.pod_subresources import PodSubresources
from kubeloop.devcluster.handlers.reading.list import list_page
from kubeloop.devcluster.handlers.reading.object_responses import list_response, object_response
from kubeloop.devcluster.handlers.reading.reads import ObjectReader
from kubeloop.devcluster.handlers.reading.watch import WatchSettings
from kubeloop.devcluster.handlers.subresources.scale import patch_scale, read_scale, update_scale
from kubeloop.devcluster.handlers.writing.create_update import ObjectWriter, check_version, set_namespace
from kubeloop.devcluster.handlers.writing.delete import Deletion, ObjectDeleter, deletion_warnings
from kubeloop.devcluster.handlers.writing.delete_options import read_delete_options
from kubeloop.devcluster.handlers.writing.patch import (
    APPLY,
    check_patch_type,
    patch_option_causes,
    patch_type,
    patched,
    read_configuration,
    repeated_key_warnings,
)
from kubeloop.devcluster.handlers.writing.write_options import apply_options, read_dry_run, writer_of
from kubeloop.devcluster.managedfields.apply import apply_configuration
from kubeloop.devcluster.managedfields.field_sets import track_create, track_update
from kubeloop.devcluster.serializer import decoding
from kubeloop.devcluster.serializer.controller_revision_data import record_applied_text
from kubeloop.devcluster.serializer.conversion import all_from_stored, from_stored, prepare_conversions, to_stored
from kubeloop.devcluster.serializer.defaulting import apply_defaults, apply_time_defaults
from kubeloop.devcluster.serializer.negotiation import OutputFormat, negotiate_output
from kubeloop.devcluster.serializer.request_bodies import (
    Body,
    deduplicate_owner_references,
    field_validation,
    read_object,
)
from kubeloop.devcluster.serializer.responses import encode_response
from kubeloop.devcluster.storage.store import ObjectStore, StoredObject, object_key
from kubeloop.kube.clock import Clock
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource

_TOKEN_REQUEST: Resource[JSON] = Resource("authentication.k8s.io", "v1", "TokenRequest", "", True, dict)
_TOKEN_REQUESTS = ServedResource(_TOKEN_REQUEST)
_CREATED_BY_STATUS_APPLY = (VALIDATING_ADMISSION_POLICIES,)
"""Resources that an apply to their status creates."""
_DELETED_TOGETHER = 10_000
"""Page size of the list that a deletecollection works on."""
_SUCCESS: JSON = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class Rest:
    """All verbs of one server. ApiServer creates the parts that they use."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: Clock,
        dynamic_admission: DynamicAdmission,
        authentication: Authenticator,
        authorization: AuthorizationChain,
        writer: ObjectWriter,
        pods: PodSubresources,
        watch_settings: WatchSettings,
    ) -> None:
        self._store = store
        self._dynamic_admission = dynamic_admission
        self._authentication = authentication
        self._authorization = authorization
        self._writer = writer
        self._pods = pods
        self._deleter = ObjectDeleter(store, clock)
        self.reader = ObjectReader(store, watch_settings)

    def handle(self, context: RequestContext) -> Response | Handling[Response]:
        """Handle a request for a resource: return the response, or a handler that may need slow work.

        Both raise StatusError; the handler raises Outdated if the request must be handled again.
        """
        info = context.info
        verb = request_verb(info, context.request.method)
        if info.subresource:
            return self._subresource(context, verb)
        match verb:
            case "get":
                return self.reader.get(context)
            case "list":
                reader = self.reader
                return reader.watch(context) if context.request.flag("watch") else reader.list(context)
            case "create":
                return self._create(context)
            case "update":
                return self._update(context)
            case "patch":
                return self._patch(context)
            case "delete":
                return self._delete(context)
            case _:
                return self._delete_collection(context)

    # --- writing ------------------------------------------------------------------------------------------------------

    def _read(self, context: RequestContext, options_kind: str) -> Body:
        request = context.request
        body = read_object(request, context.info.served.resource, field_validation(request, options_kind))
        request.warnings += body.warnings
        return body

    def _with_defaults(self, context: RequestContext, body: Body) -> Body:
        apply_defaults(context.info.served.resource, body.obj)
        apply_time_defaults(context.info.served.resource, body.obj, context.now)
        return body

    @staticmethod
    def _deduplicate_owners(context: RequestContext, body: Body) -> None:
        metadata = body.obj["metadata"]
        if len(metadata.get("ownerReferences", ())) > 1 and (warning := deduplicate_owner_references(metadata)):
            context.request.warnings.append(warning)

    def _track_converted(
        self, context: RequestContext, body: Body, writer: Writer, before: StoredObject | None
    ) -> Writer:
        """Convert a body of a second API version to the stored form, in place.

        Fields are owned by their names in the requested version, plus defaults that only the stored form has.
        """
        target, subresource = context.info.served, context.info.subresource
        if target.storage_resource is None:
            return writer
        if not writer.applied:
            body.obj = from_stored(target, to_stored(target, body.obj))
            if before is None:
                track_create(target, body.obj, writer, context.now, subresource=subresource)
            else:
                live = from_stored(target, before.object)
                track_update(target, body.obj, live, writer, context.now, subresource=subresource)
        body.obj = self._stored_form(target, body.obj)
        return replace(writer, applied=True)

    def _stored_form(self, target: ServedResource, obj: JSON) -> JSON:
        if target.storage_resource is None:
            return obj
        stored = to_stored(target, obj)
        apply_defaults(target.storage_resource, stored)
        return stored

    async def _create(self, context: RequestContext) -> Response:
        request, target = context.request, context.info.served
        output = negotiate_output(request.headers.get("accept", ""), has_table=target.is_stored)
        context.dry_run = read_dry_run(request, "CreateOptions")
        if target.resource is BINDINGS:
            return await self._pods.bind(context)
        if not target.is_stored:
            return await self._create_review(context, output)
        body = self._read(context, "CreateOptions")
        metadata = body.obj.setdefault("metadata", {})
        body = self._with_defaults(context, body)
        context.log_request_object(body.obj)
        set_namespace(target, metadata, context.info.namespace)
        self._deduplicate_owners(context, body)
        writer = self._track_converted(context, body, writer_of(request), None)
        obj = await self._writer.create(context, body, writer)
        return self._written(context, 201, obj, output)

    def _written(self, context: RequestContext, status: int, obj: JSON, output: OutputFormat) -> Response:
        metadata = obj["metadata"]
        key = object_key(metadata.get("namespace", ""), metadata.get("name", ""))
        stored = self._store.table(context.info.served.resource).get(key)
        if stored is not None and stored.object is not obj:
            stored = None
        return object_response(context, status, obj, stored=stored, output=output)

    async def _create_review(self, context: RequestContext, output: OutputFormat) -> Response:
        request, target = context.request, context.info.served
        body = self._read(context, "CreateOptions")
        context.log_request_object(body.obj)
        set_namespace(target, body.obj["metadata"], context.info.namespace)
        track_create(target, body.obj, writer_of(request), context.now)
        from kubeloop.devcluster.authorization.access_reviews import check_review, review

        await self._dynamic_admission.mutate(context, "CREATE", body.obj, None)
        check_review(target.resource, body.obj)
        await self._dynamic_admission.check(context, "CREATE", body.obj, None)
        obj = review(target.resource, body.obj, request, self._authentication, self._authorization)
        if target.resource is SELF_SUBJECT_REVIEWS:
            obj["metadata"]["creationTimestamp"] = context.now()
        return object_response(context, 201, obj, output=output)

    def _before(self, info: RequestInfo) -> StoredObject | None:
        """Return the stored object that a write changes."""
        return self._store.table(info.served.resource).get(object_key(info.namespace, info.name))

    async def _update(self, context: RequestContext) -> Response:
        request, info = context.request, context.info
        target, resource = info.served, info.served.resource
        output = negotiate_output(request.headers.get("accept", ""))
        context.dry_run = read_dry_run(request, "UpdateOptions")
        body = self._read(context, "UpdateOptions")
        body = self._with_defaults(context, body)
        context.log_request_object(body.obj)
        check_names(info, body.obj)
        self._deduplicate_owners(context, body)
        before = self._before(info)
        if before is not None and target.crd_version is not None:
            await prepare_conversions(target, [before.object])
        writer = self._track_converted(context, body, writer_of(request), before)
        if before is None:
            if not target.create_on_update:
                raise errors.not_found(resource, info.name)
            if uid := body.obj["metadata"].get("uid"):
                raise errors.failed_storage_precondition(
                    resource, info.namespace, info.name, "UID", uid, "", dry_run=context.dry_run
                )
            check_version(body.obj["metadata"].get("resourceVersion"))
            if not context.dry_run:
                body.obj["metadata"].pop("resourceVersion", None)
            obj = await self._writer.create(context, body, writer)
            return self._written(context, 201, obj, output)
        obj = await self._writer.update(context, before, body, writer)
        return self._written(context, 200, obj, output)

    # --- patches ------------------------------------------------------------------------------------------------------

    async def _patch(self, context: RequestContext) -> Response:
        request, info = context.request, context.info
        kind, target, crd_version = patch_type(request), info.served, info.served.crd_version
        check_patch_type(target, kind)
        output = negotiate_output(request.headers.get("accept", ""))
        context.dry_run = read_dry_run(request, "PatchOptions", patch_option_causes(request, kind))
        mode = field_validation(request, "PatchOptions")
        if request.audit is not None:
            request.audit.log_patch(request.body)
        before = self._before(info)
        if before is not None and crd_version is not None:
            await prepare_conversions(target, [before.object])
        if kind == APPLY:
            return await self._apply(context, before, output)
        if before is None:
            raise errors.not_found(target.resource, info.name)
        live = from_stored(target, before.object)
        # In a write to the status, nothing but plugins changes the rest of the object, which has its defaults.
        writes_status = (
            info.subresource == "status"
            and target.storage_resource is None
            and not self._dynamic_admission.apply_to(context)
        )
        body = patched(live, request.body, kind, target.resource, mode, writes_status=writes_status)
        request.warnings += body.warnings
        check_names(info, body.obj)
        self._deduplicate_owners(context, body)
        body = self._with_defaults(context, body)
        writer = self._track_converted(context, body, writer_of(request), before)
        obj = await self._writer.update(context, before, body, writer, patched=True)
        return self._written(context, 200, obj, output)

    async def _apply(self, context: RequestContext, before: StoredObject | None, output: OutputFormat) -> Response:
        request, info = context.request, context.info
        target, resource = info.served, info.served.resource
        mode = field_validation(request, "PatchOptions")
        cannot_create = info.subresource and not target.create_on_update and resource not in _CREATED_BY_STATUS_APPLY
        if before is None and cannot_create:
            raise errors.not_found(resource, info.name)
        configuration, repeated = read_configuration(request.body, resource)
        is_bare = before is not None and "metadata" not in configuration
        configuration["metadata"] = configuration.get("metadata") or {}
        if not resource.namespaced:
            configuration["metadata"].pop("namespace", None)
        if before is not None and not configuration["metadata"].get("name"):
            configuration["metadata"]["name"] = info.name  # optional in a configuration for an existing object
        named = {"metadata": {**configuration["metadata"]}}
        if is_bare:
            del configuration["metadata"]  # an empty map would be an owned field
        if before is None and (uid := configuration["metadata"].get("uid")):
            reason = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise errors.conflict(resource, info.name, reason)
        live = None if before is None else from_stored(target, before.object)
        obj = apply_configuration(target, live, configuration, apply_options(context))
        check_names(info, named)  # after conflicts, as in kube-apiserver
        request.warnings += repeated_key_warnings(repeated, mode)
        writer = Writer(request.option("fieldManager"), applied=True, user=request.user)
        body = self._with_defaults(context, Body(decoding.normalize(resource, obj), sent=obj))
        self._deduplicate_owners(context, body)
        record_applied_text(resource, body.obj, obj, None if before is None else before.object)
        body.obj = self._stored_form(target, body.obj)
        if before is None:
            body.obj["metadata"].pop("resourceVersion", None)
            created = await self._writer.create(context, body, writer)
            return self._written(context, 201, created, output)
        updated = await self._writer.update(context, before, body, writer, patched=True)
        return self._written(context, 200, updated, output)

    # --- deleting -----------------------------------------------------------------------------------------------------

    async def _delete(self, context: RequestContext) -> Response:
        request, target = context.request, context.info.served
        output = negotiate_output(request.headers.get("accept", ""))
        options = read_delete_options(request)
        request.warnings += deletion_warnings(target, options)
        deleted = await self._delete_object(context, object_key(context.info.namespace, context.info.name), options)
        if deleted is None:
            raise errors.not_found(target.resource, context.info.name)
        obj = deleted.object
        if not deleted.is_removed or target.return_deleted_object:
            accepted = not deleted.is_removed and options.orphan_dependents is False
            return object_response(context, 202 if accepted else 200, obj, output=output)
        resource = target.resource
        details: JSON = {"name": context.info.name}
        if resource.group:
            details["group"] = resource.group
        details |= {"kind": resource.plural, "uid": obj["metadata"]["uid"]}
        return encode_response(200, {**_SUCCESS, "details": details}, output)

    async def _delete_object(self, context: RequestContext, key: str, options: DeleteOptions) -> Deletion | None:
        """Delete an object, or begin to. Returns None if there is none."""
        target = context.info.served
        served, table = storage_version_of(target), self._store.table(target.resource)
        marked: JSON | None = None
        while (before := table.get(key)) is not None:
            if marked is not None and before.object["metadata"]["uid"] != marked["metadata"]["uid"]:
                break
            if self._dynamic_admission.apply_to(context):
                is_removal = marked is not None
                await self._deleter.check_admission(
                    context, self._dynamic_admission, before, options, is_removal=is_removal
                )
            if target.crd_version is not None:  # an object that cannot be converted is not deleted
                await prepare_conversions(target, [before.object])
            if table.get(key) is not before:
                continue
            deletion = self._deleter.delete(served, before, options)
            if deletion.removal is None:
                return deletion
            marked, options = deletion.object, deletion.removal
            await self._deleter.until_mark_is_seen(served, before)
        return None if marked is None else Deletion(marked, True)  # removed by another request

    async def _delete_collection(self, context: RequestContext) -> Response:
        request, target = context.request, context.info.served
        output = negotiate_output(request.headers.get("accept", ""))
        list_options = self.reader.list_options(request, target, context.info.namespace)
        options = read_delete_options(request)
        request.warnings += deletion_warnings(target, options)
        limited = list_options.limit > 0
        if not list_options.limit:
            list_options.limit = _DELETED_TOGETHER
        table = self._store.table(target.resource)
        page = list_page(table, self._store.revision, list_options)
        items, following = [*page.items], page
        while not limited and (token := following.metadata.get("continue")):
            list_options.continue_token, list_options.resource_version, list_options.match = token, None, ""
            following = list_page(table, self._store.revision, list_options)
            items += following.items
        objects = await all_from_stored(target, [stored.object for stored in items])
        for selected in items:  # a list of an old revision may contain objects that are deleted
            await self._delete_object(context, selected.key, options)
        metadata = page.metadata if limited else {"resourceVersion": page.metadata["resourceVersion"]}
        return list_response(context, objects, metadata, output)

    # --- subresources -------------------------------------------------------------------------------------------------

    def _subresource(self, context: RequestContext, verb: str) -> Response | Handling[Response]:
        match context.info.subresource:
            case "status" | "approval" | "ephemeralcontainers" | "resize":
                if verb == "get":
                    return self.reader.get(context)
                return self._update(context) if verb == "update" else self._patch(context)
            case "scale":
                if verb == "get":
                    return self._read_scale(context)
                return self._update_scale(context) if verb == "update" else self._patch_scale(context)
            case "binding":
                return self._pods.bind(context)
            case "eviction":
                return self._pods.evict(context)
            case "finalize":
                return self._update(context)
            case "token":
                return self._token_request(context)
            case "log":
                return self._pods.log(context)
        return self._pods.connect(context)

    async def _read_scale(self, context: RequestContext) -> Response:
        target, stored = context.info.served, self.reader.stored(context.info)
        await prepare_conversions(target, [stored.object])
        return object_response(context, 200, read_scale(target, stored))

    async def _update_scale(self, context: RequestContext) -> Response:
        return object_response(context, 200, await update_scale(context, self._writer, self._before(context.info)))

    async def _patch_scale(self, context: RequestContext) -> Response:
        return object_response(context, 200, await patch_scale(context, self._writer, self._before(context.info)))

    async def _token_request(self, context: RequestContext) -> Response:
        request, info = context.request, context.info
        output = negotiate_output(request.headers.get("accept", ""), has_table=False)
        context.dry_run = read_dry_run(request, "CreateOptions")
        body = read_object(request, _TOKEN_REQUEST, field_validation(request, "CreateOptions"))
        request.warnings += body.warnings
        if (body.obj["metadata"].get("namespace") or info.namespace) != info.namespace:
            raise errors.bad_request(OTHER_NAMESPACE)
        self._writer.admission.check_namespace_accepts_creates(context, info.name)
        default_token_duration(body.obj)
        context.log_request_object(body.obj)
        track_create(_TOKEN_REQUESTS, body.obj, writer_of(request), context.now, subresource="token")
        await self._dynamic_admission.mutate(context, "CREATE", body.obj, None)
        unchecked_uid = ""
        if not self._authentication.checks_account_uid:
            unchecked_uid = body.obj["metadata"].pop("uid", "")
        key, now = self._authentication.key, context.clock.now()
        obj = create_token(self._store, info.name, info.namespace, body.obj, now, context.rng, key, request.warnings)
        if request.audit is not None and (claims := key.claims(obj["status"]["token"])) is not None:
            request.audit.annotate("authentication.kubernetes.io/issued-credential-id", f"JTI={claims['jti']}")
        if unchecked_uid and unchecked_uid != obj["metadata"]["uid"]:
            problem = account_uid_warning(unchecked_uid, obj["metadata"]["uid"])
            request.warnings.append(problem)
            request.annotate("authentication.k8s.io/token-request-uid-mismatch", problem)
            obj["metadata"]["uid"] = unchecked_uid
        visible = {**obj, "status": {"token": "", "expirationTimestamp": None}}
        await self._dynamic_admission.check(context, "CREATE", visible, None)
        return object_response(context, 201, obj, output=output)
