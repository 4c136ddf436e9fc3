"""Client: live reads, and writes, of objects in both forms, plain JSON and Structs.

Errors are those of `kubeloop.kube.errors`, one type per meaning. A result has the form of the argument.
"""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, NamedTuple, Protocol, TypeVar, Unpack

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from kubeloop.controllers.api.objects import ApiObject, Request, kind_of, manifest_of, metadata_of, status_of
from kubeloop.controllers.api.patches import Patch, merge_patch, pinned_merge_patch, strategic_merge_patch
from kubeloop.controllers.runtime.pods.pod_control import PodControl
from kubeloop.controllers.runtime.resources.served_resources import ServedResources
from kubeloop.kube.client import api_client
from kubeloop.kube.client.api_client import DeleteArguments, PatchType
from kubeloop.kube.client.current_span import current_span
from kubeloop.kube.errors import Conflict, Invalid, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import JSONValue, Object, ObjectMeta
from kubeloop.kube.objects.object_fields import controller_of
from kubeloop.kube.objects.resources import ALL, BY_GROUP_KIND, PODS, Resource
from kubeloop.tracing.recording.reconcile_recorder import Reconcile

T = TypeVar("T")
T_obj = TypeVar("T_obj", bound=ApiObject)

_NO_SPAN = nullcontext()
_MAX_APPLIED = 50_000  # manifests whose last apply is remembered, at some 300 bytes each
_CONTROLLERS = {
    "deployments.apps": "deployment",
    "replicasets.apps": "replicaset",
    "statefulsets.apps": "statefulset",
    "daemonsets.apps": "daemonset",
    "jobs.batch": "job",
    "cronjobs.batch": "cronjob",
}
"""Built-in controllers, by the resource they reconcile, whose reconciles link to the writes that cause them."""


class NoKindMatchError(LookupError):
    """The API server serves no resource of this kind."""


class PartialStruct(TypeError):
    """A Struct that declares only some fields of its kind cannot replace an object."""


class WriteObserver(Protocol):
    """Records writes, so that the next reconcile starts only when the cache shows them."""

    def wrote(self, resource: Resource[Any], obj: ApiObject) -> None:
        """Record an object as the API server returned it."""
        ...

    def maybe_wrote(self, resource: Resource[Any], request: Request) -> None:
        """Record that a write had no response. request: without a name for a name that the server generates."""
        ...

    def cached(self, resource: Resource[Any], request: Request) -> ApiObject | None:
        """Return the cached object; None if there is none, or the resource is not watched."""
        ...


class NoWriteObserver:
    """Ignores writes: of a cluster whose objects no controller of this process caches."""

    def wrote(self, resource: Resource[Any], obj: ApiObject) -> None: ...

    def maybe_wrote(self, resource: Resource[Any], request: Request) -> None: ...

    def cached(self, resource: Resource[Any], request: Request) -> ApiObject | None:
        return None


class _ApplyStep(NamedTuple):
    """A manifest to apply. memory, digest: key and value of what is remembered of it.

    cached: the present object, None if it does not exist. unchanged: the result without a request; None to send one.
    """

    resource: Resource[Any]
    request: Request
    body: dict[str, Any]
    memory: str
    digest: bytes
    cached: ApiObject | None
    unchanged: dict[str, Any] | None


class Client:
    """Kubernetes verbs on objects.

    Requests that the server throttles (429) wait for its Retry-After and are sent again; a lost one is repeated where
    that cannot do harm, see `kube.client.retries`. In a reconcile, each write is an action in its trace.
    Raises ApiError for an error response, ServerUnreachable without one, NoKindMatchError for a kind that the server
    does not have.

    Cancellation: safe. A cancelled write may have reached the server.
    """

    def __init__(
        self,
        client: api_client.ApiClient,
        *,
        field_manager: str,
        resources: Sequence[Resource[Any]] = (),
        observer: WriteObserver | None = None,
        pods: PodControl | None = None,
    ) -> None:
        """field_manager: name of the writer in managedFields. resources: those of the author, besides the built-in
        ones. pods: creates the Pods of reconciles, with traces."""
        self.raw = client
        self._pods = pods
        self.field_manager = field_manager
        self._observer: WriteObserver = observer or NoWriteObserver()
        self._served = ServedResources(client)
        self._by_type: dict[type, Resource[Any]] = {}
        self._by_kind: dict[tuple[str, str], Resource[Any]] = {}
        self._typed: dict[tuple[str, str, type], Resource[Any]] = {}  # of these, with the types of written objects
        self._applied: dict[str, tuple[bytes, object]] = {}  # digest of the manifest, and the state after the request
        shared_types: set[type] = set()
        for resource in (*ALL, *resources):
            self._by_kind[resource.api_version, resource.kind] = resource
            if resource.type is not dict:
                other = self._by_type.setdefault(resource.type, resource)
                if (other.group, other.kind) != (resource.group, resource.kind):
                    shared_types.add(resource.type)
        for type_ in shared_types:  # such as PartialObjectMetadata
            del self._by_type[type_]

    # --- reads -------------------------------------------------------------------------------------------------------

    async def get(self, resource: Resource[T], name: str | Request, namespace: str = "") -> T:
        """Return an object as the API server has it now. Raises NotFound."""
        request = name if isinstance(name, Request) else Request(namespace, name)
        return await self.raw.get(resource, request.name, request.namespace)

    async def list(
        self, resource: Resource[T], namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> builtins.list[T]:
        """Return all objects, or those of a namespace, that match, as the API server has them now."""
        page = await self.raw.list_all(
            resource, namespace, label_selector=label_selector, field_selector=field_selector
        )
        return page.items

    async def resource_of(self, obj: ApiObject) -> Resource[Any]:
        """Return the resource of an object, with the type of the object. Raises NoKindMatchError."""
        if isinstance(obj, Object) and type(obj) in self._by_type:
            return self._by_type[type(obj)]
        api_version, kind = kind_of(obj)
        type_ = type(obj) if isinstance(obj, Object) else dict
        typed = self._typed.get((api_version, kind, type_))
        if typed is not None:
            return typed
        resource = known = self._by_kind.get((api_version, kind))
        if resource is None:
            resource = await self._served.find(lambda served: served.find(api_version, kind))
        if resource is None:
            raise NoKindMatchError(f"the API server serves no {kind or 'kind'} of {api_version or 'no apiVersion'}")
        typed = replace(resource, type=type_)
        if known is not None:  # the definition of others may change
            self._typed[api_version, kind, type_] = typed
        return typed

    # --- writes ------------------------------------------------------------------------------------------------------

    async def create(self, obj: T_obj) -> T_obj:
        """Create an object. Raises AlreadyExists if there is one of its name.

        A Pod that a reconcile creates has a trace of its own, linked with that of the reconcile.
        """
        resource = await self.resource_of(obj)
        body, metadata, query = self._manifest(resource, obj), metadata_of(obj), {"fieldManager": self.field_manager}
        reconcile, owner = current_span.get(), controller_of(metadata)
        if self._pods is not None and resource.group_resource == "pods" and owner and isinstance(reconcile, Reconcile):
            creator = Object(
                api_version=owner.api_version,
                kind=owner.kind,
                metadata=ObjectMeta(namespace=metadata.namespace, name=owner.name),
            )
            with self._uncertain(resource, obj):
                created: T_obj = await self._pods.create_traced(resource, creator, body, reconcile, **query)
        else:
            if isinstance(reconcile, Reconcile):
                body = reconcile.annotated(body)
            with self._write(resource, "create", obj):
                created = await self.raw.create(resource, body, metadata.namespace, query=query)
        return self._wrote(resource, created)

    async def update(self, obj: T_obj) -> T_obj:
        """Replace an object. Raises Conflict if it is another version than `obj`, NotFound if it was deleted.

        Raises PartialStruct for a Struct of kubeloop's: it declares only some fields, and the others would be lost.
        Patch such objects, or read them as dicts.
        """
        return await self._update(obj, "")

    async def update_status(self, obj: T_obj) -> T_obj:
        """Replace the status of an object; see update()."""
        return await self._update(obj, "status")

    async def patch(self, obj: T_obj, patch: Patch, *, subresource: str = "") -> T_obj:
        """Patch an object, and return the new version. Raises Conflict if an object of another uid has its name."""
        resource = await self.resource_of(obj)
        metadata = metadata_of(obj)
        with self._write(resource, f"patch {subresource}".strip(), obj):
            try:
                patched: T_obj = await self.raw.patch(
                    resource,
                    metadata.name,
                    patch.body_for(obj),
                    patch.type,
                    metadata.namespace,
                    subresource=subresource,
                    query={"fieldManager": self.field_manager},
                )
            except Invalid as error:
                if error.status.details and any(cause.field == "metadata.uid" for cause in error.status.details.causes):
                    raise Conflict(error.status) from error  # the server's answer to the uid of an earlier object
                raise
        return self._wrote(resource, patched)

    async def patch_status(self, obj: T_obj, status: Mapping[str, JSONValue]) -> T_obj:
        """Merge `status` into the status of an object; no request is sent if it has these values.

        Raises Conflict if it is another version than `obj`: no status that was computed from an old state is written.
        """
        if _has(status_of(obj), status):
            return obj
        return await self.patch(
            obj, Patch(PatchType.MERGE, lambda obj: pinned_merge_patch(obj, status=status)), subresource="status"
        )

    async def apply(self, manifest: Mapping[str, Any], *, force: bool = True, subresource: str = "") -> dict[str, Any]:
        """Apply a manifest (server-side apply): create the object, or set the fields of the manifest.

        Fields of an earlier apply that the manifest lacks are removed. force: take over fields of other managers, else
        raise ApplyConflict. No request is sent if the same manifest was applied before, and the cached object has not
        changed since; the result is then that object.
        """
        step = await self._apply_step(manifest, subresource)
        resource, request, body, cached = step.resource, step.request, step.body, step.cached
        if step.unchanged is not None:
            return step.unchanged
        with self._write(resource, "apply", manifest):
            applied: dict[str, Any] = await self.raw.patch(
                resource,
                request.name,
                body,
                PatchType.APPLY,
                request.namespace,
                subresource=subresource,
                query={"fieldManager": self.field_manager, "force": "true" if force else ""},
            )
        if cached is not None and metadata_of(cached).resource_version == metadata_of(applied).resource_version:
            self._withdraw(resource, request.key)
        self._remember(step, applied, subresource)
        return self._wrote(resource, applied)

    async def apply_status(self, manifest: Mapping[str, Any], *, force: bool = True) -> dict[str, Any]:
        """Apply the status of a manifest; see apply()."""
        return await self.apply(manifest, force=force, subresource="status")

    async def create_or_patch(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create the object of a manifest that the cache lacks, else merge the manifest into it.

        It takes the API server less CPU than apply(), but fields that an earlier manifest had remain, and fields of
        other managers are taken over. No request is sent in the cases of apply(). Raises AlreadyExists if the cache
        does not have the object yet. Source: controllerutil.CreateOrPatch.
        """
        step = await self._apply_step(manifest, "")
        if step.unchanged is not None:
            return step.unchanged
        written: dict[str, Any]
        if step.cached is None:
            written = await self.create(step.body)
        else:
            metadata = {**(step.body.get("metadata") or {}), "uid": metadata_of(step.cached).uid}
            is_built_in = (step.resource.group, step.resource.kind) in BY_GROUP_KIND
            patch = strategic_merge_patch if is_built_in else merge_patch
            written = await self.patch({**step.body, "metadata": metadata}, patch(step.body))
        self._remember(step, written, "")
        return written

    async def _apply_step(self, manifest: Mapping[str, Any], subresource: str) -> _ApplyStep:
        resource = await self.resource_of(manifest)
        body = {**manifest, "apiVersion": resource.api_version, "kind": resource.kind}
        request = Request.of(manifest)
        memory = f"{resource.group_resource} {request} {subresource}"
        digest = hashlib.blake2b(msgspec.json.encode(body, order="sorted"), digest_size=16).digest()
        cached = self._observer.cached(resource, request)
        unchanged: dict[str, Any] | None = None
        if cached is not None and self._applied.get(memory) == (digest, _applied_state(cached, subresource)):
            unchanged = {**manifest_of(cached), **{name: body[name] for name in body.keys() - {"metadata", "status"}}}
        return _ApplyStep(resource, request, body, memory, digest, cached, unchanged)

    def _remember(self, step: _ApplyStep, written: ApiObject, subresource: str) -> None:
        self._applied.pop(step.memory, None)
        self._applied[step.memory] = step.digest, _applied_state(written, subresource)
        if len(self._applied) > _MAX_APPLIED:
            del self._applied[next(iter(self._applied))]

    async def scale(self, obj: ApiObject, replicas: int) -> None:
        """Set the replicas of an object by its subresource scale."""
        resource = await self.resource_of(obj)
        metadata = metadata_of(obj)
        with self._write(resource, "scale", obj):
            scale = await self.raw.patch(
                replace(resource, type=dict),
                metadata.name,
                {"spec": {"replicas": replicas}},
                PatchType.MERGE,
                metadata.namespace,
                subresource="scale",
                query={"fieldManager": self.field_manager},
            )
        self._observer.wrote(resource, scale)

    async def delete(
        self, obj: ApiObject, *, resource_version: bool = False, **options: Unpack[DeleteArguments]
    ) -> None:
        """Delete an object; does nothing if it is deleted already.

        The uid of `obj`, if it has one, is a precondition, and with resource_version its version is: Conflict is raised
        if there is another object or version.
        """
        resource = await self.resource_of(obj)
        metadata = metadata_of(obj)
        if metadata.uid:
            options.setdefault("precondition_uid", metadata.uid)
        if resource_version:
            options["precondition_resource_version"] = metadata.resource_version
        with suppress(NotFound), self._write(resource, "delete", obj):
            await self.raw.delete(resource, metadata.name, metadata.namespace, **options)
        self._applied.pop(f"{resource.group_resource} {Request.of(obj)} ", None)

    async def evict(self, pod: ApiObject, **options: Unpack[DeleteArguments]) -> None:
        """Evict a Pod; does nothing if it is deleted already. Raises TooManyRequests if a disruption budget forbids it.

        A reconcile that raises it runs again after the Retry-After of the response.
        """
        metadata = metadata_of(pod)
        if metadata.uid:
            options.setdefault("precondition_uid", metadata.uid)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace},
            "deleteOptions": api_client.delete_options(options) or {},
        }
        with suppress(NotFound), self._write(PODS, "evict", pod):
            await self.raw.create_raw(PODS, body, metadata.namespace, name=metadata.name, subresource="eviction")

    # --- steps of writes ---------------------------------------------------------------------------------------------

    async def _update(self, obj: T_obj, subresource: str) -> T_obj:
        resource = await self.resource_of(obj)
        if isinstance(obj, Object) and type(obj).__module__.startswith("kubeloop.kube."):
            raise PartialStruct(
                f"{resource.kind} declares only some fields of the object: use patch with merge_from, or apply"
            )
        metadata = metadata_of(obj)
        with self._write(resource, f"update {subresource}".strip(), obj):
            updated: T_obj = await self.raw.update(
                resource, metadata.name, self._manifest(resource, obj), metadata.namespace, subresource=subresource
            )
        return self._wrote(resource, updated)

    def _manifest(self, resource: Resource[Any], obj: ApiObject) -> dict[str, Any]:
        fields = obj if isinstance(obj, Mapping) else manifest_of(obj)
        return {**fields, "apiVersion": resource.api_version, "kind": resource.kind}

    def _wrote(self, resource: Resource[Any], obj: T_obj) -> T_obj:
        """Record and return an object of a response, which has no managedFields, like those of the cache."""
        if isinstance(obj, dict):
            obj.get("metadata", {}).pop("managedFields", None)
        self._observer.wrote(resource, obj)
        return obj

    def _write(self, resource: Resource[Any], verb: str, obj: ApiObject) -> AbstractContextManager[None]:
        """Record a write in the trace of the reconcile that sends it."""
        reconcile = current_span.get()
        if not isinstance(reconcile, Reconcile):
            return self._uncertain(resource, obj)
        if verb != "delete" and resource.group_resource in _CONTROLLERS:
            reconcile.will_trigger(_CONTROLLERS[resource.group_resource], Request.of(obj).key)
        action = f"{verb} {resource.singular or resource.kind.lower()} {metadata_of(obj).name}".rstrip()
        return self._uncertain(resource, obj, reconcile.action_span(action))

    def _withdraw(self, resource: Resource[Any], key: str) -> None:
        """Record that a write changed nothing."""
        reconcile = current_span.get()
        if isinstance(reconcile, Reconcile) and resource.group_resource in _CONTROLLERS:
            reconcile.will_not_trigger(_CONTROLLERS[resource.group_resource], key)

    @contextmanager
    def _uncertain(
        self, resource: Resource[Any], obj: ApiObject, span: AbstractContextManager[None] = _NO_SPAN
    ) -> Iterator[None]:
        """Record a write without response."""
        try:
            with span:
                yield
        except ServerUnreachable as error:
            if error.maybe_applied:
                self._observer.maybe_wrote(resource, Request.of(obj))
            raise


def _applied_state(obj: ApiObject, subresource: str) -> object:
    """Return what changes if a field that an apply may set changes: not for changes of the status, unless that is
    applied, if the object has a generation."""
    metadata = metadata_of(obj)
    if subresource or not metadata.generation:
        return metadata.uid, metadata.resource_version
    fields = (metadata.labels, metadata.annotations, metadata.owner_references, metadata.finalizers)
    return metadata.uid, metadata.generation, hashlib.blake2b(msgspec.json.encode(fields, order="sorted")).digest()


def _has(present: Any, changes: Mapping[str, JSONValue]) -> bool:
    """Return True if a merge patch changes nothing of a Struct or JSON.

    Fields that the Struct does not declare count as changes.
    """
    for name, value in changes.items():
        before = _member(present, name)
        if isinstance(value, Mapping) and isinstance(before, Mapping | msgspec.Struct):
            is_same = _has(before, value)
        elif before is UNSET:
            is_same = False
        elif value is None:  # removes the field; one of a Struct is absent, or has its default
            is_same = name not in (present if isinstance(present, Mapping) else msgspec.to_builtins(present))
        else:
            is_same = _equals(before, value)
        if not is_same:
            return False
    return True


def _member(present: Any, name: str) -> Any:
    """Return a field of a Struct or JSON by its name in JSON; UNSET if the Struct does not declare it."""
    if isinstance(present, Mapping):
        return present.get(name)
    attribute = dict(zip(present.__struct_encode_fields__, present.__struct_fields__, strict=True)).get(name)
    return UNSET if attribute is None else getattr(present, attribute)


def _equals(present: Any, value: JSONValue) -> bool:
    """Return True if a Struct, or a value of one, is this JSON value."""
    if isinstance(present, list | tuple) and isinstance(value, builtins.list):
        return len(present) == len(value) and all(map(_equals, present, value))
    if isinstance(present, msgspec.Struct) and isinstance(value, Mapping):
        with suppress(msgspec.ValidationError):
            is_declared = value.keys() <= set(present.__struct_encode_fields__)
            return is_declared and bool(msgspec.convert(value, type(present)) == present)
    return bool(present == value or msgspec.to_builtins(present) == value)
