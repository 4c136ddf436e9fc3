"""Delete and deletecollection: graceful deletion, finalizers, propagation, preconditions.

Source: apiserver pkg/registry/generic/registry/store.go (deletionFinalizersForGarbageCollection, BeforeDelete), and the
pod strategy's CheckGracefulDelete.
"""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.admission.policies.policy_plugin import PolicyPlugin
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.delete_options import DeleteOptions
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import CUSTOM_RESOURCE_DEFINITIONS, ServedResource, storage_version_of
from kubeloop.devcluster.registry.custom_resource_definitions import mark_for_cleanup
from kubeloop.devcluster.storage.store import ObjectStore, StoredObject
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES, Resource
from kubeloop.kube.times import parse_time, time_plus

_ORPHAN = "orphan"
_FOREGROUND = "foregroundDeletion"
_JOB_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


class ObjectDeleter:
    """Deletes the objects of one store."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def check_policies(
        self, context: RequestContext, policies: PolicyPlugin, before: StoredObject, options: DeleteOptions
    ) -> None:
        """Run the admission policies if delete() would change the object. Raises StatusError as delete() does."""
        served = storage_version_of(context.info.served)
        obj = before.object
        self.check(served.resource, obj["metadata"]["name"], obj["metadata"], options)
        if self._is_unchanged(served, obj, options):
            return
        grace = _grace_seconds(obj, options) if _is_graceful(served, obj) else None
        await policies.check(context, "DELETE", None, obj, options, grace)

    def delete(self, served: ServedResource, before: StoredObject, options: DeleteOptions) -> tuple[JSON, bool]:
        """Delete an object, or begin to; return its current form and True if it is removed. Raises StatusError."""
        resource = served.resource
        obj = before.object
        self.check(resource, obj["metadata"]["name"], obj["metadata"], options)
        if self._is_unchanged(served, obj, options):
            return obj, False
        if resource is NAMESPACES and not _is_finalized(obj):
            return self._delete_namespace(before, options)
        if resource is CUSTOM_RESOURCE_DEFINITIONS and "deletionTimestamp" not in obj["metadata"]:
            return self._delete_definition(before, options)
        metadata = {**obj["metadata"]}
        is_graceful = _is_graceful(served, obj)
        grace = _grace_seconds(obj, options) if is_graceful else 0
        finalizers = _finalizers(metadata.get("finalizers", []), options, served)
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
        if is_graceful:
            self._mark_graceful(metadata, obj["metadata"], grace)
        elif finalizers:
            self._mark_finalizing(metadata)
        updated = {**obj, "metadata": metadata}
        table = self._store.table(resource)
        if finalizers or grace > 0:
            if updated == obj or options.dry_run:
                return updated, False
            return table.update(before, updated).object, False
        if options.dry_run:
            return updated, True
        if is_graceful and metadata != obj["metadata"]:
            # Kubernetes marks a pod before it deletes it at once: watchers see an update, then the deletion.
            before = table.update(before, updated)
        return table.delete(before).object, True

    def _delete_definition(self, before: StoredObject, options: DeleteOptions) -> tuple[JSON, bool]:
        """Mark a definition; it remains until its objects are deleted (apiextensions.definitions)."""
        updated = mark_for_cleanup(before.object, rfc3339(self._clock.now()))
        if options.dry_run:
            return updated, False
        return self._store.table(CUSTOM_RESOURCE_DEFINITIONS).update(before, updated).object, False

    def _delete_namespace(self, before: StoredObject, options: DeleteOptions) -> tuple[JSON, bool]:
        obj = before.object
        metadata = {**obj["metadata"]}
        finalizers = _finalizers(metadata.get("finalizers", []), options)
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
        metadata["deletionTimestamp"] = rfc3339(self._clock.now())
        updated = {**obj, "metadata": metadata, "status": {**obj.get("status", {}), "phase": "Terminating"}}
        if options.dry_run:
            return updated, False
        return self._store.table(NAMESPACES).update(before, updated).object, False

    @staticmethod
    def check(resource: Resource[Any], name: str, metadata: JSON, options: DeleteOptions) -> None:
        """Raise StatusError 409 for a violated precondition, 403 for a namespace that may not be deleted."""
        uid, version = options.precondition_uid, options.precondition_resource_version
        wrong_uid = uid is not None and uid != metadata["uid"]
        wrong_version = version is not None and version != metadata["resourceVersion"]
        if not wrong_uid and not wrong_version:
            AdmissionChain.check_delete(resource, name)
            return
        if resource is NAMESPACES:
            if wrong_uid:
                raise errors.failed_precondition(resource, name, "UID", str(uid), metadata["uid"])
            raise errors.failed_precondition(
                resource, name, "ResourceVersion", str(version), metadata["resourceVersion"]
            )
        if wrong_uid:
            message = (
                f"the UID in the precondition ({uid}) does not match the UID in record ({metadata['uid']}). The object "
                "might have been deleted and then recreated"
            )
        else:
            message = (
                f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
                f"({metadata['resourceVersion']}). The object might have been modified"
            )
        raise errors.kind_conflict(resource.group, resource.kind, name, message)

    @staticmethod
    def _is_unchanged(served: ServedResource, obj: JSON, options: DeleteOptions) -> bool:
        """Return True if the object is being deleted and the options do not shorten its grace period."""
        metadata = obj["metadata"]
        if "deletionTimestamp" not in metadata:
            return False
        if served.resource is NAMESPACES:
            return not _is_finalized(obj)
        if not _is_graceful(served, obj):
            return False
        grace = options.grace_period_seconds
        return grace is None or _non_negative_grace(grace) >= metadata["deletionGracePeriodSeconds"]

    def _mark_graceful(self, metadata: JSON, before: JSON, grace: int) -> None:
        """Set deletionTimestamp and grace period; a second deletion may only shorten the period, not into the past."""
        now = self._clock.now()
        if "deletionTimestamp" in before:
            began = parse_time(before["deletionTimestamp"])
            until = time_plus(time_plus(began, -before["deletionGracePeriodSeconds"]), grace)
            if until < now:
                until, grace = now, min(grace, 1)
        else:
            until = time_plus(now, grace)
            if metadata.get("generation", 0) > 0:
                metadata["generation"] += 1
        metadata["deletionTimestamp"] = rfc3339(until)
        metadata["deletionGracePeriodSeconds"] = grace

    def _mark_finalizing(self, metadata: JSON) -> None:
        """Mark an object without a grace period, which waits for its finalizers only."""
        if "deletionTimestamp" not in metadata:
            if metadata.get("generation", 0) > 0:
                metadata["generation"] += 1
            metadata["deletionTimestamp"] = rfc3339(self._clock.now())
        metadata["deletionGracePeriodSeconds"] = 0


def deletion_warnings(served: ServedResource, options: DeleteOptions) -> list[str]:
    """Return the warning for deletions of Jobs without a propagation policy. Source: batch/job/storage."""
    warns = options.has_no_propagation_policy and served.resource.group_resource == "jobs.batch"
    return [_JOB_WARNING] if warns else []


def _is_graceful(served: ServedResource, obj: JSON) -> bool:
    """Return True for an object with a grace period: a pod, until that is over."""
    if served.resource.group_resource != "pods":
        return False
    metadata = obj["metadata"]
    return "deletionTimestamp" not in metadata or bool(metadata.get("deletionGracePeriodSeconds"))


def _is_finalized(namespace: JSON) -> bool:
    return "deletionTimestamp" in namespace["metadata"] and not (namespace.get("spec") or {}).get("finalizers")


def _non_negative_grace(grace: int) -> int:
    return grace if grace >= 0 else 1


def _finalizers(present: list[str], options: DeleteOptions, served: ServedResource | None = None) -> list[str]:
    """Return the finalizers including those for dependents: by the options, else as present, else by the kind."""
    orphan, foreground = _ORPHAN in present, _FOREGROUND in present
    if served is not None and served.dependents == "ignored":
        orphan = foreground = False
    elif options.orphan_dependents is not None:
        orphan, foreground = options.orphan_dependents, False
    elif options.propagation_policy is not None:
        orphan = options.propagation_policy == "Orphan"
        foreground = options.propagation_policy == "Foreground"
    elif orphan and foreground:
        first = next(finalizer for finalizer in present if finalizer in (_ORPHAN, _FOREGROUND))
        orphan, foreground = first == _ORPHAN, first == _FOREGROUND
    elif served is not None and served.dependents == "orphaned" and not foreground:
        orphan = True
    others = [finalizer for finalizer in present if finalizer not in (_ORPHAN, _FOREGROUND)]
    result = [*others, *([_ORPHAN] if orphan else []), *([_FOREGROUND] if foreground else [])]
    return present if set(result) == set(present) else result


def _grace_seconds(pod: JSON, options: DeleteOptions) -> int:
    """Return the grace period of a pod in seconds: the options', else its terminationGracePeriodSeconds, default 30."""
    grace = options.grace_period_seconds
    if "deletionTimestamp" in pod["metadata"]:
        return _non_negative_grace(grace or 0)  # set: otherwise nothing changes, see _is_unchanged()
    spec = pod["spec"]
    if not spec.get("nodeName") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return _non_negative_grace(int(spec.get("terminationGracePeriodSeconds", 30)) if grace is None else grace)
