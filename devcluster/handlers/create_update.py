"""Create and update: from a request's object to a stored version, with the rules that all kinds share.

    decode -> default -> metadata -> strategy -> admission -> validation -> store

Everything up to the store works on the request's own copy; nothing is half-applied. Source: apiserver
pkg/registry/generic/registry/store.go and pkg/registry/rest.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from functools import partial

from kubeloop.devcluster.admission.chain import Admission
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.api.served_resources import Served, stored_form
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.managedfields.field_sets import track_create, track_update
from kubeloop.devcluster.registry import strategies
from kubeloop.devcluster.registry.service_allocation import ServiceAddresses
from kubeloop.devcluster.registry.stored_kinds import warnings_of
from kubeloop.devcluster.serializer.conversion import from_stored
from kubeloop.devcluster.serializer.empty_values import with_empties
from kubeloop.devcluster.serializer.request_bodies import Body
from kubeloop.devcluster.storage.store import Store, Stored, object_key
from kubeloop.devcluster.validation.validate import rule_warnings, validate_create, validate_update
from kubeloop.devcluster.validation.warnings.object_warnings import warnings_before, warnings_for
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON

_SET_BY_SERVER = ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_MAX_GENERATED_NAME = 63
_GENERATE_TRIES = 8


class ObjectWriter:
    """Writes of one server."""

    def __init__(
        self, store: Store, admission: Admission, addresses: ServiceAddresses, *, clock: Clock, rng: random.Random
    ) -> None:
        self._store = store
        self._admission = admission
        self._addresses = addresses
        self._clock = clock
        self._rng = rng

    def new_uid(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def now(self) -> str:
        return rfc3339(self._clock.now())

    def create(
        self,
        asked: Served,
        body: Body,
        namespace: str,
        writer: Writer,
        warnings: list[str],
        *,
        dry_run: bool,
        subresource: str = "",
    ) -> JSON:
        """Store a new object; body.obj is in the form in which `asked` is stored, defaulted and the caller's own.

        warnings: grows by what the sender is told, whether the object is stored or refused. subresource: through which
        it is made, which only some kinds allow. Messages tell empty lists in body.sent from absent ones. Raises
        StatusError.
        """
        obj, sent = body.obj, body.sent
        served = stored_form(asked)
        resource = served.resource
        metadata = obj.setdefault("metadata", {})
        if served.custom is not None:
            served.custom.check_create(metadata.get("name", ""))
        if metadata.get("resourceVersion") and not dry_run:
            raise errors.internal("resourceVersion should not be set on objects to be created")
        self.set_namespace(served, metadata, namespace)
        self._admission.check_open(resource, metadata.get("name") or metadata.get("generateName", ""), namespace)
        for name in _SET_BY_SERVER:
            metadata.pop(name, None)
        if not writer.applied:
            track_create(served, obj, writer, self.now, subresource=subresource)
        strategies.forget_empty_lists(served, obj)
        metadata["uid"] = self.new_uid()
        metadata["creationTimestamp"] = self.now()
        self._admission.admit_create(resource, obj, namespace)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._generated_name(served, metadata["generateName"], namespace)
        if not metadata.get("name") and resource.group_resource == "limitranges":
            metadata["name"] = self.new_uid()
        if resource.group_resource == "services" and not subresource:
            self._addresses.create(obj, dry_run=dry_run)
        is_completed = strategies.is_completed_when_read(served, obj)
        warnings += warnings_before(resource, obj)
        strategies.prepare_for_create(served, obj, metadata["creationTimestamp"], writer.user)
        causes = _causes(asked, obj, None, sent, validate_create)
        if causes:
            raise errors.invalid(resource.group, resource.kind, metadata.get("name", ""), causes)
        strategies.read_again(resource.group_resource, obj)
        warnings += _warnings(served, obj)
        self._admission.check_create(resource, obj, namespace, warnings)
        with self._admission.charged(resource, obj, namespace, dry_run=dry_run):
            table = self._store.table(resource)
            key = object_key(namespace if resource.namespaced else "", metadata["name"])
            if (present := table.get(key)) is not None:
                refusal = errors.already_exists(asked.resource, metadata["name"])
                if "deletionTimestamp" in present.object["metadata"]:
                    refusal.message = f"object is being deleted: {refusal.message}"
                if metadata.get("generateName"):
                    raise errors.name_not_generated(asked.resource, metadata["name"])
                raise refusal
            if dry_run:
                return obj if served.custom is None else _ordered(served, obj)
            stored = table.create(key, _ordered(served, obj))
            stored.is_completed = is_completed
            return stored.object

    def update(
        self,
        asked: Served,
        before: Stored,
        body: Body,
        writer: Writer,
        warnings: list[str],
        *,
        dry_run: bool,
        subresource: str = "",
        patched: bool = False,
    ) -> JSON:
        """Store the next version of `before`; `body` is as of create().

        patched: it is a patch on `before`, so its uid is a field like any other. A write that changes nothing stores
        nothing. Removing the last finalizer of an object that is being deleted removes it. warnings: as of create().
        Raises StatusError.
        """
        obj, sent = body.obj, body.sent
        served = stored_form(asked)
        resource, old = served.resource, from_stored(served, before.object)
        metadata, namespace = obj["metadata"], old["metadata"].get("namespace", "")
        if resource.namespaced:
            self._admission.check_namespace(namespace)
        self._check_precondition(asked, metadata, old, patched=patched)
        obj["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if not writer.applied:
            track_update(served, obj, old, writer, self.now, subresource=subresource)
        strategies.forget_empty_lists(served, obj)
        self._admission.admit_update(resource, obj, old, subresource)
        if subresource in ("status", "finalize", "approval"):
            obj = strategies.prepare_for_status_update(served, obj, old, subresource, now=self.now)
        elif subresource in ("ephemeralcontainers", "resize"):
            obj = strategies.prepare_for_part_of_pod(obj, old, subresource)
        else:
            if resource.group_resource == "services":
                self._addresses.update(obj, old, dry_run=dry_run)
            strategies.prepare_for_update(served, obj, old, sent)
        causes = _causes(asked, obj, old, sent, partial(validate_update, subresource=subresource))
        if causes:
            raise errors.invalid(resource.group, resource.kind, old["metadata"]["name"], causes)
        strategies.read_again(resource.group_resource, obj)
        warnings += _warnings(served, obj, old, subresource)
        self._admission.check_update(resource, obj, old, warnings, subresource)
        with self._admission.charged(resource, obj, namespace, dry_run=dry_run, old=old, subresource=subresource):
            return self.replace(served, before, obj, dry_run=dry_run)

    def replace(self, served: Served, before: Stored, obj: JSON, *, dry_run: bool = False) -> JSON:
        """Store `obj`, which has passed all checks, in place of `before`; the end of every update."""
        obj = _ordered(served, obj)
        table = self._store.table(served.resource)
        if is_finished_deletion(obj):
            if dry_run:
                return obj
            table.delete(before)  # its watchers see the last stored state, the caller what it has written
            return obj
        if not before.is_completed and (obj == before.object or _differs_in_times_alone(obj, before.object)):
            return before.object
        if dry_run:
            return obj
        return table.update(before, obj).object

    # --- metadata -----------------------------------------------------------------------------------------------------

    def set_namespace(self, served: Served, metadata: JSON, namespace: str) -> None:
        """Give a new object the namespace of its path, or none. Raises StatusError 400 if it says another one."""
        if not served.resource.namespaced:
            metadata.pop("namespace", None)
            return
        given = metadata.get("namespace", "")
        if given and given != namespace:
            message = "the namespace of the provided object does not match the namespace sent on the request"
            raise errors.bad_request(message)
        metadata["namespace"] = namespace

    def _check_precondition(self, served: Served, metadata: JSON, old: JSON, *, patched: bool) -> None:
        resource, before = served.resource, old["metadata"]
        uid = metadata.get("uid")
        if uid and uid != before["uid"] and not patched:
            raise errors.failed_precondition(resource, before["name"], "UID", uid, before["uid"])
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

    def _generated_name(self, served: Served, prefix: str, namespace: str) -> str:
        """A free name with a suffix of five. Raises StatusError if there is none after some tries."""
        table = self._store.table(served.resource)
        stem = prefix[: _MAX_GENERATED_NAME - _SUFFIX_LENGTH]
        name = ""
        for _ in range(_GENERATE_TRIES):
            name = stem + "".join(self._rng.choices(_SUFFIX_ALPHABET, k=_SUFFIX_LENGTH))
            if table.get(object_key(namespace if served.resource.namespaced else "", name)) is None:
                return name
        raise errors.name_not_generated(served.resource, name)


def _warnings(served: Served, obj: JSON, old: JSON | None = None, subresource: str = "") -> list[str]:
    """What is told about writing a valid object."""
    if served.custom is not None:
        return served.custom.warnings(obj, old)
    told = [
        *warnings_for(served.resource, obj, old, subresource=subresource),
        *warnings_of(served.resource, new=old is None),
    ]
    told += rule_warnings(served.resource, obj, old)
    return told


def _causes(asked: Served, obj: JSON, old: JSON | None, sent: JSON, validate: Callable[..., list[JSON]]) -> list[JSON]:
    """What is against `obj`, with its values as they were sent: decoding drops lists and maps without anything in them.

    Events are looked at in the form in which they are asked for, which has rules of its own.
    """
    resource = stored_form(asked).resource
    if asked.resource.group != resource.group:
        resource, obj = asked.resource, from_stored(asked, obj)
        old = None if old is None else from_stored(asked, old)
    elif resource.group_resource in _COMPARED_AS_SENT and sent:
        obj = with_empties(obj, sent)
    more = () if old is None else (old,)
    causes = validate(resource, obj, *more)
    if causes and sent and asked.custom is None:
        known = {_place(each) for each in causes}
        told = [each for each in validate(resource, with_empties(obj, sent), *more) if _place(each) in known]
        if [*map(_place, told)] == [*map(_place, causes)]:
            return told
    return causes


_COMPARED_AS_SENT = ("configmaps", "secrets")
"""Kinds that do not change from none to an empty map, either, if they are immutable."""


def _place(cause: JSON) -> tuple[str, str]:
    return cause["reason"], cause["field"]


def check_version(version: str | None) -> None:
    """Raises StatusError 500, as v1.36, for a resourceVersion that is no number."""
    if version and not (version.isascii() and version.isdecimal()):
        raise errors.internal(f"strconv.ParseUint: parsing {quoted(version)}: invalid syntax")


def is_finished_deletion(obj: JSON) -> bool:
    """Is `obj` to be removed now: marked for deletion, no grace left, nobody's finalizer on it?"""
    metadata = obj["metadata"]
    return bool(
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and metadata.get("deletionGracePeriodSeconds", 0) == 0
        and not (obj.get("kind") == "Namespace" and obj.get("spec", {}).get("finalizers"))
    )


def _differs_in_times_alone(obj: JSON, old: JSON) -> bool:
    """Is nothing new but the times at which fields were set? Source: managedfields ignoreManagedFieldsTimestamps."""
    if obj.keys() != old.keys() or any(obj[name] != old[name] for name in reversed(obj) if name != "metadata"):
        return False
    one, other = obj["metadata"], old["metadata"]
    if one.keys() != other.keys() or any(one[name] != other[name] for name in one if name != "managedFields"):
        return False
    untimed = [[{**each, "time": ""} for each in metadata.get("managedFields", ())] for metadata in (one, other)]
    return untimed[0] == untimed[1]


def _ordered(served: Served, obj: JSON) -> JSON:
    """`obj` beginning with kind and apiVersion, as every stored object does (see lists.item_prefix_length).

    metadata is next, as in all of Kubernetes' types.
    """
    if served.custom is not None:
        obj, served = served.custom.stored(obj), served.custom.home.served
    resource = served.resource
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": obj["metadata"],
        **{name: value for name, value in obj.items() if name not in _FIRST},
    }


_FIRST = ("kind", "apiVersion", "metadata")
