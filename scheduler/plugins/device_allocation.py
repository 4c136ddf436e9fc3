"""Allocation of devices in a scheduling cycle: the part of DynamicResources up to Reserve, for pods with claims.

Source: plugins/dynamicresources/dynamicresources.go of v1.36.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec
import numpy as np

from kubeloop.kube.durations import parse_duration_seconds
from kubeloop.kube.node_selectors import NodeSelectorMatcher
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.device_types import AllocationResult, ResourceClaim
from kubeloop.kube.objects.pod_claims import ClaimNotCreated, claim_name, is_owned_by
from kubeloop.scheduler.api.events import Hint
from kubeloop.scheduler.api.extension_points import RowFilterResult
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import failed, select_rows, unresolvable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Mask, Rows
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import DynamicResourcesArgs
from kubeloop.scheduler.devices.allocation_results import allocation_results
from kubeloop.scheduler.devices.allocator import SearchSettings
from kubeloop.scheduler.devices.binding_conditions import (
    DeviceBindingFailed,
    binding_timeout_seconds,
    has_binding_timed_out,
    is_ready_for_binding,
)
from kubeloop.scheduler.devices.errors import AllocationError
from kubeloop.scheduler.devices.explanation import explain_requests
from kubeloop.scheduler.devices.node_results import NodeResults
from kubeloop.scheduler.devices.requests import ClaimRequests, claim_requests
from kubeloop.scheduler.plugins.node_selector_masks import node_selector_mask

_MAX_SEARCH_SECONDS = 0.5  # on one node, where the search runs on the event loop; in kube-scheduler, 10 s
_MAX_ALTERNATIVES = 8


class ClaimsNotReady(Exception):
    """Claims of a pod that do not exist or cannot be used: the pod cannot be scheduled now."""


class PodDevices:
    """The claims of one pod in its scheduling cycle.

    claims: in the order of the pod's spec; replaced by newer states as they are written. selectors: by number of an
    allocated claim, the nodes on which it is available. to_allocate: numbers of the claims without an allocation.
    unavailable: numbers of allocated claims that some node cannot use. reserved: allocation by number of the claim, on
    the node reserved_on; the cycle of a pod group reserves, unreserves and reserves again. results: None if there is
    nothing to allocate. search_seconds, search_steps, searched_nodes: duration and size of the searches in this cycle.
    """

    def __init__(self, claims: list[ResourceClaim]) -> None:
        self.claims = claims
        self.selectors: dict[int, NodeSelectorMatcher] = {}
        self.to_allocate = [number for number, claim in enumerate(claims) if claim.status.allocation is None]
        self.unavailable: set[int] = set()
        self.reserved: dict[int, AllocationResult] = {}
        self.reserved_on = ""
        self.requests: list[ClaimRequests] = []
        self.results: NodeResults | None = None
        self.search_seconds = 0.0
        self.search_steps = 0
        self.searched_nodes = 0
        self.has_alternatives = any(
            request.first_available for claim in claims for request in claim.spec.devices.requests
        )


class DeviceAllocation:
    def __init__(self, plugin: str, args: DynamicResourcesArgs, handle: Handle) -> None:
        self._plugin = plugin
        self._handle = handle
        self._devices = handle.cluster_devices()
        self._scores_alternatives = handle.feature_gates.enabled("DRAPrioritizedList")
        filter_timeout = parse_duration_seconds(args.filter_timeout) if args.filter_timeout else 0.0
        self._settings = SearchSettings(
            self._devices.features,
            self._devices.selectors,
            self._devices.usage.pool,
            handle.clock.time_ns,
            min(filter_timeout or _MAX_SEARCH_SECONDS, _MAX_SEARCH_SECONDS),
        )
        self._binding_timeout_seconds = binding_timeout_seconds(args.binding_timeout)
        self._cannot_allocate = unresolvable(plugin, "cannot allocate all claims")
        self._invalid_pools = unresolvable(plugin, "invalid resource pools were encountered")
        self._not_available = unresolvable(plugin, "resourceclaim not available on the node")

    def pre_enqueue(self, pod: Pod) -> Status | None:
        if not self._devices.has_synced:  # the pod is queued when it is
            return unresolvable(self._plugin, "waiting for the caches of resource claims")
        try:
            self._claims_of(pod)
        except ClaimsNotReady as error:
            return unresolvable(self._plugin, str(error))
        return None

    def _claims_of(self, pod: Pod) -> list[ResourceClaim]:
        """Return the claims of a pod. Raises ClaimsNotReady."""
        claims = []
        for entry in pod.spec.resource_claims:
            try:
                name = claim_name(pod, entry)
            except ClaimNotCreated as error:
                raise ClaimsNotReady(str(error)) from None
            if name is None:
                continue
            key = f"{pod.metadata.namespace}/{name}"
            claim = self._devices.claims.get(key)
            if claim is None:
                raise ClaimsNotReady(f'could not find ResourceClaim "{key}"')
            if claim.metadata.deletion_timestamp is not None:
                raise ClaimsNotReady(f'resourceclaim "{name}" is being deleted')
            if entry.resource_claim_name is None and not is_owned_by(claim, pod):
                raise ClaimsNotReady(f"ResourceClaim {key} was not created for Pod {pod.key} (Pod is not owner)")
            claims.append(claim)
        return claims

    # --- filter ----------------------------------------------------------------------------------------------------

    def pre_filter(self, pod: Pod) -> tuple[PodDevices | None, Status | None]:
        """Return (the pod's claims, None), or (None, why the pod cannot be scheduled, or needs no devices)."""
        try:
            devices = PodDevices(self._claims_of(pod))
        except ClaimsNotReady as error:
            return None, unresolvable(self._plugin, str(error))
        if not devices.claims:
            return None, None
        for number, claim in enumerate(devices.claims):
            if claim.status.allocation is not None:
                if claim.status.allocation.node_selector is not None:
                    devices.selectors[number] = NodeSelectorMatcher(claim.status.allocation.node_selector)
                    if devices.selectors[number].errors:
                        return None, failed(self._plugin, ", ".join(devices.selectors[number].errors))
                continue
            if claim.metadata.uid in self._devices.claims.pending:
                message = f"resource claim {claim.key} is in the process of being allocated"
                return None, unresolvable(self._plugin, message)
            if (status := self._check_classes(claim)) is not None:
                return None, status
        return devices, None

    def _check_classes(self, claim: ResourceClaim) -> Status | None:
        for request in claim.spec.devices.requests:
            names: Sequence[tuple[str, str]]
            if request.exactly is not None:
                names = [(request.name, request.exactly.device_class_name)]
            elif not request.first_available:
                where = f"resource claim {claim.key}, request {request.name}"
                return unresolvable(self._plugin, f"{where}: unknown request type")
            elif not self._devices.features.prioritized_list:
                where = f"resource claim {claim.key}, request {request.name}"
                disabled = "has subrequests, but the DRAPrioritizedList feature is disabled"
                return unresolvable(self._plugin, f"{where}: {disabled}")
            else:
                names = [(f"{request.name}/{sub.name}", sub.device_class_name) for sub in request.first_available]
            for name, device_class in names:
                if not device_class:
                    return failed(self._plugin, f"request {name}: unsupported request type")
                if self._devices.device_class(device_class) is None:
                    return unresolvable(self._plugin, f"request {name}: device class {device_class} does not exist")
        return None

    def filter_rows(self, devices: PodDevices, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        """Raises AllocationError and AllocationTimeout."""
        feasible = self._feasible(devices, snapshot, rows) if devices.to_allocate else np.ones(len(rows), np.bool_)
        available = np.ones(len(rows), np.bool_)
        for number, claim in enumerate(devices.claims):
            if claim.status.allocation is None:
                continue
            is_usable = np.full(len(rows), self._is_ready_or_may_become(claim))
            matcher = devices.selectors.get(number)
            if matcher is not None:
                is_usable &= select_rows(node_selector_mask(snapshot, matcher), rows, snapshot)
            if (feasible & ~is_usable).any():
                devices.unavailable.add(number)
            available &= is_usable

        def explain(index: int) -> Status:
            if feasible[index]:
                return self._not_available
            assert devices.results is not None
            has_invalid_pools = devices.results.has_invalid_pools(int(rows[index]))
            return self._invalid_pools if has_invalid_pools else self._cannot_allocate

        return RowFilterResult(feasible & available, explain)

    def _feasible(self, devices: PodDevices, snapshot: Snapshot, rows: Rows) -> Mask:
        """Return the nodes on which the claims can be allocated: bool [K]. Raises like filter_rows."""
        results = self._results(devices)
        now_ns, steps, searched = self._handle.clock.time_ns, results.steps, results.searched
        start_ns = now_ns()
        try:
            return results.feasible(snapshot, rows, self._settings)
        finally:
            devices.search_seconds += (now_ns() - start_ns) / 1e9
            devices.search_steps += results.steps - steps
            devices.searched_nodes += results.searched - searched

    def _results(self, devices: PodDevices) -> NodeResults:
        """Return the search results that pods with the same requests share. Raises AllocationError."""
        if devices.results is None:
            cluster = self._devices
            devices.requests = [
                claim_requests(devices.claims[number], cluster.device_class, cluster.features, cluster.selector_lists)
                for number in devices.to_allocate
            ]
            specs = tuple(msgspec.json.encode(entry.claim.spec) for entry in devices.requests)
            classes = tuple(
                (request.device_class.metadata.uid, request.device_class.metadata.resource_version)
                for entry in devices.requests
                for alternatives in entry.requests
                for request in alternatives
            )
            devices.results = cluster.kept_results.get((specs, classes))
            if devices.results is None:
                devices.results = NodeResults(devices.requests, cluster.pools, cluster.usage)
                cluster.kept_results.put((specs, classes), devices.results)
        return devices.results

    def _is_ready_or_may_become(self, claim: ResourceClaim) -> bool:
        """Return False if the devices of a claim failed to be attached, or take too long."""
        if not self._devices.features.binding_conditions:
            return True
        try:
            ready = is_ready_for_binding(claim)
        except DeviceBindingFailed:
            return False
        return ready or not has_binding_timed_out(claim, self._handle.clock.now(), self._binding_timeout_seconds)

    def explain(self, devices: PodDevices, snapshot: Snapshot) -> Sequence[str]:
        """Return why no node has the devices: claims that are allocated elsewhere, and what rejects devices."""
        nodes = {info.name: info.node.metadata.labels for info in snapshot.node_infos if info.node is not None}
        lines = [
            f"{devices.claims[number].key}: its devices are allocated, and not available on all nodes"
            for number in sorted(devices.unavailable)
        ]
        if devices.requests:
            lines += explain_requests(devices.requests, self._devices.pools, nodes, self._settings)
        return lines

    # --- score, reserve --------------------------------------------------------------------------------------------

    def score(self, devices: PodDevices, node: str) -> int:
        """Return the sum over all requests with alternatives: 8 for the first one, 7 for the second, ..."""
        if not self._scores_alternatives or not devices.has_alternatives:
            return 0
        total = 0
        searched = devices.results.allocations[node].devices if devices.results is not None else ()
        names = iter([{allocated.request.full_name for allocated in claim_devices} for claim_devices in searched])
        for claim in devices.claims:
            allocation = claim.status.allocation
            if allocation is not None:
                allocated_names = {result.request for result in allocation.devices.results}
            else:
                allocated_names = next(names)
            for request in claim.spec.devices.requests:
                for index, alternative in enumerate(request.first_available):
                    if f"{request.name}/{alternative.name}" in allocated_names:
                        total += _MAX_ALTERNATIVES - index
        return total

    def reserve(self, devices: PodDevices, node: str) -> Status | None:
        """Mark the chosen devices as allocated, so that no other pod gets them."""
        if not devices.to_allocate:
            return None
        if devices.reserved_on == node:  # other pods of the group may have replaced the shared results since
            for number, result in devices.reserved.items():
                self._devices.claims.add_pending(devices.claims[number].metadata.uid, result)
            return None
        allocation = devices.results.allocations.get(node) if devices.results is not None else None
        if allocation is None or devices.results is None:
            return failed(self._plugin, "claim allocation not found for node")
        try:
            results = allocation_results(
                devices.requests, allocation, node, self._devices.features, lambda: str(uuid.uuid4())
            )
        except AllocationError as error:
            return failed(self._plugin, error)
        for number, result in zip(devices.to_allocate, results, strict=True):
            devices.reserved[number] = result
            self._devices.claims.add_pending(devices.claims[number].metadata.uid, result)
        devices.reserved_on = node
        return None

    # --- hints -----------------------------------------------------------------------------------------------------

    def after_claim_change(self, pod: Pod, old: ResourceClaim | None, new: ResourceClaim) -> Hint:
        try:
            claims = self._claims_of(pod)
        except ClaimsNotReady:
            return Hint.SKIP
        if old is not None and old.status.allocation is not None and new.status.allocation is None:
            return Hint.QUEUE  # devices became free
        if all(claim.metadata.uid != new.metadata.uid for claim in claims):
            return Hint.SKIP
        return Hint.SKIP if old is not None and old.status == new.status else Hint.QUEUE
