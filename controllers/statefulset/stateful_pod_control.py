"""Writes of Pods and volume claims of StatefulSets, with their events and traces.

Source: pkg/controller/statefulset/stateful_pod_control.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.pods.pod_control import PodControl
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.controllers.runtime.writes.object_patch import merge_object, patch_object, versioned_merge_patch
from kubeloop.controllers.statefulset.claim_owners import (
    has_other_controller,
    owner_references_by_policy,
    owners_match_policy,
)
from kubeloop.controllers.statefulset.stateful_pods import (
    claim_names,
    claim_volumes,
    claims_of,
    identity_labels,
    identity_matches,
    ordinal_of,
    pod_name,
    stateful_pod,
    storage_matches,
)
from kubeloop.controllers.statefulset.stateful_set_plan import CreatePod, PodAction
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import JSONValue, Pod, StatefulSet
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim
from kubeloop.tracing.recording.reconcile_recorder import Reconcile


class CannotWriteClaims(ReconcileError):
    """A volume claim of a Pod could not be created or updated."""


class StatefulPodControl:
    """Applies the actions of a plan."""

    def __init__(self, context: ControllerContext, consistency: ConsistencyStore) -> None:
        self._client = context.client
        self._events = context.events
        self._pod_control = PodControl(context)
        self._claims = context.informers.informer(PERSISTENT_VOLUME_CLAIMS).store
        self._consistency = consistency

    def cached_claim(self, sts: StatefulSet, name: str) -> PersistentVolumeClaim | None:
        return self._claims.get(f"{sts.metadata.namespace}/{name}")

    async def apply(self, sts: StatefulSet, action: PodAction, reconcile: Reconcile) -> None:
        """Carry out one action. Records an event about the StatefulSet; raises the error of a write."""
        if isinstance(action, CreatePod):
            await self._create(sts, action, reconcile)
            return
        pod = action.pod
        match action.verb:
            case "create claims":
                await self._create_claims(sts, ordinal_of(pod), reconcile)
                with self._failure_event(sts, "Update", pod.metadata.name):
                    await self._update_claim_owners(sts, pod, reconcile)
            case "update":
                await self._update(sts, pod, reconcile)
            case "update claims":
                await self._update_claim_owners(sts, pod, reconcile)
            case "delete":
                await self.delete(sts, pod, reconcile)

    async def delete(self, sts: StatefulSet, pod: Pod, reconcile: Reconcile) -> None:
        """Delete a Pod; one that does not exist any more counts as deleted."""
        with self._failure_event(sts, "Delete", pod.metadata.name), suppress(NotFound):
            await self._pod_control.delete_without_events(pod, reconcile)
        self._success_event(sts, "Delete", pod.metadata.name)

    async def _create(self, sts: StatefulSet, action: CreatePod, reconcile: Reconcile) -> None:
        """Create the claims of a Pod, then the Pod. No event if a Pod of its name exists."""
        name = pod_name(sts, action.ordinal)
        body = stateful_pod(sts, action.revision, action.ordinal)
        with self._failure_event(sts, "Create", name):
            await self._create_claims(sts, action.ordinal, reconcile)
            pod = await self._pod_control.create_without_events(sts, body, reconcile)
        self._consistency.wrote(sts, PODS, pod)
        with self._failure_event(sts, "Update", name):
            await self._update_claim_owners(sts, pod, reconcile)
        self._success_event(sts, "Create", name)

    async def _update(self, sts: StatefulSet, pod: Pod, reconcile: Reconcile) -> None:
        """Restore labels and volumes of a Pod, and create its missing claims.

        The API server rejects changed volumes; its message is in the event.
        """
        ordinal = ordinal_of(pod)
        name = pod_name(sts, ordinal)
        patch: dict[str, JSONValue] = {}
        with self._failure_event(sts, "Update", name):
            if not identity_matches(sts, pod):
                patch["metadata"] = {"labels": identity_labels(sts, ordinal)}
            if not storage_matches(sts, pod):
                volumes = [{**volume, "$retainKeys": list(volume)} for volume in claim_volumes(sts, ordinal)]
                patch["spec"] = {"volumes": volumes}
                await self._create_claims(sts, ordinal, reconcile)
            await self._update_claim_owners(sts, pod, reconcile)
            if patch:
                body = versioned_merge_patch(pod.metadata.resource_version, **patch)
                with reconcile.action_span(f"update pod {name}"):
                    written = await patch_object(self._client, PODS, pod, body, PatchType.STRATEGIC)
                self._consistency.wrote(sts, PODS, written)
        self._success_event(sts, "Update", name)

    async def _create_claims(self, sts: StatefulSet, ordinal: int, reconcile: Reconcile) -> None:
        """Create the missing claims of a Pod. Raises CannotWriteClaims after all were tried."""
        errors: list[str] = []
        for name, body in claims_of(sts, ordinal).items():
            cached = self.cached_claim(sts, name)
            if cached is not None:
                if cached.metadata.deletion_timestamp is not None:
                    errors.append(f"pvc {name} is being deleted")
                continue
            about = f"Claim {name}", f"Pod {pod_name(sts, ordinal)} in StatefulSet {sts.metadata.name}"
            try:
                with reconcile.action_span(f"create persistentvolumeclaim {name}"):
                    claim = await self._client.create(PERSISTENT_VOLUME_CLAIMS, body, sts.metadata.namespace)
            except (ApiError, ServerUnreachable) as error:
                errors.append(f"failed to create PVC {name}: {error}")
                if not isinstance(error, AlreadyExists):
                    message = f"Create {about[0]} for {about[1]} failed error: {error}"
                    self._events.event(sts, "Warning", "FailedCreate", message)
            else:
                self._consistency.wrote(sts, PERSISTENT_VOLUME_CLAIMS, claim)
                self._events.event(sts, "Normal", "SuccessfulCreate", f"Create {about[0]} {about[1]} success")
        if errors:
            raise CannotWriteClaims(aggregated(errors))

    async def _update_claim_owners(self, sts: StatefulSet, pod: Pod, reconcile: Reconcile) -> None:
        """Set the owners of the cached claims of a Pod as the retention policy says."""
        for name in claim_names(sts, ordinal_of(pod)).values():
            claim = self.cached_claim(sts, name)
            if claim is None:
                continue
            if has_other_controller(claim, sts, pod):
                message = (
                    f"PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller,"
                    " the retention policy is ignored for this claim"
                )
                self._events.event(sts, "Warning", "ConflictingController", message)
            if owners_match_policy(claim, sts, pod):
                continue
            metadata = {"ownerReferences": owner_references_by_policy(claim, sts, pod)}
            try:
                with reconcile.action_span(f"update persistentvolumeclaim {name}"):
                    written = await merge_object(self._client, PERSISTENT_VOLUME_CLAIMS, claim, metadata=metadata)
            except Conflict:
                raise
            except (ApiError, ServerUnreachable) as error:
                message = f"could not update claim {name} for delete policy ownerRefs: {error}"
                raise CannotWriteClaims(message) from error
            self._consistency.wrote(sts, PERSISTENT_VOLUME_CLAIMS, written)

    @contextmanager
    def _failure_event(self, sts: StatefulSet, verb: str, name: str) -> Iterator[None]:
        """Record an event if the body fails. No event about an object that exists or has changed meanwhile."""
        try:
            yield
        except (AlreadyExists, Conflict):
            raise
        except (ApiError, ServerUnreachable, ReconcileError) as error:
            message = f"{verb} Pod {name} in StatefulSet {sts.metadata.name} failed error: {error}"
            self._events.event(sts, "Warning", f"Failed{verb}", message)
            raise

    def _success_event(self, sts: StatefulSet, verb: str, name: str) -> None:
        message = f"{verb} Pod {name} in StatefulSet {sts.metadata.name} successful"
        self._events.event(sts, "Normal", f"Successful{verb}", message)


def aggregated(errors: Sequence[str]) -> str:
    """Return several errors as one text, as Go's Aggregate does."""
    return errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
