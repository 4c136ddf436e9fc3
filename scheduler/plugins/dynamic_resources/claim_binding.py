"""Writes of DynamicResources to claims: allocation and reservation in PreBind, the claim for extended resources, and
what undoes them.

Source: plugins/dynamicresources/dynamicresources.go of v1.36.
"""

from __future__ import annotations

import asyncio
import logging
from weakref import WeakValueDictionary

from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.errors import ApiError, Conflict, ServerUnreachable
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import Pod, to_json
from kubeloop.kube.objects.device_types import AllocationResult, ResourceClaim
from kubeloop.kube.objects.pod_claims import (
    FINALIZER,
    ClaimNotCreated,
    consumer_reference,
    group_claim_name,
    is_owned_by,
    is_reserved_for,
)
from kubeloop.kube.objects.resources import PODS, RESOURCE_CLAIMS
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import failed, unresolvable, unschedulable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.config.plugin_args import DynamicResourcesArgs
from kubeloop.scheduler.devices.binding_conditions import (
    DeviceBindingFailed,
    binding_timeout_seconds,
    has_binding_conditions,
    has_binding_timed_out,
    is_ready_for_binding,
)
from kubeloop.scheduler.devices.extended_resources import special_claim_body
from kubeloop.scheduler.metrics import BindingConditionsResult
from kubeloop.scheduler.plugins.dynamic_resources.device_allocation import PodDevices, SpecialClaim

log = logging.getLogger(__name__)

_CONFLICT_TRIES, _CONFLICT_PAUSE_SECONDS = 5, 0.01
_POLL_SECONDS, _MAX_POLL_SECONDS = 0.02, 1.0  # doubled each time; v1.36 polls every 5 seconds
_SHOWN_POLL_SECONDS, _MAX_SHOWN_SECONDS = 0.005, 120.0  # until the informer shows a claim; v1.36 polls every second


class _BindError(Exception):
    """A claim that cannot be allocated to the pod or reserved for it."""


class _BindTimeout(_BindError):
    """Binding conditions that take too long."""


class ClaimBinding:
    def __init__(self, plugin: str, args: DynamicResourcesArgs, handle: Handle) -> None:
        self._plugin = plugin
        self._handle = handle
        self._devices = handle.cluster_devices()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by UID of the claim or pod
        self._binding_timeout_seconds = binding_timeout_seconds(args.binding_timeout)

    async def bind(self, devices: PodDevices, pod: Pod, node: str) -> Status | None:
        """Reserve the claims for the pod or its group, with their allocation, and wait for their binding conditions."""
        try:
            for number in range(len(devices.claims)):
                devices.claims[number] = await self._bind_claim(devices, number, pod)
            if devices.special is not None:
                devices.claims.append(await self._bind_special_claim(devices.special, pod))
            if statuses := devices.node_allocatable.get(node):
                await self._patch_pod(pod, {"nodeAllocatableResourceClaimStatuses": [*map(to_json, statuses)]})
            if self._devices.features.binding_conditions and any(map(has_binding_conditions, devices.claims)):
                await self._wait_for_conditions(devices, pod, node)
        except (ApiError, ServerUnreachable, _BindError, DeviceBindingFailed) as error:
            return failed(self._plugin, error)
        return None

    async def _bind_claim(self, devices: PodDevices, number: int, pod: Pod) -> ResourceClaim:
        """Write allocation and reservation if they are missing. Raises ApiError, ServerUnreachable, _BindError.

        Pods that share a claim write to it one after the other, and each sees what the one before has written.
        """
        claim, claims = devices.claims[number], self._devices.claims
        async with self._lock(claim):
            try:
                newest, allocation = claims.get(claim.key), devices.reserved.get(number)
                if newest is not None and newest.metadata.uid == claim.metadata.uid:
                    claim = newest
                if allocation is not None and _has_devices(claim, allocation):
                    allocation = None  # another pod of the group has written it
                group = devices.pod_group if number in devices.shared else None
                written = await self._write_reservation(claim, allocation, group or pod)
                if written is not newest:
                    claims.assume(written)
                claims.remove_pending(written)
                return written
            finally:
                self._devices.release(claim, pod)

    def _lock(self, obj: Pod | ResourceClaim) -> asyncio.Lock:
        """Return the lock for writes to the status of an object.

        With it, the writes that undo a failed attempt in the background precede those of the pod's next attempt.
        """
        return self._locks.setdefault(obj.metadata.uid, asyncio.Lock())

    async def _bind_special_claim(self, special: SpecialClaim, pod: Pod) -> ResourceClaim:
        """Create the claim for extended resources, allocated and reserved, and name it in the pod's status."""
        try:
            special.created = await self._create(special_claim_body(pod, special.claim), pod)
            try:
                special.created = await self._write_reservation(special.created, special.allocation, pod)
                await self._write_special_claim_status(special, pod)
            except Exception:  # not CancelledError: unreserve deletes the claim then
                await self._wait_until_shown(special.created)
                raise
            await self._wait_until_shown(special.created)
        finally:
            if special.created is not None and special.created.status.allocation is not None:
                self._devices.claims.release_pending(special.claim, pod)
            else:
                self._devices.release(special.claim, pod)
        return special.created

    async def _create(self, body: JSON, pod: Pod) -> ResourceClaim:
        try:
            claim = await self._handle.client.create(RESOURCE_CLAIMS, body, pod.metadata.namespace)
        except (ApiError, ServerUnreachable) as error:
            self._handle.metrics.claim_created(succeeded=False)
            raise _BindError(f"create claim for extended resources of pod {pod.key}: {error}") from error
        self._handle.metrics.claim_created(succeeded=True)
        return claim

    async def _write_special_claim_status(self, special: SpecialClaim, pod: Pod) -> None:
        assert special.created is not None
        status = {
            "resourceClaimName": special.created.metadata.name,
            "requestMappings": [*map(to_json, special.mappings)],
        }
        await self._patch_pod(pod, {"extendedResourceClaimStatus": status})

    async def _patch_pod(self, pod: Pod, status: JSON) -> None:
        """Write one field of a pod's status. Raises _BindError."""
        body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        try:
            async with self._lock(pod):
                await self._handle.client.patch(
                    PODS, pod.metadata.name, body, PatchType.MERGE, pod.metadata.namespace, subresource="status"
                )
        except (ApiError, ServerUnreachable) as error:
            (field,) = status
            raise _BindError(f"update pod {pod.key} {field[0].upper()}{field[1:]}: {error}") from error

    async def _wait_until_shown(self, claim: ResourceClaim) -> None:
        """Wait until the informer shows the claim, so that its devices are in use without a pending allocation."""
        try:
            async with asyncio.timeout(_MAX_SHOWN_SECONDS):
                while not self._devices.claims.has_shown(claim):
                    await asyncio.sleep(_SHOWN_POLL_SECONDS)
        except TimeoutError:
            log.warning("the informer does not show a claim", extra={"claim": claim.key})
        self._devices.claims.assume(claim)

    async def _write_reservation(
        self, claim: ResourceClaim, allocation: AllocationResult | None, consumer: Pod | PodGroup
    ) -> ResourceClaim:
        """Write allocation and reservation; a conflict is retried with the newest claim."""
        for remaining in reversed(range(_CONFLICT_TRIES)):
            try:
                return await self._try_write(claim, allocation, consumer)
            except Conflict:
                if not remaining:
                    raise
            await asyncio.sleep(_CONFLICT_PAUSE_SECONDS)
            newest = await self._handle.client.get(RESOURCE_CLAIMS, claim.metadata.name, claim.metadata.namespace)
            if newest.metadata.uid != claim.metadata.uid:
                raise _deleted(claim)
            claim = newest
            self._devices.claims.assume(claim)  # its devices are in use, although the cache may not show that yet
        raise AssertionError("unreachable")

    async def _try_write(
        self, claim: ResourceClaim, allocation: AllocationResult | None, consumer: Pod | PodGroup
    ) -> ResourceClaim:
        status: JSON = {}
        if is_reserved_for(claim, consumer) and (allocation is None or _has_devices(claim, allocation)):
            return claim  # also if it was written by a try whose response was lost
        if claim.metadata.deletion_timestamp is not None:
            raise _deleted(claim)
        if allocation is not None:
            if claim.status.allocation is not None:
                raise _BindError(f"claim {claim.key} got allocated elsewhere in the meantime")
            if FINALIZER not in claim.metadata.finalizers:
                finalizers = [*claim.metadata.finalizers, FINALIZER]
                claim = await self._patch(
                    claim, {"metadata": {"finalizers": finalizers}}, "", f"add finalizer to claim {claim.key}"
                )
            status["allocation"] = to_json(allocation)
        status["reservedFor"] = [*map(to_json, (*claim.status.reserved_for, consumer_reference(consumer)))]
        if self._devices.features.binding_conditions:
            current = allocation or claim.status.allocation
            if current is None:
                raise _BindError(f"claim {claim.key} got deallocated elsewhere in the meantime")
            if current.allocation_timestamp is None:
                now = rfc3339(self._handle.clock.now())
                status.setdefault("allocation", {})["allocationTimestamp"] = now
        what = "allocation and reservation" if allocation is not None else "reservation"
        return await self._patch(claim, {"status": status}, "status", f"add {what} to claim {claim.key}")

    async def _patch(self, claim: ResourceClaim, patch: JSON, subresource: str, what: str) -> ResourceClaim:
        """Patch a claim in the state that was read. Raises Conflict, ServerUnreachable, _BindError."""
        metadata = claim.metadata
        pinned = {"resourceVersion": metadata.resource_version, "uid": metadata.uid}
        body = patch | {"metadata": patch.get("metadata", {}) | pinned}
        try:
            return await self._handle.client.patch(
                RESOURCE_CLAIMS, metadata.name, body, PatchType.MERGE, metadata.namespace, subresource=subresource
            )
        except Conflict:
            raise
        except ApiError as error:
            raise _BindError(f"{what}: {error}") from error

    async def _wait_for_conditions(self, devices: PodDevices, pod: Pod, node: str) -> None:
        """Wait until all binding conditions are true. Raises DeviceBindingFailed, _BindError."""
        message = f"waiting for binding conditions for device on node {node}"
        self._handle.recorder.event(pod, "Normal", "BindingConditionsPending", message, action="Scheduling")
        time = asyncio.get_running_loop().time
        start = time()
        result: BindingConditionsResult = "error"
        try:
            await self._poll_conditions(devices)
            result = "success"
        except _BindTimeout:
            result = "timeout"
            raise
        except DeviceBindingFailed:
            result = "failure"
            raise
        finally:
            self._count_conditions(devices, pod.spec.scheduler_name, result, time() - start)

    async def _poll_conditions(self, devices: PodDevices) -> None:
        pause = _POLL_SECONDS
        try:
            async with asyncio.timeout(self._binding_timeout_seconds):
                while not self._refresh_claims(devices):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _MAX_POLL_SECONDS)
        except TimeoutError:
            raise _BindTimeout("device binding timeout: context deadline exceeded") from None

    def _count_conditions(
        self, devices: PodDevices, profile: str, result: BindingConditionsResult, seconds: float
    ) -> None:
        metrics = self._handle.metrics
        for claim in devices.claims:
            if claim.status.allocation is not None:
                for device in claim.status.allocation.devices.results:
                    metrics.binding_conditions_awaited(profile, device.driver, result, seconds)
                    if device.binding_conditions:
                        metrics.binding_conditions_allocated(profile, device.driver, result)

    def _refresh_claims(self, devices: PodDevices) -> bool:
        """Replace the claims by those of the informer, up to the first that is not ready. Returns True if all are.

        Raises DeviceBindingFailed, _BindError.
        """
        for number, old in enumerate(devices.claims):
            claim = self._devices.claims.get(old.key)
            if claim is None:
                raise _BindError(f'could not find ResourceClaim "{old.key}"')
            devices.claims[number] = claim
            if not is_ready_for_binding(claim):
                if has_binding_timed_out(claim, self._handle.clock.now(), self._binding_timeout_seconds):
                    raise _BindTimeout(f"device binding timeout: claim={claim.metadata.name}")
                return False
        return True

    # --- undoing -----------------------------------------------------------------------------------------------------

    def release(self, devices: PodDevices, pod: Pod) -> None:
        """Free the devices that were reserved, unless another pod of the group shares them."""
        special = devices.special
        if special is not None:
            self._devices.claims.release_pending(special.claim, pod)
        for claim in devices.claims:
            self._devices.claims.release_pending(claim, pod)

    def unreserve(self, devices: PodDevices, pod: Pod, node: str) -> None:
        """Free the devices that were reserved, and undo what was written for the pod in the background.

        Pods that wait for devices are queued, also if the allocation was not written, as for the pod of a binding that
        is deleted in between. v1.36 leaves them for the flush of unschedulable pods.
        """
        if devices.special is not None:
            self._devices.release(devices.special.claim, pod)
        for claim in devices.claims:
            self._devices.release(claim, pod)
        if node in devices.node_allocatable:
            self._handle.spawn(self._clear_node_allocatable(pod), f"clear the claim statuses of {pod.key}")
        special = None if devices.special is None else devices.special.created
        if special is not None:
            self._handle.spawn(self._delete_special_claim(special), f"delete {special.key}")
        for claim in devices.claims:
            is_special = special is not None and claim.metadata.uid == special.metadata.uid
            if not is_special and claim.status.allocation is not None and is_reserved_for(claim, pod):
                self._handle.spawn(self._remove_reservation(claim, pod), f"unreserve {claim.key}")

    async def _remove_reservation(self, claim: ResourceClaim, pod: Pod) -> None:
        await self._try_remove_reservation(claim, pod)  # if it fails, the next failed attempt of the pod tries again

    async def _try_remove_reservation(self, claim: ResourceClaim, consumer: Pod | PodGroup) -> bool:
        """Remove a consumer from status.reservedFor, whatever the state of the claim. Returns False if that failed."""
        patch = {
            "metadata": {"uid": claim.metadata.uid},
            "status": {"reservedFor": [{"$patch": "delete", "uid": consumer.metadata.uid}]},
        }
        metadata = claim.metadata
        async with self._lock(claim):
            try:
                written = await self._handle.client.patch(
                    RESOURCE_CLAIMS, metadata.name, patch, PatchType.STRATEGIC, metadata.namespace, subresource="status"
                )
            except (ApiError, ServerUnreachable) as error:
                extra = {"claim": claim.key, "consumer": consumer.key, "error": str(error)}
                log.warning("cannot unreserve a claim", extra=extra)
                return False
            self._devices.claims.assume(written)
        return True

    async def _clear_node_allocatable(self, pod: Pod) -> None:
        try:
            await self._patch_pod(pod, {"nodeAllocatableResourceClaimStatuses": None})
        except _BindError as error:  # the next successful attempt replaces them
            log.warning("cannot clear claim statuses", extra={"pod": pod.key, "error": str(error)})

    async def _delete_special_claim(self, claim: ResourceClaim) -> None:
        try:
            await self._delete(claim)
        except (ApiError, ServerUnreachable, _BindError) as error:  # the pod's next attempt deletes it
            log.warning("cannot delete a claim", extra={"claim": claim.key, "error": str(error)})

    async def _delete(self, claim: ResourceClaim) -> None:
        """Delete a claim at once, without its finalizer. Raises ApiError, ServerUnreachable, _BindError."""
        for remaining in reversed(range(_CONFLICT_TRIES)):
            finalizers = [name for name in claim.metadata.finalizers if name != FINALIZER]
            try:
                await self._patch(claim, {"metadata": {"finalizers": finalizers}}, "", f"update claim {claim.key}")
                break
            except Conflict:
                if not remaining:
                    raise
            await asyncio.sleep(_CONFLICT_PAUSE_SECONDS)
            claim = await self._handle.client.get(RESOURCE_CLAIMS, claim.metadata.name, claim.metadata.namespace)
        metadata = claim.metadata
        await self._handle.client.delete(
            RESOURCE_CLAIMS, metadata.name, metadata.namespace, precondition_uid=metadata.uid
        )

    async def deallocate_one(self, devices: PodDevices, pod: Pod) -> Status:
        """Deallocate a claim that some node cannot use and no other pod uses, to retry with other devices.

        If there is none, delete the claim for extended resources of a former attempt, or remove the reservation of the
        pod's group from a claim, which the next attempt may deallocate.
        """
        numbers = sorted(devices.unavailable)
        self._handle.rng.shuffle(numbers)
        for number in numbers:
            claim = devices.claims[number]
            if any(consumer.uid != pod.metadata.uid for consumer in claim.status.reserved_for):
                continue
            status = {"reservedFor": None, "allocation": None, "devices": None}
            try:
                written = await self._patch(claim, {"status": status}, "status", f"deallocate claim {claim.key}")
            except (ApiError, ServerUnreachable, _BindError) as error:
                return failed(self._plugin, error)
            self._devices.claims.assume(written)
            return unschedulable(self._plugin, "deallocation of ResourceClaim completed")
        if devices.leftover_claim is not None:
            try:
                await self._delete(devices.leftover_claim)
            except (ApiError, ServerUnreachable, _BindError) as error:
                return failed(self._plugin, error)
            return unschedulable(self._plugin, "deletion of ResourceClaim completed")
        if devices.pod_group is not None:
            status_of_group = await self._unreserve_group_claim(devices.pod_group)
            if status_of_group is not None:
                return status_of_group
        return unschedulable(self._plugin, "still not schedulable")

    async def _unreserve_group_claim(self, pod_group: PodGroup) -> Status | None:
        """Remove the group's reservation from one of its claims if no pod of the group has a node."""
        state = self._handle.pod_groups.get(pod_group.key)
        if state is None:
            return failed(self._plugin, f"pod group state not found for pod group {pod_group.key}")
        if state.scheduled_count:
            return None
        for entry in pod_group.spec.resource_claims:
            try:
                name = group_claim_name(pod_group, entry)
            except ClaimNotCreated as error:
                return failed(self._plugin, error)
            if name is None:
                continue
            key = f"{pod_group.metadata.namespace}/{name}"
            claim = self._devices.claims.get(key)
            if claim is None:
                return failed(self._plugin, f'could not find ResourceClaim "{key}"')
            is_usable = entry.resource_claim_name is not None or is_owned_by(claim, pod_group)
            is_reserved = claim.status.allocation is not None and is_reserved_for(claim, pod_group)
            if is_usable and is_reserved and await self._try_remove_reservation(claim, pod_group):
                return unresolvable(self._plugin, "ResourceClaim unreserved for PodGroup")
        return None


def _deleted(claim: ResourceClaim) -> _BindError:
    return _BindError(f"claim {claim.key} got deleted in the meantime")


def _has_devices(claim: ResourceClaim, allocation: AllocationResult) -> bool:
    """Return True if a claim is allocated as in `allocation`."""
    return claim.status.allocation is not None and claim.status.allocation.devices == allocation.devices
