"""Delete and deletecollection: graceful deletion, finalizers, propagation, preconditions.

Source: apiserver pkg/registry/generic/registry/store.go (deletionFinalizersForGarbageCollection, BeforeDelete), and the
pod strategy's CheckGracefulDelete.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from kubeloop.devcluster import errors
from kubeloop.devcluster.admission import Admission
from kubeloop.devcluster.custom.conditions import marked_for_cleanup
from kubeloop.devcluster.registry import CUSTOM_RESOURCE_DEFINITIONS, Served
from kubeloop.devcluster.storage import Store, Stored
from kubeloop.devcluster.writing import is_finished_deletion
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.resources import NAMESPACES, Resource

JSON = dict[str, Any]

_ORPHAN = "orphan"
_FOREGROUND = "foregroundDeletion"
_POLICIES = ("Background", "Foreground", "Orphan")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """metav1.DeleteOptions. grace_period_seconds None: the kind's own."""

    grace_period_seconds: int | None = None
    propagation_policy: str = ""
    orphan_dependents: bool | None = None
    precondition_uid: str = ""
    precondition_resource_version: str = ""
    dry_run: bool = False


def delete_options(body: JSON, query: dict[str, str]) -> DeleteOptions:
    """From the body, or from the query where there is no body. Raises StatusError for wrong values."""
    given: JSON = {name: value for name, value in body.items() if value is not None} if body else {**query}
    preconditions = given.get("preconditions") or {}
    grace = given.get("gracePeriodSeconds")
    policy = given.get("propagationPolicy") or ""
    orphan = given.get("orphanDependents")
    causes = []
    dry_run = given.get("dryRun") or []
    dry_run = [dry_run] if isinstance(dry_run, str) else dry_run
    if orphan is not None and policy:
        text = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        causes.append(errors.cause("FieldValueInvalid", "propagationPolicy", text))
    if policy and policy not in _POLICIES:
        text = f'Unsupported value: "{policy}": supported values: "Foreground", "Background", "Orphan", "nil"'
        causes.append(errors.cause("FieldValueNotSupported", "propagationPolicy", text))
    if any(value != "All" for value in dry_run):
        text = f'Unsupported value: {msgspec.json.encode(dry_run).decode()}: supported values: "All"'
        causes.append(errors.cause("FieldValueNotSupported", "dryRun", text))
    if causes:
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", causes)
    if isinstance(orphan, str):
        orphan = orphan.lower() not in ("false", "0")
    return DeleteOptions(
        grace_period_seconds=None if grace is None else int(grace),
        propagation_policy=policy,
        orphan_dependents=orphan,
        precondition_uid=preconditions.get("uid") or "",
        precondition_resource_version=preconditions.get("resourceVersion") or "",
        dry_run=bool(dry_run),
    )


class Deleting:
    """Deletions of one server."""

    def __init__(self, store: Store, admission: Admission, clock: Clock) -> None:
        self._store = store
        self._admission = admission
        self._clock = clock

    def delete(self, served: Served, before: Stored, options: DeleteOptions) -> tuple[JSON, bool]:
        """Delete or begin to delete. Returns the object as it is now, and whether it is gone. Raises StatusError."""
        resource = served.resource
        obj = before.object
        name = obj["metadata"]["name"]
        self._admission.check_delete(resource, name)
        self.check(resource, name, obj["metadata"], options)
        if resource.group_resource == "namespaces":
            return self._delete_namespace(before, options)
        if resource is CUSTOM_RESOURCE_DEFINITIONS and "deletionTimestamp" not in obj["metadata"]:
            return self._begin_to_delete_definition(before, options)
        finalizers = self._finalizers(obj["metadata"].get("finalizers", []), options)
        grace = self._grace_seconds(served, obj, options)
        metadata = {**obj["metadata"]}
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
        pending = bool(finalizers) or grace > 0
        if served.resource.group_resource == "pods" or pending:
            self._mark(metadata, obj["metadata"], grace)
        now = {**obj, "metadata": metadata}
        if not pending:
            if options.dry_run:
                return now, True
            table = self._store.table(resource)
            if metadata != obj["metadata"]:
                # even a pod that goes at once is first marked: its watchers see a change and then the deletion
                before = table.update(before, now)
            return table.delete(before).object, True
        if now == obj:
            return obj, False
        if options.dry_run:
            return now, False
        return self._store.table(resource).update(before, now).object, False

    def _begin_to_delete_definition(self, before: Stored, options: DeleteOptions) -> tuple[JSON, bool]:
        """The definition stays until its objects are gone, which `custom.definitions` sees to."""
        now = marked_for_cleanup(before.object, rfc3339(self._clock.now()))
        if options.dry_run:
            return now, False
        return self._store.table(CUSTOM_RESOURCE_DEFINITIONS).update(before, now).object, False

    def _delete_namespace(self, before: Stored, options: DeleteOptions) -> tuple[JSON, bool]:
        obj = before.object
        metadata = {**obj["metadata"]}
        finalizers = self._finalizers(metadata.get("finalizers", []), options)
        if finalizers:
            metadata["finalizers"] = finalizers
        metadata.setdefault("deletionTimestamp", rfc3339(self._clock.now()))
        now = {**obj, "metadata": metadata, "status": {**obj.get("status", {}), "phase": "Terminating"}}
        table = self._store.table(NAMESPACES)
        if "deletionTimestamp" in obj["metadata"] and is_finished_deletion(now):
            if options.dry_run:
                return now, True
            return table.delete(before, now).object, True
        if now == obj:
            return obj, False
        if options.dry_run:
            return now, False
        return table.update(before, now).object, False

    @staticmethod
    def check(resource: Resource[Any], name: str, metadata: JSON, options: DeleteOptions) -> None:
        """The preconditions. Raises StatusError 409."""
        if options.precondition_uid and options.precondition_uid != metadata["uid"]:
            raise errors.kind_conflict(
                resource.group,
                resource.kind,
                name,
                f"the UID in the precondition ({options.precondition_uid}) does not match the UID in record "
                f"({metadata['uid']}). The object might have been deleted and then recreated",
            )
        version = options.precondition_resource_version
        if version and version != metadata["resourceVersion"]:
            raise errors.kind_conflict(
                resource.group,
                resource.kind,
                name,
                f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
                f"({metadata['resourceVersion']}). The object might have been modified",
            )

    def _mark(self, metadata: JSON, before: JSON, grace: int) -> None:
        """Set deletionTimestamp and grace; a later deletion may only shorten the grace."""
        if "deletionTimestamp" in before:
            if grace >= before.get("deletionGracePeriodSeconds", 0):
                return
            metadata["deletionGracePeriodSeconds"] = grace
            shortened = self._clock.now() + timedelta(seconds=grace)
            metadata["deletionTimestamp"] = rfc3339(shortened)
            return
        metadata["deletionTimestamp"] = rfc3339(self._clock.now() + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
        if metadata.get("generation", 0) > 0:
            metadata["generation"] += 1

    @staticmethod
    def _finalizers(present: list[str], options: DeleteOptions) -> list[str]:
        orphan, foreground = _ORPHAN in present, _FOREGROUND in present
        if options.orphan_dependents is not None:
            orphan, foreground = options.orphan_dependents, False
        elif options.propagation_policy:
            orphan = options.propagation_policy == "Orphan"
            foreground = options.propagation_policy == "Foreground"
        kept = [each for each in present if each not in (_ORPHAN, _FOREGROUND)]
        return [*kept, *([_ORPHAN] if orphan else []), *([_FOREGROUND] if foreground else [])]

    @staticmethod
    def _grace_seconds(served: Served, obj: JSON, options: DeleteOptions) -> int:
        """Seconds a pod has to stop; 0 for all other kinds."""
        if served.resource.group_resource != "pods":
            return 0
        spec = obj["spec"]
        grace = options.grace_period_seconds
        if grace is None:
            grace = spec.get("terminationGracePeriodSeconds", 30)
        grace = max(1, grace) if grace < 0 else grace
        if not spec.get("nodeName") or obj.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        before = obj["metadata"]
        if "deletionTimestamp" in before:
            running = int(before.get("deletionGracePeriodSeconds", 0))
            return running if options.grace_period_seconds is None else min(grace, running)
        return int(grace)
