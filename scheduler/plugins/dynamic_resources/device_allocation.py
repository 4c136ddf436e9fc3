"""Allocation of devices in a scheduling cycle: the part of DynamicResources up to Reserve, for pods that need devices.

Source: plugins/dynamicresources/dynamicresources.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from kubeloop.kube.objects.api_types import Pod, PodResourceClaim
from kubeloop.kube.objects.device_types import AllocationResult, ResourceClaim
from kubeloop.kube.objects.pod_claims import (
    ClaimNotCreated,
    claim_name,
    is_deallocation,
    is_owned_by,
    is_owned_by_group,
    is_shared,
)
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.kube.selectors.node_selectors import NodeSelectorMatcher
from kubeloop.kube.uids import new_uid
from kubeloop.kube.values.durations import parse_duration_seconds
from kubeloop.scheduler.api.events import Hint
from kubeloop.scheduler.api.extension_points import FilterPaused, RowFilterResult
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import failed, select_rows, unresolvable, unschedulable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Mask, Rows
from kubeloop.scheduler.cache.node_info import NodeInfo, may_be_devices
from kubeloop.scheduler.cache.pod_groups import pod_group_key
from kubeloop.scheduler.cache.pod_requests import pod_requests, request_rules
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
from kubeloop.scheduler.devices.extended_resources import RequestMapping, device_requests, special_claim
from kubeloop.scheduler.devices.node_allocatable import NodeAllocatableRejection, check_sharing, claim_statuses
from kubeloop.scheduler.devices.node_allocatable import Statuses as NodeAllocatableStatuses
from kubeloop.scheduler.devices.node_results import NodeResults, SearchesLeft
from kubeloop.scheduler.devices.requests import ClaimRequests, claim_requests
from kubeloop.scheduler.plugins.node_selector_masks import node_selector_mask

_MAX_ALTERNATIVES = 8


class ClaimsNotReady(Exception):
    """Claims of a pod that do not exist or cannot be used: the pod cannot be scheduled now."""


@dataclass(slots=True)
class DeviceSearch:
    """The search for a pod's devices on all nodes whose device plugins provide the same extended resources.

    requests: of the claims to allocate, with the special claim at the end if there is one. mappings: requests of the
    special claim by container.
    """

    requests: list[ClaimRequests]
    results: NodeResults
    special: ResourceClaim | None
    mappings: tuple[RequestMapping, ...]


class PodDevices:
    """The claims of one pod in its scheduling cycle.

    claims: in the order of the pod's spec; replaced by newer states as they are written. shared: numbers of the
    claims that are reserved for pod_group instead of the pod. selectors: by number of an allocated claim, the nodes
    on which it is available. to_allocate: numbers of the claims without an allocation. unavailable: numbers of
    allocated claims that some node cannot use. reserved: allocation by number of the claim: those that other
    members of the pod's group have reserved and, once the pod is reserved, its own on the node reserved_on; the
    cycle of a group reserves, unreserves and reserves again. classes: name of the class by extended resource, of
    the requested resources that devices provide. without_class: the other extended resources that are requested.
    searches: by the resources of `classes` that the nodes lack. special: the claim for extended resources that
    Reserve has chosen, then as it was created; leftover_claim: that of a former attempt. node_allocatable: by node,
    what the claims take of its resources. search_seconds, search_steps, searched_nodes: duration and size of the
    searches in this cycle.
    """

    def __init__(self, pod: Pod, claims: list[ResourceClaim]) -> None:
        self.pod = pod
        self.claims = claims
        self.pod_group: PodGroup | None = None
        self.shared: set[int] = set()
        self.selectors: dict[int, NodeSelectorMatcher] = {}
        self.to_allocate: list[int] = []
        self.unavailable: set[int] = set()
        self.reserved: dict[int, AllocationResult] = {}
        self.reserved_on = ""
        self.classes: dict[str, str] = {}
        self.without_class: list[str] = []
        self.searches: dict[tuple[str, ...], DeviceSearch] = {}
        self.special: SpecialClaim | None = None
        self.leftover_claim: ResourceClaim | None = None
        self.node_allocatable: dict[str, NodeAllocatableStatuses] = {}
        self.search_seconds = 0.0
        self.search_steps = 0
        self.searched_nodes = 0
        self.has_alternatives = any(
            request.first_available for claim in claims for request in claim.spec.devices.requests
        )

    def allocated(self) -> Iterator[tuple[int, ResourceClaim, AllocationResult]]:
        """Yield (number, claim, allocation) of the claims that are not to be allocated."""
        for number, claim in enumerate(self.claims):
            if number not in self.to_allocate:
                yield number, claim, claim.status.allocation or self.reserved[number]

    def missing_resources(self, node: NodeInfo) -> tuple[str, ...]:
        """Return the extended resources for which the pod needs devices on a node."""
        return tuple([name for name in self.classes if not node.allocatable.get(name)])


@dataclass(slots=True)
class SpecialClaim:
    """The claim for a pod's extended resources on the chosen node. created: None before PreBind."""

    claim: ResourceClaim
    allocation: AllocationResult
    mappings: tuple[RequestMapping, ...]
    created: ResourceClaim | None = None


class DeviceAllocation:
    def __init__(self, plugin: str, args: DynamicResourcesArgs, handle: Handle) -> None:
        self._plugin = plugin
        self._handle = handle
        self._devices = handle.cluster_devices()
        self._extended_resources = handle.feature_gates.enabled("DRAExtendedResource")
        self._group_claims = handle.feature_gates.enabled("DRAWorkloadResourceClaims")
        self._pod_groups = handle.listers.pod_groups
        filter_timeout = parse_duration_seconds(args.filter_timeout) if args.filter_timeout else 0.0
        self._settings = SearchSettings(
            self._devices.features,
            self._devices.selectors,
            self._devices.usage.pool,
            handle.clock.time_ns,
            filter_timeout or None,
        )
        self._rules = request_rules(handle.feature_gates)
        self._binding_timeout_seconds = binding_timeout_seconds(args.binding_timeout)
        self._cannot_allocate = unresolvable(plugin, "cannot allocate all claims")
        self._cannot_fit = unresolvable(plugin, "cannot fit resource")
        self._invalid_pools = unresolvable(plugin, "invalid resource pools were encountered")
        self._not_available = unresolvable(plugin, "resourceclaim not available on the node")
        self._leftover = unresolvable(plugin, "cannot schedule extended resource claim")

    def pre_enqueue(self, pod: Pod) -> Status | None:
        must_wait = bool(pod.spec.resource_claims) or not self._devices.is_overdue
        if must_wait and not self._devices.has_synced:  # the pod is queued when it is
            return unresolvable(self._plugin, "waiting for the caches of resource claims")
        try:
            self._claims_of(pod)
        except ClaimsNotReady as error:
            return unresolvable(self._plugin, str(error))
        return None

    def _claims_of(self, pod: Pod) -> list[tuple[PodResourceClaim, ResourceClaim]]:
        """Return the claims of a pod, with their entries in its spec. Raises ClaimsNotReady."""
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
                group = pod.spec.scheduling_group if self._group_claims else None
                if group is None or not is_owned_by_group(claim, pod):
                    reason = (
                        f"neither Pod nor PodGroup {group.pod_group_name} is the owner" if group else "Pod is not owner"
                    )
                    raise ClaimsNotReady(f"ResourceClaim {key} was not created for Pod {pod.key} ({reason})")
            claims.append((entry, claim))
        return claims

    # --- filter ----------------------------------------------------------------------------------------------------

    def pre_filter(self, pod: Pod, reserved_in_cycle: set[str] | None) -> tuple[PodDevices | None, Status | None]:
        """Return (the pod's claims, None), or (None, why the pod cannot be scheduled, or needs no devices).

        reserved_in_cycle: UIDs of claims whose pending allocation the pod shares, see reserve().
        """
        try:
            devices = self._pod_devices(pod)
        except ClaimsNotReady as error:
            return None, unresolvable(self._plugin, str(error))
        if self._extended_resources:
            self._add_extended_resources(devices)
        if not devices.claims and not devices.classes:
            return None, None
        for number, claim in enumerate(devices.claims):
            allocation, uid = claim.status.allocation, claim.metadata.uid
            if allocation is None:
                pending = self._devices.claims.pending_allocation(uid)
                if pending is None:
                    devices.to_allocate.append(number)
                    if (status := self._check_classes(claim)) is not None:
                        return None, status
                    continue
                if reserved_in_cycle is None or uid not in reserved_in_cycle:
                    message = f"resource claim {claim.key} is in the process of being allocated"
                    return None, unresolvable(self._plugin, message)
                allocation = devices.reserved[number] = pending
            if allocation.node_selector is not None:
                devices.selectors[number] = NodeSelectorMatcher(allocation.node_selector)
                if devices.selectors[number].errors:
                    return None, failed(self._plugin, ", ".join(devices.selectors[number].errors))
        return devices, None

    def _pod_devices(self, pod: Pod) -> PodDevices:
        """Return the claims of a pod, and which of them its group shares. Raises ClaimsNotReady."""
        entries = self._claims_of(pod)
        devices = PodDevices(pod, [claim for _, claim in entries])
        key = pod_group_key(pod) if self._group_claims and entries else ""
        if key:
            pod_group = devices.pod_group = self._pod_groups.get(key)
            if pod_group is None:
                raise ClaimsNotReady(f'podgroup.scheduling.k8s.io "{key.partition("/")[2]}" not found')
            devices.shared = {number for number, (entry, _) in enumerate(entries) if is_shared(entry, pod_group)}
        return devices

    def _add_extended_resources(self, devices: PodDevices) -> None:
        requested = sorted(
            name for name, amount in pod_requests(devices.pod).items() if amount and may_be_devices(name)
        )
        for name in requested:
            device_class = self._devices.extended_resources.get(name)
            if device_class is None:
                devices.without_class.append(name)
            else:
                devices.classes[name] = device_class.metadata.name
        if devices.classes:
            devices.leftover_claim = self._devices.claims.special_claim_of(devices.pod)

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

    def filter_rows(
        self, devices: PodDevices, snapshot: Snapshot, rows: Rows, *, can_pause: bool = False
    ) -> RowFilterResult:
        """Raises AllocationError, AllocationTimeout, and FilterPaused if can_pause."""
        if devices.leftover_claim is not None:
            return RowFilterResult(np.zeros(len(rows), np.bool_), lambda index: self._leftover)
        fitting = np.ones(len(rows), np.bool_)
        if devices.without_class and devices.classes:
            infos = [snapshot.node_infos[row] for row in rows.tolist()]
            fitting &= [all(name in info.allocatable for name in devices.without_class) for info in infos]
        feasible = fitting.copy()
        rejected = self._shared_claims(devices, snapshot, rows) if self._devices.features.node_allocatable else {}
        for missing, indices in self._by_missing_resources(devices, snapshot, rows):
            if devices.to_allocate or missing:
                feasible[indices] &= self._feasible(devices, missing, snapshot, rows[indices], can_pause)
        if self._devices.features.node_allocatable:
            for index in np.flatnonzero(feasible).tolist():
                if index not in rejected:
                    status = self._take_of_node(devices, snapshot.node_infos[rows[index]])
                    rejected |= {} if status is None else {index: status}
            feasible[[*rejected]] = False
        available = np.ones(len(rows), np.bool_)
        for number, claim, _ in devices.allocated():
            is_usable = np.full(len(rows), self._is_ready_or_may_become(claim))
            matcher = devices.selectors.get(number)
            if matcher is not None:
                is_usable &= select_rows(node_selector_mask(snapshot, matcher), rows, snapshot)
            if claim.status.allocation is not None and (feasible & ~is_usable).any():
                devices.unavailable.add(number)
            available &= is_usable

        def explain(index: int) -> Status:
            if feasible[index]:
                return self._not_available
            if index in rejected:
                return rejected[index]
            if not fitting[index]:
                return self._cannot_fit
            row = int(rows[index])
            search = devices.searches[devices.missing_resources(snapshot.node_infos[row])]
            return self._invalid_pools if search.results.has_invalid_pools(row) else self._cannot_allocate

        return RowFilterResult(feasible & available, explain)

    def _shared_claims(self, devices: PodDevices, snapshot: Snapshot, rows: Rows) -> dict[int, Status]:
        """Return why the nodes are rejected on which another pod takes resources by a claim of the pod."""
        rejected: dict[int, Status] = {}
        for number, claim, _ in devices.allocated():
            matcher = devices.selectors.get(number)
            available = None if matcher is None else node_selector_mask(snapshot, matcher)
            for index, row in enumerate(rows.tolist()):
                if available is None or available[row]:
                    try:
                        check_sharing(devices.pod, claim, snapshot.node_infos[row])
                    except NodeAllocatableRejection as error:
                        rejected.setdefault(index, unresolvable(self._plugin, *error.reasons))
        return rejected

    def _take_of_node(self, devices: PodDevices, node: NodeInfo) -> Status | None:
        """Record what the claims to allocate take of a node's resources; returns why the node does not have them."""
        search = devices.searches.get(devices.missing_resources(node))
        if search is None:
            return None
        allocated = search.results.allocations[node.name].devices
        claims = [entry.claim for entry in search.requests]
        try:
            statuses = claim_statuses(devices.pod, zip(claims, allocated, strict=True), node, self._rules)
        except NodeAllocatableRejection as error:
            reject = unschedulable if error.is_resolvable else unresolvable
            return reject(self._plugin, *error.reasons)
        if statuses:
            devices.node_allocatable[node.name] = statuses
        return None

    def _by_missing_resources(
        self, devices: PodDevices, snapshot: Snapshot, rows: Rows
    ) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Yield (extended resources for which the pod needs devices, indices of the rows for which that is so)."""
        if not devices.classes:
            yield (), slice(None)
            return
        names = [*devices.classes]
        bits = np.zeros(len(rows), np.int64)
        for number, name in enumerate(names):
            resource = snapshot.columns.resource(name)  # may add a row, which replaces the arrays of `columns`
            bits |= (snapshot.columns.allocatable[resource, rows] == 0).astype(np.int64) << number
        for kind in np.unique(bits).tolist():
            missing = tuple([name for number, name in enumerate(names) if kind >> number & 1])
            yield missing, np.flatnonzero(bits == kind)

    def _feasible(
        self, devices: PodDevices, missing: tuple[str, ...], snapshot: Snapshot, rows: Rows, can_pause: bool
    ) -> Mask:
        """Return the nodes on which the claims can be allocated: bool [K]. Raises like filter_rows."""
        search = self._search(devices, missing, snapshot)
        results = search.results
        try:
            with self._measured(devices, results):
                return results.feasible(snapshot, rows, self._settings, in_slices=can_pause)
        except SearchesLeft:
            raise FilterPaused(self._search_others(devices, results, snapshot, rows)) from None

    async def _search_others(self, devices: PodDevices, results: NodeResults, snapshot: Snapshot, rows: Rows) -> None:
        with self._measured(devices, results):
            await results.search_others(snapshot, rows, self._settings)

    @contextmanager
    def _measured(self, devices: PodDevices, results: NodeResults) -> Iterator[None]:
        """Add the duration and size of the searches within to those of the pod."""
        start_ns, steps, searched = self._handle.clock.time_ns(), results.steps, results.searched
        try:
            yield
        finally:
            devices.search_seconds += (self._handle.clock.time_ns() - start_ns) / 1e9
            devices.search_steps += results.steps - steps
            devices.searched_nodes += results.searched - searched

    def _search(self, devices: PodDevices, missing: tuple[str, ...], snapshot: Snapshot) -> DeviceSearch:
        """Return the search for the pod's claims and these extended resources. Raises AllocationError."""
        search = devices.searches.get(missing)
        if search is not None:
            return search
        cluster = self._devices
        special: ResourceClaim | None = None
        mappings: tuple[RequestMapping, ...] = ()
        claims = [devices.claims[number] for number in devices.to_allocate]
        if missing:
            requests, mappings = device_requests(devices.pod, {name: devices.classes[name] for name in missing})
            special = special_claim(devices.pod, new_uid(self._handle.rng), requests)
            claims.append(special)
        entries = [
            claim_requests(claim, cluster.device_class, cluster.features, cluster.selector_lists) for claim in claims
        ]
        search = DeviceSearch(entries, self._results(entries), special, mappings)
        search.results.refresh(snapshot)
        devices.searches[missing] = search
        return search

    def _results(self, requests: list[ClaimRequests]) -> NodeResults:
        """Return the search results that pods with the same requests share."""
        cluster = self._devices
        specs = tuple(msgspec.json.encode(entry.claim.spec) for entry in requests)
        classes = tuple(
            (request.device_class.metadata.uid, request.device_class.metadata.resource_version)
            for entry in requests
            for alternatives in entry.requests
            for request in alternatives
        )
        results = cluster.kept_results.get((specs, classes))
        if results is None:
            results = NodeResults(requests, cluster.pools, cluster.usage)
            cluster.kept_results.put((specs, classes), results)
        return results

    def _search_on(self, devices: PodDevices, node: str) -> DeviceSearch | None:
        """Return the search whose result counts for a node; None if there is none, or nothing to allocate."""
        snapshot = self._handle.snapshot
        return devices.searches.get(devices.missing_resources(snapshot.node_infos[snapshot.row_of[node]]))

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
        if devices.leftover_claim is not None:
            lines.append(f"{devices.leftover_claim.key}: created in a former attempt, and must be deleted first")
        for search in devices.searches.values():
            lines += [
                f"{mapping.resource_name} of container {mapping.container_name}: devices of class "
                f"{devices.classes[mapping.resource_name]}, request {mapping.request_name}"
                for mapping in search.mappings
            ]
            lines += explain_requests(search.requests, self._devices.pools, nodes, self._settings)
        return [*dict.fromkeys(lines)]

    def explain_shared_claims(self, pod: Pod) -> list[str]:
        """Return the claims that the pod's group shares with it, and what is missing of them."""
        pod_group = self._pod_groups.get(pod_group_key(pod)) if self._group_claims else None
        if pod_group is None:
            return []
        lines = []
        for entry in pod.spec.resource_claims:
            if not is_shared(entry, pod_group):
                continue
            shared = f"shared by the pods of PodGroup {pod_group.key}"
            try:
                name = claim_name(pod, entry)
            except ClaimNotCreated:
                template = entry.resource_claim_template_name
                lines.append(f"{entry.name}: {shared}; not created yet from ResourceClaimTemplate {template}")
                continue
            if name is None:
                continue
            key = f"{pod.metadata.namespace}/{name}"
            claim = self._devices.claims.get(key)
            if claim is None:
                shared += "; does not exist"
            elif claim.status.allocation is None and claim.metadata.uid in self._devices.claims.pending:
                shared += "; is being allocated"
            lines.append(f"{key}: {shared}")
        return lines

    # --- score, reserve --------------------------------------------------------------------------------------------

    def score(self, devices: PodDevices, node: str) -> int:
        """Return the sum over all requests with alternatives: 8 for the first one, 7 for the second, ..."""
        total = 0
        search = self._search_on(devices, node)
        searched = search.results.allocations[node].devices if search is not None else ()
        names = [{allocated.request.full_name for allocated in claim_devices} for claim_devices in searched]
        names_of = dict(zip(devices.to_allocate, names, strict=False))  # a special claim is the last one
        for number, _, allocation in devices.allocated():
            names_of[number] = {result.request for result in allocation.devices.results}
        for number, claim in enumerate(devices.claims):
            allocated_names = names_of[number]
            for request in claim.spec.devices.requests:
                for index, alternative in enumerate(request.first_available):
                    if f"{request.name}/{alternative.name}" in allocated_names:
                        total += _MAX_ALTERNATIVES - index
        return total

    def reserve(self, devices: PodDevices, node: str, reserved_in_cycle: set[str] | None) -> Status | None:
        """Mark the chosen devices as allocated, so that no other pod gets them.

        reserved_in_cycle: receives the UIDs of the claims whose pending allocation the next members of the pod's group
        share; None outside of the cycle of a group.
        """
        # Other pods of the group may have replaced the shared results since the group's cycle reserved them.
        status = None if devices.reserved_on == node else self._choose_devices(devices, node)
        if status is not None:
            return status
        claims = self._devices.claims
        for number, result in devices.reserved.items():
            uid = devices.claims[number].metadata.uid
            claims.add_pending(uid, result, devices.pod)
            if reserved_in_cycle is not None:
                reserved_in_cycle.add(uid)
        if devices.special is not None:
            claims.add_pending(devices.special.claim.metadata.uid, devices.special.allocation, devices.pod)
        return None

    def _choose_devices(self, devices: PodDevices, node: str) -> Status | None:
        """Record the devices that the search has chosen on a node."""
        search = self._search_on(devices, node)
        if search is None and not devices.to_allocate:
            return None
        allocation = search.results.allocations.get(node) if search is not None else None
        if search is None or allocation is None:
            return failed(self._plugin, "claim allocation not found for node")
        try:
            results = allocation_results(
                search.requests, allocation, node, self._devices.features, lambda: new_uid(self._handle.rng)
            )
        except AllocationError as error:
            return failed(self._plugin, error)
        for number, result in zip(devices.to_allocate, results, strict=search.special is None):
            devices.reserved[number] = result
        devices.special = None
        if search.special is not None:
            devices.special = SpecialClaim(search.special, results[-1], search.mappings)
        devices.reserved_on = node
        return None

    # --- hints -----------------------------------------------------------------------------------------------------

    def after_claim_change(self, pod: Pod, old: ResourceClaim | None, new: ResourceClaim | None) -> Hint:
        try:
            entries = self._claims_of(pod)
        except ClaimsNotReady:
            return Hint.SKIP
        if new is None:
            return Hint.QUEUE
        if is_deallocation(old, new):
            return Hint.QUEUE  # devices became free
        if all(claim.metadata.uid != new.metadata.uid for _, claim in entries):
            return Hint.SKIP
        return Hint.SKIP if old is not None and old.status == new.status else Hint.QUEUE
