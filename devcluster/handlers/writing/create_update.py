"""Create and update: store a request's object after the steps that all kinds share.

    decode -> default -> metadata -> strategy -> admission -> validation -> store

All steps before the store work on the request's own copy, so nothing is half-applied. Source: apiserver
pkg/registry/generic/registry/store.go and pkg/registry/rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.admission.dynamic_admission import DynamicAdmission
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.authorizer import AccessAttributes, forbidden
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import ServedResource, storage_version_of
from kubeloop.devcluster.api.slow_work import Outdated
from kubeloop.devcluster.api.strategy import Strategy, Write, strategy_of
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.managedfields.field_sets import track_create, track_update
from kubeloop.devcluster.registry import preparation
from kubeloop.devcluster.registry.disabled_fields import DisabledFields
from kubeloop.devcluster.serializer.conversion import from_stored
from kubeloop.devcluster.serializer.empty_values import restore_empty_values
from kubeloop.devcluster.serializer.request_bodies import Body
from kubeloop.devcluster.storage.store import ObjectStore, StoredObject, Table, object_key
from kubeloop.devcluster.validation.common.error_list import error_list_type
from kubeloop.devcluster.validation.validate import validate_create, validate_update, write_warnings
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.json_object import JSON, sorted_map
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.uids import NAME_SUFFIX_LENGTH, name_suffix
from kubeloop.kube.validation.field_errors import quoted

_SET_BY_SERVER = ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
_MAX_GENERATED_NAME = 63
_GENERATE_TRIES = 8


Validate = Callable[..., list[JSON]]


class Allocator(Protocol):
    """Allocates what the objects of one kind share, such as addresses. Raises StatusError."""

    def create(self, obj: JSON, /, *, dry_run: bool) -> None: ...

    def update(self, obj: JSON, old: JSON, /, *, dry_run: bool) -> None: ...

    def are_taken(self, obj: JSON, /) -> bool:
        """Return True if another object has taken what create() or update() allocated to this one."""
        ...


class ObjectWriter:
    """Writes of one server.

    A write is computed from the stored version, which may take slow work, and stored if that version is still the
    present one. Source: etcd3 store's GuaranteedUpdate.
    """

    def __init__(
        self,
        store: ObjectStore,
        dynamic_admission: DynamicAdmission,
        allocators: Mapping[Resource[Any], Allocator],
        gates: FeatureGates,
        admission: AdmissionChain,
    ) -> None:
        self._store = store
        self._gates = gates
        self._fields = DisabledFields(gates)
        self._error_list = error_list_type(gates)
        self.admission = admission
        self.dynamic_admission = dynamic_admission
        self._allocators = allocators

    async def create(self, context: RequestContext, body: Body, writer: Writer) -> JSON:
        """Store a new object and return it. Raises StatusError, Outdated.

        body.obj: in the stored form, defaulted, owned by the caller. body.sent: used in error messages, which
        distinguish empty lists from absent ones. The request's warnings are extended, also if the object is refused.
        """
        obj, info, warnings = body.obj, context.info, context.request.warnings
        served, namespace = storage_version_of(info.served), info.namespace
        resource, crd_version = served.resource, served.crd_version
        strategy = strategy_of(resource)
        revision = self._store.revision
        metadata = obj.setdefault("metadata", {})
        if crd_version is not None:
            crd_version.check_create(metadata.get("name", ""))
        if metadata.get("resourceVersion") and not context.dry_run:
            raise errors.internal("resourceVersion should not be set on objects to be created")
        set_namespace(served, metadata, namespace)
        self.admission.check_namespace_accepts_creates(
            context, metadata.get("name") or metadata.get("generateName", "")
        )
        for name in _SET_BY_SERVER:
            metadata.pop(name, None)
        if not writer.applied:
            track_create(served, obj, writer, context.now, subresource=info.subresource)
        preparation.drop_empty_lists(served, obj)
        metadata["uid"] = context.new_uid()
        metadata["creationTimestamp"] = context.now()
        if strategy.admit_create is not None:
            strategy.admit_create(self.admission, context, obj)
        is_admitted = self.dynamic_admission.apply_to(context)
        if is_admitted:
            await self._mutate(context, strategy, obj)
        if strategy.authorize_write is not None:
            strategy.authorize_write(self._store, context, obj, None)
        is_generated = not metadata.get("name") and bool(metadata.get("generateName"))
        if is_generated:
            metadata["name"] = self._generated_name(context, served, metadata["generateName"])
        allocator = None if info.subresource else self._allocators.get(resource)
        if allocator is not None:
            allocator.create(obj, dry_run=context.dry_run)
        needs_rewrite = strategy.is_defaulted_on_read is not None and strategy.is_defaulted_on_read(obj)
        if strategy.warnings_as_sent is not None:
            warnings += strategy.warnings_as_sent(obj)
        preparation.prepare_for_create(served, strategy, obj, self._write(context, writer), self._fields)
        await self._validate(context, served, strategy, obj, None, body.sent)
        if strategy.default_on_read is not None:
            strategy.default_on_read(obj)
        warnings += write_warnings(strategy, obj)
        if context.request.method != "POST":
            _authorize_create(context)
        self.admission.check_create(strategy, context, obj)
        if is_admitted:
            await self.dynamic_admission.check(context, "CREATE", obj, None)
        if crd_version is not None:
            if is_admitted:
                obj = crd_version.pruned(obj)
            await crd_version.prepare_write(context, obj)
        if self._store.revision != revision:
            self.admission.check_namespace_accepts_creates(context, metadata["name"])
            if allocator is not None and not context.dry_run and allocator.are_taken(obj):
                raise Outdated  # the object has waited for slow work
        with self.admission.charge_quota(context, resource, obj):
            table = self._store.table(resource)
            key = object_key(namespace if resource.namespaced else "", metadata["name"])
            if (present := table.get(key)) is not None:
                if is_generated:
                    raise Outdated
                refusal = errors.already_exists(info.served.resource, metadata["name"])
                if "deletionTimestamp" in present.object["metadata"]:
                    refusal.message = f"object is being deleted: {refusal.message}"
                if metadata.get("generateName"):
                    raise errors.name_not_generated(info.served.resource, metadata["name"])
                raise refusal
            if context.dry_run:
                return _ordered(served, obj)
            stored = table.create(key, _ordered(served, obj))
            stored.needs_rewrite = needs_rewrite
            return stored.object

    async def update(
        self, context: RequestContext, before: StoredObject, body: Body, writer: Writer, *, patched: bool = False
    ) -> JSON:
        """Store the next version of `before` and return it; `body` as in create(). Raises StatusError, Outdated.

        patched: the object results from a patch of `before`, so its uid is an ordinary field. A write without changes
        stores nothing. Removing the last finalizer of an object in deletion deletes it.
        """
        obj, info, sent = body.obj, context.info, body.sent
        served, subresource = storage_version_of(info.served), info.subresource
        resource, crd_version, old = served.resource, served.crd_version, from_stored(served, before.object)
        strategy = strategy_of(resource)
        revision = self._store.revision
        metadata, namespace = obj["metadata"], old["metadata"].get("namespace", "")
        if resource.namespaced:
            self.admission.check_namespace(namespace)
        if not patched:
            check_uid(context, metadata, old["metadata"])
        _check_version_precondition(info.served, metadata, old)
        obj["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if not writer.applied:
            track_update(served, obj, old, writer, context.now, subresource=subresource)
        preparation.drop_empty_lists(served, obj)
        if strategy.admit_update is not None and not subresource:
            strategy.admit_update(self.admission, obj, old)
        is_admitted = self.dynamic_admission.apply_to(context)
        if is_admitted and subresource != "scale":
            await self._mutate(context, strategy, obj, old)
        if strategy.authorize_write is not None:
            strategy.authorize_write(self._store, context, obj, old)
        allocator = None if subresource else self._allocators.get(resource)
        write = self._write(context, writer)
        if subresource not in ("", "scale"):
            obj = preparation.prepare_for_subresource_update(strategy, obj, old, subresource, write, self._fields)
            uid = old["metadata"]["uid"]
            if strategy.status_metadata is not None and metadata.get("uid", uid) != uid:  # refused by validation
                obj["metadata"] = {**obj["metadata"], "uid": metadata["uid"]}
        else:
            if allocator is not None:
                allocator.update(obj, old, dry_run=context.dry_run)
            preparation.prepare_for_update(served, strategy, obj, old, sent, write, self._fields)
        await self._validate(context, served, strategy, obj, old, sent)
        if strategy.default_on_read is not None:
            strategy.default_on_read(obj)
        context.request.warnings += write_warnings(strategy, obj, old, subresource=subresource)
        self.admission.check_update(strategy, context, obj, old)
        if is_admitted:
            await self.dynamic_admission.check(context, "UPDATE", obj, old)
        if crd_version is not None:
            if is_admitted or subresource == "scale":  # its path may be none of the schema
                obj = crd_version.pruned(obj)
            await crd_version.prepare_write(context, obj)
        table = self._store.table(resource)
        if table.get(before.key) is not before:
            raise Outdated
        if (
            allocator is not None
            and self._store.revision != revision
            and not context.dry_run
            and allocator.are_taken(obj)
        ):
            raise Outdated
        with self.admission.charge_quota(context, resource, obj, old):
            return _replace(served, table, before, obj, dry_run=context.dry_run)

    def _write(self, context: RequestContext, writer: Writer) -> Write:
        return Write(context.now, writer.user, context.new_uid, self._gates)

    async def _validate(
        self,
        context: RequestContext,
        served: ServedResource,
        strategy: Strategy,
        obj: JSON,
        old: JSON | None,
        sent: JSON,
    ) -> None:
        """Validate a new object (old: None) or an update; check the rules of a custom resource. Raises StatusError."""
        validate: Validate = (
            partial(validate_create, error_list=self._error_list)
            if old is None
            else partial(validate_update, subresource=context.info.subresource, error_list=self._error_list)
        )
        if served.crd_version is None:
            causes = _causes(context.info.served, served, strategy, obj, old, sent, validate)
        else:
            old_object = () if old is None else (old,)
            causes = validate(strategy, served.resource, obj, *old_object)
            rule_causes, warnings = await served.crd_version.check_rules(context, obj, old, causes)
            causes = [*causes, *rule_causes]
            context.request.warnings += () if causes else warnings
        if strategy.check_access is not None:
            causes = strategy.check_access(self.admission, context, obj, old, causes)
        if causes:
            raise _invalid(served.resource, obj, old, causes)

    async def _mutate(self, context: RequestContext, strategy: Strategy, obj: JSON, old: JSON | None = None) -> None:
        """Run the mutating policies and webhooks on `obj`, in place; the mutating plugins again if one has changed it.

        old: the object before an update, None for a create. Raises StatusError.
        """

        def admit() -> None:
            if old is None:
                if strategy.admit_create is not None:
                    strategy.admit_create(self.admission, context, obj)
            elif strategy.admit_update is not None and not context.info.subresource:
                strategy.admit_update(self.admission, obj, old)

        await self.dynamic_admission.mutate(context, "CREATE" if old is None else "UPDATE", obj, old, admit)

    def _generated_name(self, context: RequestContext, served: ServedResource, prefix: str) -> str:
        """Return a free name with a random suffix of five characters. Raises StatusError after some attempts."""
        table = self._store.table(served.resource)
        namespace = context.info.namespace if served.resource.namespaced else ""
        stem = prefix[: _MAX_GENERATED_NAME - NAME_SUFFIX_LENGTH]
        name = ""
        for _ in range(_GENERATE_TRIES):
            name = stem + name_suffix(context.rng)
            if table.get(object_key(namespace, name)) is None:
                return name
        raise errors.name_not_generated(served.resource, name)


def _authorize_create(context: RequestContext) -> None:
    """Raise StatusError 403 unless the user may create the object that an update or apply creates."""
    info = context.info
    resource = info.served.resource
    create = AccessAttributes(
        context.request.user, "create", resource.group, resource.plural, info.subresource, info.namespace, info.name
    )
    decision = context.authorizer.authorize(create)
    if not decision.allowed:
        raise forbidden(create, decision.reason)


def _replace(served: ServedResource, table: Table, before: StoredObject, obj: JSON, *, dry_run: bool) -> JSON:
    """Store `obj`, which has passed all checks, in place of `before`: the last step of every update."""
    obj = _ordered(served, obj)
    if is_finished_deletion(served, obj):
        if not dry_run:
            table.delete(before)  # watchers see the last stored state, the client the state it wrote
        return obj
    if not before.needs_rewrite and (obj == before.object or _differs_in_times_alone(obj, before.object)):
        return before.object
    return obj if dry_run else table.update(before, obj).object


# --- metadata ---------------------------------------------------------------------------------------------------------


def set_namespace(served: ServedResource, metadata: JSON, namespace: str) -> None:
    """Set a new object's namespace from the path, or remove it. Raises StatusError 400 for another one."""
    if not served.resource.namespaced:
        metadata.pop("namespace", None)
        return
    declared = metadata.get("namespace", "")
    if declared and declared != namespace:
        message = "the namespace of the provided object does not match the namespace sent on the request"
        raise errors.bad_request(message)
    metadata["namespace"] = namespace


def check_uid(context: RequestContext, metadata: JSON, before: JSON) -> None:
    """Raise StatusError 409 if an update has another uid than the stored metadata."""
    uid = metadata.get("uid")
    if uid and uid != before["uid"]:
        raise errors.failed_storage_precondition(
            context.info.served.resource,
            before.get("namespace", ""),
            before["name"],
            "UID",
            uid,
            before["uid"],
            dry_run=context.dry_run,
        )


def _check_version_precondition(served: ServedResource, metadata: JSON, old: JSON) -> None:
    resource, before = served.resource, old["metadata"]
    version = metadata.get("resourceVersion")
    check_version(version)
    if not version or version == "0":
        if not served.unconditional_update:
            causes = [
                errors.cause(
                    "FieldValueInvalid",
                    "metadata.resourceVersion",
                    "Invalid value: 0: must be specified for an update",
                )
            ]
            raise errors.invalid(resource.group, resource.plural, before["name"], causes)
    elif version != before["resourceVersion"]:
        raise errors.conflict(resource, before["name"])


def _invalid(resource: Resource[Any], obj: JSON, old: JSON | None, causes: list[JSON]) -> errors.StatusError:
    name = (obj if old is None else old)["metadata"].get("name", "")
    return errors.invalid(resource.group, resource.kind, name, causes)


def _causes(
    requested: ServedResource,
    served: ServedResource,
    strategy: Strategy,
    obj: JSON,
    old: JSON | None,
    sent: JSON,
    validate: Validate,
) -> list[JSON]:
    """Return the causes against `obj`, with the values that were sent: decoding drops empty lists and maps.

    Events are validated in the requested API version, which has its own rules.
    """
    resource = served.resource
    if requested.resource.group != resource.group:
        resource, obj = requested.resource, from_stored(requested, obj)
        strategy, old = strategy_of(resource), None if old is None else from_stored(requested, old)
    elif strategy.validated_as_sent and sent:
        obj = restore_empty_values(obj, sent)
    old_object = () if old is None else (old,)
    causes = validate(strategy, resource, obj, *old_object)
    if causes and sent:
        reported = {_reason_and_field(cause) for cause in causes}
        as_sent = [
            cause
            for cause in validate(strategy, resource, restore_empty_values(obj, sent), *old_object)
            if _reason_and_field(cause) in reported
        ]
        if [*map(_reason_and_field, as_sent)] == [*map(_reason_and_field, causes)]:
            return as_sent
    return causes


def _reason_and_field(cause: JSON) -> tuple[str, str]:
    return cause["reason"], cause["field"]


def check_version(version: str | None) -> None:
    """Raises StatusError 500, as v1.36, for a resourceVersion that is not a number."""
    if version and not (version.isascii() and version.isdecimal()):
        raise errors.internal(f"strconv.ParseUint: parsing {quoted(version)}: invalid syntax")


def is_finished_deletion(served: ServedResource, obj: JSON) -> bool:
    """Return True if `obj` is to be removed: marked for deletion, grace period over, no finalizers."""
    metadata = obj["metadata"]
    return bool(
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and metadata.get("deletionGracePeriodSeconds", 0) == 0
        and not ((is_finalizing := strategy_of(served.resource).is_finalizing) is not None and is_finalizing(obj))
    )


def _differs_in_times_alone(obj: JSON, old: JSON) -> bool:
    """Return True if only the times of managedFields differ. Source: ignoreManagedFieldsTimestampsTransformer."""
    if obj.keys() != old.keys() or any(obj[name] != old[name] for name in reversed(obj) if name != "metadata"):
        return False
    one, other = obj["metadata"], old["metadata"]
    if one.keys() != other.keys() or any(one[name] != other[name] for name in one if name != "managedFields"):
        return False
    untimed = [[{**entry, "time": ""} for entry in metadata.get("managedFields", ())] for metadata in (one, other)]
    return untimed[0] == untimed[1]


def _ordered(served: ServedResource, obj: JSON) -> JSON:
    """Return `obj` in the order of stored objects: kind, apiVersion and metadata first (see list.item_prefix_length).

    Custom resources begin with apiVersion (see store.encode_object). Labels and annotations are sorted, to which the
    server may have added some.
    """
    if served.crd_version is not None:
        obj = served.crd_version.to_storage(obj)
        first = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    else:
        first = {"kind": served.resource.kind, "apiVersion": served.resource.api_version}
    metadata = obj["metadata"]
    for name in ("labels", "annotations"):
        if values := metadata.get(name):
            metadata[name] = sorted_map(values)
    return {**first, "metadata": metadata, **{name: value for name, value in obj.items() if name not in _FIRST}}


_FIRST = ("kind", "apiVersion", "metadata")
