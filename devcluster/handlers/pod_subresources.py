"""Subresources of pods that are not fields of the object: binding, eviction, log, exec, attach, portforward, proxy.

Source: pkg/registry/core/pod/rest and storage of v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.admission.dynamic_admission import DynamicAdmission
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.authorizer import AccessAttributes
from kubeloop.devcluster.api.request import Response
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.request_info import OTHER_NAMESPACE
from kubeloop.devcluster.api.served_resources import ServedResource, get_served_resource
from kubeloop.devcluster.handlers.containers.streams import ContainerStreams, requested_ports
from kubeloop.devcluster.handlers.subresources.binding import PodBinder
from kubeloop.devcluster.handlers.subresources.eviction import PodEvictor
from kubeloop.devcluster.handlers.writing.delete import ObjectDeleter
from kubeloop.devcluster.handlers.writing.write_options import read_dry_run, writer_of
from kubeloop.devcluster.managedfields.field_sets import track_create
from kubeloop.devcluster.serializer.negotiation import negotiate_output
from kubeloop.devcluster.serializer.request_bodies import (
    Body,
    deduplicate_owner_references,
    field_validation,
    read_object,
)
from kubeloop.devcluster.serializer.responses import encode_response
from kubeloop.devcluster.storage.store import ObjectStore, object_key
from kubeloop.kube.clock import Clock
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import PODS, Resource

_BINDING: Resource[JSON] = Resource("", "v1", "Binding", "", True, dict)
_EVICTION: Resource[JSON] = Resource("policy", "v1", "Eviction", "", True, dict)
_BINDINGS = ServedResource(_BINDING)
_EVICTIONS = ServedResource(_EVICTION)
_PODS = get_served_resource(PODS)
_EVICTION_VERSIONS = ("policy/v1beta1",)
_UNSAFE = "ignoreStoreReadErrorWithClusterBreakingPotential"
_CREATED: JSON = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class PodSubresources:
    """Handlers of these subresources, for the pods of one store. They raise StatusError."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: Clock,
        admission: AdmissionChain,
        dynamic_admission: DynamicAdmission,
        streams: ContainerStreams,
        gates: FeatureGates,
    ) -> None:
        self._store = store
        self._admission = admission
        self._dynamic_admission = dynamic_admission
        self._streams = streams
        self._gets_need_create = gates.enabled("AuthorizePodWebsocketUpgradeCreatePermission")
        self._binder = PodBinder(store, clock, gates)
        self._evictor = PodEvictor(store, ObjectDeleter(store, clock), clock)

    def _stored(self, context: RequestContext) -> JSON:
        info = context.info
        stored = self._store.table(PODS).get(object_key(info.namespace, info.name))
        if stored is None:
            raise errors.not_found(PODS, info.name)
        return stored.object

    def log(self, context: RequestContext) -> Response:
        """Return the log of a container."""
        self._streams.check_log_options(context.request, context.info.name)
        return self._streams.log(context.request, self._stored(context), context.clock.now())

    async def connect(self, context: RequestContext) -> Response:
        """Handle exec, attach, portforward and proxy."""
        request, info = context.request, context.info
        if info.subresource == "portforward":
            requested_ports(request)  # before policies, as kube-apiserver
        await self._dynamic_admission.check(context, "CONNECT", None, None)
        if info.subresource == "proxy":
            return await self._streams.proxy(request, info.served.resource, info.namespace, info.name)
        if request.method == "GET" and self._gets_need_create:
            self._check_create(context)
        pod = self._stored(context)
        return self._streams.connect(request, pod, info.subresource)

    @staticmethod
    def _check_create(context: RequestContext) -> None:
        """Raise StatusError 403 unless the user may also POST this: a WebSocket begins with a GET."""
        info = context.info
        create = AccessAttributes(
            context.request.user, "create", "", PODS.plural, info.subresource, info.namespace, info.name
        )
        decision = context.authorizer.authorize(create)
        if not decision.allowed:
            raise errors.forbidden(PODS, info.name, decision.reason)

    async def bind(self, context: RequestContext) -> Response:
        """Handle pods/binding, and bindings, whose body names the pod and whose uid is ignored."""
        request, info = context.request, context.info
        output = negotiate_output(request.headers.get("accept", ""), has_table=False)
        context.dry_run = read_dry_run(request, "CreateOptions")
        body = self._read(context, _BINDING)
        self._complete_review(context, _BINDINGS, body.obj)
        metadata = body.obj["metadata"]
        name = metadata.get("name", "")
        if not info.name:
            metadata.pop("uid", None)
        else:
            self._admission.admit_binding(body.obj)
        await self._dynamic_admission.mutate(
            context, "CREATE", body.obj, None, partial(self._admission.admit_binding, body.obj)
        )
        if info.name and name != info.name:
            raise errors.bad_request("name in URL does not match name in Binding object")
        await self._dynamic_admission.check(context, "CREATE", body.obj, None)
        self._binder.bind(name, info.namespace, body.obj, dry_run=context.dry_run)
        return encode_response(201, _CREATED, output)

    async def evict(self, context: RequestContext) -> Response:
        request, info = context.request, context.info
        output = negotiate_output(request.headers.get("accept", ""), has_table=False)
        context.dry_run = read_dry_run(request, "CreateOptions")
        body = self._read(context, _EVICTION, also=_EVICTION_VERSIONS)
        self._complete_review(context, _EVICTIONS, body.obj)
        await self._dynamic_admission.mutate(context, "CREATE", body.obj, None)
        if body.obj["metadata"].get("name", "") != info.name:
            raise errors.bad_request("name in URL does not match name in Eviction object")
        options = body.obj.get("deleteOptions") or {}
        query_dry_run, body_dry_run = list(request.query.get("dryRun", ())), options.get("dryRun") or []
        if options.get(_UNSAFE):
            message = "Invalid value: true: can not be set for pod eviction, try after removing the option"
            causes = [errors.cause("FieldValueInvalid", f"deleteOptions.{_UNSAFE}", message)]
            raise errors.invalid("policy", "Eviction", info.name, causes)
        if query_dry_run and body_dry_run and query_dry_run != body_dry_run:
            one, other = (f"[{' '.join(values)}]" for values in (query_dry_run, body_dry_run))
            raise errors.internal(f"Non-matching dry-run options in request and content: {one} and {other}")
        await self._dynamic_admission.check(context, "CREATE", body.obj, None)
        await self._evictor.evict(
            get_served_resource(PODS), info.name, info.namespace, {**options, "dryRun": body_dry_run or query_dry_run}
        )
        return encode_response(201, _CREATED, output)

    def _complete_review(self, context: RequestContext, served: ServedResource, obj: JSON) -> None:
        """Set the metadata of a body that is not stored, if policies or webhooks see it."""
        if self._dynamic_admission.apply_to(context):
            obj["metadata"]["namespace"] = context.info.namespace
            subresource = context.info.subresource
            track_create(served, obj, writer_of(context.request), context.now, subresource=subresource)

    def _read(self, context: RequestContext, resource: Resource[JSON], also: Sequence[str] = ()) -> Body:
        """Read a body that is created for a pod and not stored. Raises StatusError 400, 403, 404."""
        request, info = context.request, context.info
        body = read_object(request, resource, field_validation(request, "CreateOptions"), also)
        metadata = body.obj["metadata"]
        if "ownerReferences" in metadata and (warning := deduplicate_owner_references(metadata)):
            body.warnings.append(warning)
        request.warnings += body.warnings
        context.log_request_object(body.obj)
        if (metadata.get("namespace") or info.namespace) != info.namespace:
            raise errors.bad_request(OTHER_NAMESPACE)
        self._admission.check_namespace_accepts_creates(context, info.name or metadata.get("name", ""))
        return body
