"""Resource claim controller: the events that enqueue pods and claims, and their reconciles.

    pod:KEY       creates the claims of the Pod's templates, records their names in its status, and reserves allocated
                  claims for a Pod that was bound without the scheduler
    podgroup:KEY  creates the claims that a PodGroup shares with its Pods, and records their names in its status
    claim:KEY     removes reservations that have ended, deallocates the claim, and deletes that of a finished Pod

Source: v1.36 pkg/controller/resourceclaim/controller.go.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kubeloop.controllers.resourceclaim.claim_release import (
    consumer_resource,
    consumer_state,
    is_unused,
    plan_release,
)
from kubeloop.controllers.resourceclaim.group_events import GroupEvents, check_group_is_cached
from kubeloop.controllers.resourceclaim.metrics import ResourceClaimMetrics
from kubeloop.controllers.resourceclaim.pod_claim_plan import (
    NO_GROUP,
    ClaimEntry,
    ClaimPlan,
    FindClaim,
    Membership,
    claim_from_template,
    claim_keys,
    claims_to_reserve,
    devices_of,
    group_needs_work,
    is_done,
    needs_work,
    plan_group_claims,
    plan_pod_claims,
    recorded_name,
    template_keys,
    used_claims,
    uses_prioritized_list,
)
from kubeloop.controllers.runtime.controller import EventDrivenController, ReconcileError
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.writes.object_patch import merge_object, patch_status
from kubeloop.informers.metadata_accessor import is_older
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import Object, Pod, to_json
from kubeloop.kube.objects.device_types import ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate
from kubeloop.kube.objects.pod_claims import FINALIZER, ClaimNotCreated, is_owned_by
from kubeloop.kube.objects.resources import POD_GROUPS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Resource
from kubeloop.kube.objects.workload_types import PodGroup

_USED_CLAIM_INDEX = "resource-claim"
_TEMPLATE_INDEX = "resource-claim-template"
_APPLY = {"fieldManager": "ResourceClaimController", "force": "true"}
_MAX_DELETED = 500


class ResourceClaimController(EventDrivenController):
    """Reconciles Pods with claims, and ResourceClaims; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "resourceclaim", "resource_claim")
        self._prioritized_list = context.feature_gates.enabled("DRAPrioritizedList")
        self._metrics = ResourceClaimMetrics(context.metrics)
        pods, claims = context.informers.informer(PODS), context.informers.informer(RESOURCE_CLAIMS)
        templates = context.informers.informer(RESOURCE_CLAIM_TEMPLATES)
        self._pods, self._claims, self._templates = pods.store, claims.store, templates.store
        self._groups: GroupEvents | None = None
        if context.feature_gates.enabled("DRAWorkloadResourceClaims"):
            self._groups = GroupEvents(context, add=self.queue.add, on_pod=self.on_pod, on_deleted=self._note_deletion)
        self._pods.add_index(_USED_CLAIM_INDEX, claim_keys)
        self._pods.add_index(_TEMPLATE_INDEX, template_keys)
        self._claims.add_index("owner")
        self._claim_informer = claims
        self._created: dict[str, dict[str, ResourceClaim]] = {}  # UID of an owner -> claims that the cache may not show
        self._deleted: dict[str, None] = {}  # UIDs of the last deleted pods and pod groups with claims
        self._registrations = (
            pods.on_latest(self.on_pod, deleted=self.on_pod_delete),
            claims.on_changes(self.on_claim),
            templates.on_latest(self.on_template),
            *(() if self._groups is None else (self._groups.registration,)),
        )

    # --- event handlers --------------------------------------------------------------------------------------------

    def on_pod(self, pod: Pod) -> None:
        if not _has_claims(pod):
            return
        if is_done(pod):
            self._enqueue_claims_of(pod)
        if needs_work(pod, self._finder(pod), self._membership_of(pod)):
            self.queue.add(f"pod:{pod.key}")

    def on_pod_delete(self, pod: Pod) -> None:
        if not _has_claims(pod):
            return
        self._note_deletion(pod.metadata.uid)
        self._enqueue_claims_of(pod)

    def _note_deletion(self, uid: str) -> None:
        self._created.pop(uid, None)
        self._deleted[uid] = None
        if len(self._deleted) > _MAX_DELETED:
            del self._deleted[next(iter(self._deleted))]

    def on_claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        self._metrics.changed(old, new)
        claim = new if new is not None else old
        assert claim is not None
        if new is not None:
            self.queue.add(f"claim:{new.key}")
        for pod in self._pods.by_index(_USED_CLAIM_INDEX, claim.key):
            self.on_pod(pod)
        if self._groups is not None:
            self._groups.on_claim(claim.key)

    def on_template(self, template: ResourceClaimTemplate) -> None:
        for pod in self._pods.by_index(_TEMPLATE_INDEX, template.key):
            self.on_pod(pod)
        if self._groups is not None:
            self._groups.on_template(template.key)

    def _enqueue_claims_of(self, pod: Pod) -> None:
        """Enqueue the claims that the Pod uses, and those created for it of which a lost response left several."""
        owned = [claim.metadata.name for claim in self._claims.by_index("owner", pod.metadata.uid)]
        for name in (*used_claims(pod), *owned):
            self.queue.add(f"claim:{pod.metadata.namespace}/{name}")

    # --- reconciles ------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        """Reconcile "pod:KEY", "podgroup:KEY" or "claim:KEY". An exception means: retry with backoff."""
        kind, _, object_key = key.partition(":")
        match kind:
            case "pod":
                await self._reconcile_pod(object_key)
            case "podgroup":
                await self._reconcile_group(object_key)
            case _:
                await self._reconcile_claim(object_key)
        return None

    async def _reconcile_pod(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or not needs_work(pod, find := self._finder(pod), membership := self._membership_of(pod)):
            return
        check_group_is_cached(pod, membership)
        plan = plan_pod_claims(pod, find, self._claims_of(pod.metadata.uid), membership)
        await self._carry_out(PODS, pod, plan)
        for claim, consumer in claims_to_reserve(pod, find, membership):
            await self._reserve(claim, consumer)

    async def _reconcile_group(self, key: str) -> None:
        assert self._groups is not None
        group = self._groups.groups.get(key)
        if group is None or not group_needs_work(group, find := self._groups.finder(group)):
            return
        await self._carry_out(POD_GROUPS, group, plan_group_claims(group, find, self._claims_of(group.metadata.uid)))

    async def _carry_out(self, resource: Resource[Any], owner: Pod | PodGroup, plan: ClaimPlan) -> None:
        """Create the missing claims of a Pod or PodGroup, and record the names of all in its status."""
        names = dict(plan.names)
        for entry in plan.missing:
            try:
                claim = await self._recorded_claim(owner, entry) or await self._create_claim(resource, owner, entry)
            except (ApiError, ServerUnreachable, ReconcileError) as error:
                message = f"{resource.kind}ResourceClaim {entry.name}: {error}"
                self._events.event(owner, "Warning", "FailedResourceClaimCreation", message)
                raise
            names[entry.name] = claim.metadata.name
        if not plan.is_recorded:
            await self._record_names(resource, owner, names)

    async def _recorded_claim(self, owner: Pod | PodGroup, entry: ClaimEntry) -> ResourceClaim | None:
        """Return the claim that the owner's status names, although the cache does not show it.

        After a restart, the cache may be older than the status. v1.36 then creates a second claim, which stays
        unreserved if the Pod is bound.
        """
        try:
            name = recorded_name(owner, entry)
        except ClaimNotCreated:
            return None
        if name is None:
            return None
        try:
            claim = await self._client.get(RESOURCE_CLAIMS, name, owner.metadata.namespace)
        except NotFound:
            return None
        return claim if is_owned_by(claim, owner) else None

    async def _create_claim(self, resource: Resource[Any], owner: Object, entry: ClaimEntry) -> ResourceClaim:
        namespace, name = owner.metadata.namespace, entry.resource_claim_template_name
        template = self._templates.get(f"{namespace}/{name}")
        if template is None:
            raise ReconcileError(
                f'resource claim template "{name}": resourceclaimtemplate.resource.k8s.io "{name}" not found'
            )
        devices = devices_of(template)
        if uses_prioritized_list(devices) and not self._prioritized_list:
            raise ReconcileError("template includes a prioritized list of subrequests, but the feature is disabled")
        body = claim_from_template(resource, owner, entry, template)
        try:
            claim = await self._client.create(RESOURCE_CLAIMS, body, namespace)
        except (ApiError, ServerUnreachable) as error:
            self._metrics.created(devices, succeeded=False)
            raise ReconcileError(f"create ResourceClaim : {error}") from error
        self._metrics.created(devices, succeeded=True)
        if owner.metadata.uid not in self._deleted:
            self._created.setdefault(owner.metadata.uid, {})[claim.metadata.name] = claim
        return claim

    async def _record_names(self, resource: Resource[Any], owner: Object, names: dict[str, str]) -> None:
        """Apply the names of all created claims to the owner's status: an apply removes those it leaves out.

        The resourceVersion, which kube-controller-manager does not send, protects names that the cache does not show,
        and a new owner of the same name. Of two claims after a lost response, the owner thus keeps the one it uses.
        """
        namespace, name = owner.metadata.namespace, owner.metadata.name
        statuses = [{"name": entry, "resourceClaimName": claim} for entry, claim in names.items()]
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": namespace, "resourceVersion": owner.metadata.resource_version},
            "status": {"resourceClaimStatuses": statuses},
        }
        await self._client.patch(resource, name, body, PatchType.APPLY, namespace, subresource="status", query=_APPLY)

    async def _reserve(self, claim: ResourceClaim, consumer: ResourceClaimConsumerReference) -> None:
        reserved = [to_json(entry) for entry in (*claim.status.reserved_for, consumer)]
        await patch_status(self._client, RESOURCE_CLAIMS, claim, {"reservedFor": reserved})

    async def _reconcile_claim(self, key: str) -> None:
        claim = self._claims.get(key)
        if claim is None:
            return
        pods, groups = self._pods, None if self._groups is None else self._groups.groups

        def find(name: str) -> Pod | None:
            return pods.get(f"{claim.metadata.namespace}/{name}")

        def find_group(name: str) -> PodGroup | None:
            return None if groups is None else groups.get(f"{claim.metadata.namespace}/{name}")

        remaining = []
        for consumer in claim.status.reserved_for:
            state = consumer_state(consumer, find, self._deleted.__contains__, None if groups is None else find_group)
            if state == "active" or (state == "unknown" and await self._exists(consumer, claim.metadata.namespace)):
                remaining.append(consumer)
        release = plan_release(claim, remaining)
        with suppress(NotFound):  # deleted in the meantime
            written = claim
            if release.status:
                written = await patch_status(self._client, RESOURCE_CLAIMS, claim, release.status)
            if release.removes_finalizer:
                await self._remove_finalizer(written)
            if not remaining and is_unused(claim, find):
                metadata = claim.metadata
                await self._client.delete(
                    RESOURCE_CLAIMS, metadata.name, metadata.namespace, precondition_uid=metadata.uid
                )

    async def _exists(self, consumer: ResourceClaimConsumerReference, namespace: str) -> bool:
        """Read a consumer that the cache does not show: it may be newer than the cache."""
        resource = consumer_resource(consumer, groups=self._groups is not None)
        assert resource is not None
        try:
            stored = await self._client.get(resource, consumer.name, namespace)
        except NotFound:
            return False
        uid: str = stored.metadata.uid
        return uid == consumer.uid

    async def _remove_finalizer(self, claim: ResourceClaim) -> None:
        finalizers = [name for name in claim.metadata.finalizers if name != FINALIZER]
        await merge_object(self._client, RESOURCE_CLAIMS, claim, metadata={"finalizers": finalizers or None})

    # --- caches ----------------------------------------------------------------------------------------------------

    def _finder(self, pod: Pod) -> FindClaim:
        claims, namespace = self._claims, pod.metadata.namespace
        return lambda name: claims.get(f"{namespace}/{name}")

    def _membership_of(self, pod: Pod) -> Membership:
        return NO_GROUP if self._groups is None else self._groups.membership_of(pod, self._claims_of)

    def _claims_of(self, uid: str) -> list[ResourceClaim]:
        """Return the claims that were created for the owner, with those that the cache does not show yet."""
        created = self._created.pop(uid, {})
        version = self._claim_informer.last_resource_version
        newer = {name: claim for name, claim in created.items() if is_older(version, claim.metadata.resource_version)}
        if newer:
            self._created[uid] = newer
        return [*self._claims.by_index("owner", uid), *newer.values()]


def _has_claims(pod: Pod) -> bool:
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None
