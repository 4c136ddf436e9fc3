"""VolumeBinding: filters nodes by the pod's claims; binds and provisions their volumes before the pod is bound.

Scores nodes only if the feature gate StorageCapacityScoring is on. Source: plugins/volumebinding of v1.36.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import numpy as np

from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.api_types import Pod, to_json
from kubeloop.kube.objects.in_tree_plugins import in_tree_plugin
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kubeloop.kube.objects.storage_types import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import ADD, NODE, UPDATE, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import PreFilterReturn, RowFilterResult
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import (
    explain_as,
    explained_per_node,
    failed,
    on_event,
    row_filter_result,
    select_rows,
    skip,
    unresolvable,
)
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Mask, Rows
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.pod_requests import nano
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import STORAGE_CAPACITY_SHAPE, VolumeBindingArgs
from kubeloop.scheduler.metrics import VolumeStage
from kubeloop.scheduler.plugins.node_selector_masks import node_selector_mask
from kubeloop.scheduler.plugins.volumes.csi_migration import MigrationGroups, TranslationError, migrated_plugins
from kubeloop.scheduler.plugins.volumes.storage_capacity_score import StorageCapacityScorer, class_amounts
from kubeloop.scheduler.plugins.volumes.volume_binder import (
    ERR_REASON_NODE_CONFLICT,
    PodVolumeClaims,
    PodVolumes,
    VolumeBinder,
    VolumeCandidates,
    affinity_matcher,
    matches_node,
    node_affinity_for,
)
from kubeloop.scheduler.plugins.volumes.volume_claims import (
    SELECTED_NODE,
    ClaimError,
    claim_class,
    is_fully_bound,
    uses_claim,
)

log = logging.getLogger(__name__)

_CLAIMS = "VolumeBinding"
_ASSUMED = "VolumeBinding/choice"
_POLL_SECONDS, _MAX_POLL_SECONDS = 0.02, 1.0  # doubled each time; v1.36 polls once a second


class VolumeBinding:
    name = "VolumeBinding"

    def __init__(self, args: VolumeBindingArgs, handle: Handle) -> None:
        self._handle = handle
        self._timeout_seconds = float(args.bind_timeout_seconds)
        self._binder = VolumeBinder(handle.listers)
        self._groups = MigrationGroups(handle.listers)
        self._scorer: StorageCapacityScorer | None = None
        if handle.feature_gates.enabled("StorageCapacityScoring"):
            self._scorer = StorageCapacityScorer(args.shape or STORAGE_CAPACITY_SHAPE)
        self._node_conflict = unresolvable(self.name, ERR_REASON_NODE_CONFLICT)

    # --- filter ----------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterReturn:
        if not pod.pod.spec.volumes:
            return None, skip(self.name)
        try:
            if not self._binder.check_claims(pod.pod):
                return None, skip(self.name)
        except ClaimError as error:
            return None, unresolvable(self.name, str(error))
        try:
            claims = self._binder.pod_claims(pod.pod)
        except ClaimError as error:
            return None, failed(self.name, error)
        if claims.immediate:
            return None, unresolvable(self.name, "pod has unbound immediate PersistentVolumeClaims")
        state.write(_CLAIMS, claims)
        return None, None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        claims: PodVolumeClaims = state.read(_CLAIMS)
        assert node.node is not None
        try:
            pod_volumes = self._binder.find_pod_volumes(claims, node.node)
        except (ClaimError, TranslationError) as error:
            return self._count_failure("predicate", error)
        return unresolvable(self.name, *pod_volumes.conflict_reasons) if pod_volumes.conflict_reasons else None

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        """Filter with one array operation where possible. Raises ClaimError, TranslationError."""
        claims: PodVolumeClaims = state.read(_CLAIMS)
        try:
            passed = self._accessible_rows(claims, snapshot, rows)
        except (ClaimError, TranslationError):
            passed = None  # filter() attributes and counts the error
        if passed is not None:
            if not claims.delayed:
                return RowFilterResult(passed, explain_as(self._node_conflict))
            return explained_per_node(passed, rows, snapshot, self.filter, state, pod)
        statuses = [self.filter(state, pod, snapshot.node_infos[row]) for row in rows.tolist()]
        for status in statuses:
            if status is not None and status.error is not None:
                raise status.error
        return row_filter_result(statuses)

    def _accessible_rows(self, claims: PodVolumeClaims, snapshot: Snapshot, rows: Rows) -> Mask | None:
        """Return the rows with access to volumes for all claims: bool [K]; None if nodes must be checked one by one.

        Raises ClaimError, TranslationError.
        """
        accessible = np.ones(len(rows), np.bool_)
        for claim in claims.bound:
            volume = self._binder.volume(claim.spec.volume_name)
            if volume is None:
                return None
            if in_tree_plugin(volume.spec) is None:
                by_group = [volume.spec.node_affinity]
            else:
                numbers, csi_nodes = self._groups.of(snapshot)
                by_group = [node_affinity_for(volume, csi_node) for csi_node in csi_nodes]
            for number, affinity in enumerate(by_group):
                if affinity is None or affinity.required is None:
                    continue
                matcher = affinity_matcher(affinity)
                if matcher.errors or any(term.fields is not None for term in matcher.terms):
                    return None
                matching = node_selector_mask(snapshot, matcher)
                if len(by_group) > 1:
                    matching = matching | (numbers != number)
                accessible &= select_rows(matching, rows, snapshot)
        node = snapshot.node_infos[rows[0]].node if len(rows) else None
        if node is None or not claims.delayed:
            return accessible
        if self._binder.provisioning_depends_on_node(claims):
            return None
        kinds: dict[VolumeCandidates | None, list[PersistentVolumeClaim]] = {}
        for claim in claims.delayed:
            kinds.setdefault(claims.choice(claim, self._binder).candidates, []).append(claim)
        if len(kinds) > len(set(map(claim_class, claims.delayed))):
            return None  # claims of different kinds may need the same volume
        for candidates, of_kind in kinds.items():
            counts = None if candidates is None else candidates.counts(snapshot)
            if counts is None:
                return None
            if self._binder.provision_conflict(of_kind[0], node):
                accessible &= select_rows(counts, rows, snapshot) >= len(of_kind)
        return accessible

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Status | None:
        claims: PodVolumeClaims | None = state.get(_CLAIMS)
        # without unbound claims the score of every node is 0
        return skip(self.name) if self._scorer is None or claims is None or not claims.delayed else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the score of the capacity that the pod's unbound claims use on the node. Raises ClaimError."""
        claims: PodVolumeClaims | None = state.get(_CLAIMS)
        if self._scorer is None or claims is None or not claims.delayed or node.node is None:
            return 0
        pod_volumes = self._binder.find_pod_volumes(claims, node.node)
        return self._scorer.score(class_amounts(pod_volumes, self._binder, node.node))

    # --- binding ---------------------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        claims: PodVolumeClaims | None = state.get(_CLAIMS)
        info = self._handle.snapshot.get(node_name)
        if claims is None or not claims.delayed or info is None or info.node is None:
            return None
        try:
            pod_volumes = self._binder.find_pod_volumes(claims, info.node)
        except (ClaimError, TranslationError) as error:
            return self._count_failure("assume", error)
        if pod_volumes.conflict_reasons:
            return unresolvable(self.name, *pod_volumes.conflict_reasons)
        self._binder.assume(pod_volumes, node_name)
        state.write(_ASSUMED, pod_volumes)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pod_volumes: PodVolumes | None = state.get(_ASSUMED)
        if pod_volumes is not None:
            self._binder.forget(pod_volumes)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return skip(self.name) if state.get(_ASSUMED) is None else None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Write the decisions to the API and wait until the volumes are bound, at most bindTimeoutSeconds.

        Cancellation: completed writes remain; the pod's next attempt sees them.
        """
        pod_volumes: PodVolumes | None = state.get(_ASSUMED)
        if pod_volumes is None:
            return None
        try:
            await self._bind_api_update(pod_volumes, node_name)
        except (ApiError, ServerUnreachable) as error:
            log.warning("binding volumes failed", extra={"pod": pod.key, "node": node_name, "error": str(error)})
            return self._count_failure("bind", error)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                pause = _POLL_SECONDS
                while not self._all_bound(pod_volumes, node_name):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _MAX_POLL_SECONDS)
        except TimeoutError:
            return self._count_failure("bind", "binding volumes: context deadline exceeded")
        except (ClaimError, TranslationError) as error:
            log.warning("binding volumes failed", extra={"pod": pod.key, "node": node_name, "error": str(error)})
            return self._count_failure("bind", f"binding volumes: {error}")
        return None

    def _count_failure(self, stage: VolumeStage, error: Exception | str) -> Status:
        self._handle.metrics.volume_stage_failed(stage)
        return failed(self.name, error)

    async def _bind_api_update(self, pod_volumes: PodVolumes, node_name: str) -> None:
        """Patch volumes and claims, each with the resourceVersion that was read. Raises ApiError, ServerUnreachable."""
        client = self._handle.client
        for volume, _ in pod_volumes.static_bindings:
            metadata = volume.metadata
            await client.patch(
                PERSISTENT_VOLUMES,
                metadata.name,
                {
                    "metadata": {"resourceVersion": metadata.resource_version, "annotations": metadata.annotations},
                    "spec": {"claimRef": to_json(volume.spec.claim_ref) if volume.spec.claim_ref else None},
                },
                PatchType.MERGE,
            )
        for claim in pod_volumes.dynamic_provisions:
            metadata = claim.metadata
            await client.patch(
                PERSISTENT_VOLUME_CLAIMS,
                metadata.name,
                {
                    "metadata": {
                        "resourceVersion": metadata.resource_version,
                        "annotations": {SELECTED_NODE: node_name},
                    }
                },
                PatchType.MERGE,
                metadata.namespace,
            )

    def _all_bound(self, pod_volumes: PodVolumes, node_name: str) -> bool:
        """Return True if the informers show all volumes as bound. Raises ClaimError if binding cannot succeed."""
        listers = self._handle.listers
        for volume, assumed_claim in pod_volumes.static_bindings:
            current = listers.persistent_volumes.get(volume.key)
            claim = self._current_claim(assumed_claim)
            if current is None:
                raise ClaimError(f'failed to check provisioning pvc: could not find v1.PersistentVolume "{volume.key}"')
            self._check_node_affinity(current, node_name)
            if current.spec.claim_ref is None or not current.spec.claim_ref.uid or not is_fully_bound(claim):
                return False
        for assumed_claim in pod_volumes.dynamic_provisions:
            claim = self._current_claim(assumed_claim)
            selected = claim.metadata.annotations.get(SELECTED_NODE)
            if selected is None and claim.metadata.resource_version != assumed_claim.metadata.resource_version:
                # The provisioner removes the annotation if it cannot serve this node.
                raise ClaimError(f'provisioning failed for PVC "{claim.metadata.name}"')
            if selected is not None and selected != node_name:
                raise ClaimError(f'provisioning failed for PVC "{claim.metadata.name}"')
            bound_volume = listers.persistent_volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
            if bound_volume is not None:
                self._check_node_affinity(bound_volume, node_name)
            if not is_fully_bound(claim):
                return False
        return True

    def _current_claim(self, assumed_claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        claim = self._handle.listers.persistent_volume_claims.get(assumed_claim.key)
        if claim is None or claim.metadata.uid != assumed_claim.metadata.uid:
            raise ClaimError(f'error getting PVC "{assumed_claim.key}": could not find it')
        return claim

    def _check_node_affinity(self, volume: PersistentVolume, node_name: str) -> None:
        info = self._handle.snapshot.get(node_name)
        if info is None or info.node is None:
            return
        affinity = node_affinity_for(volume, self._handle.listers.csi_nodes.get(node_name))
        if not matches_node(affinity, info.node):
            raise ClaimError(f'pv "{volume.metadata.name}" node affinity doesn\'t match node "{node_name}"')

    # --- hints -----------------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        any_change = ADD | UPDATE
        return (
            on_event("storage.k8s.io/StorageClass", any_change, _after_class_change),
            on_event("PersistentVolumeClaim", any_change, _after_claim_change),
            on_event("PersistentVolume", any_change),
            on_event(NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL),
            on_event("storage.k8s.io/CSINode", any_change, _after_csi_node_change),
            on_event("storage.k8s.io/CSIDriver", UPDATE, _after_driver_update),
            on_event("storage.k8s.io/CSIStorageCapacity", any_change, _after_capacity_change),
        )


def _hint(helps: bool) -> Hint:
    return Hint.QUEUE if helps else Hint.SKIP


def _after_class_change(pod: Pod, old: StorageClass | None, new: StorageClass | None) -> Hint:
    return _hint(old is None or new is None or old.allowed_topologies != new.allowed_topologies)


def _after_claim_change(pod: Pod, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> Hint:
    return _hint(new is None or uses_claim(pod, new))


def _after_csi_node_change(pod: Pod, old: CSINode | None, new: CSINode | None) -> Hint:
    return _hint(old is None or new is None or migrated_plugins(old) != migrated_plugins(new))


def _after_driver_update(pod: Pod, old: CSIDriver | None, new: CSIDriver | None) -> Hint:
    """Return QUEUE if a driver of an inline volume no longer publishes capacities, which lifts its limits."""
    if old is None or new is None:
        return Hint.QUEUE
    inline = any((volume.csi or {}).get("driver") == new.metadata.name for volume in pod.spec.volumes)
    return _hint(inline and bool(old.spec.storage_capacity) and not new.spec.storage_capacity)


def _after_capacity_change(pod: Pod, old: CSIStorageCapacity | None, new: CSIStorageCapacity | None) -> Hint:
    return _hint(old is None or new is None or _capacity_limit_nano(new) > _capacity_limit_nano(old))


def _capacity_limit_nano(capacity: CSIStorageCapacity) -> int:
    limit = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
    return -1 if limit is None else nano(limit)
