"""Volumes of a pod on a node: those bound to its claims, those the claims can be bound to, those to be provisioned.

Decisions are assumed from Reserve until the informers show their result, so that later pods see them. Source:
plugins/volumebinding/{binder,assume_cache}.go and component-helpers storage/volume of v1.36.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from kubeloop.kube.objects.api_types import Node, Object, ObjectReference, Pod
from kubeloop.kube.objects.in_tree_plugins import in_tree_plugin
from kubeloop.kube.objects.storage_types import (
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
    VolumeNodeAffinity,
)
from kubeloop.kube.selectors.node_selectors import NodeSelectorMatcher
from kubeloop.kube.selectors.selectors import Selector, selector_from
from kubeloop.kube.values.quantities import value
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.cache.pod_requests import nano
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.versioned_cache import VersionedCache
from kubeloop.scheduler.plugins.volumes.csi_migration import TranslationError, is_migrated, translate_volume
from kubeloop.scheduler.plugins.volumes.volume_claims import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    ClaimError,
    ClaimNotFound,
    check_owned_by,
    claim_class,
    claim_uses,
    get_claim,
    is_bound_to,
    is_fully_bound,
    volume_class,
    waits_for_consumer,
)

ERR_REASON_NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
ERR_REASON_BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
ERR_REASON_NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
ERR_REASON_PV_NOT_EXIST = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"

Int64 = npt.NDArray[np.int64]
T = TypeVar("T", bound=Object)


class PodVolumeClaims(msgspec.Struct, frozen=True):
    """Claims of one pod: bound, to be bound when the pod has a node, or waiting for another component."""

    bound: tuple[PersistentVolumeClaim, ...]
    delayed: tuple[PersistentVolumeClaim, ...]
    immediate: tuple[PersistentVolumeClaim, ...]
    _choices: dict[str, VolumeChoice] = {}

    def choice(self, claim: PersistentVolumeClaim, binder: VolumeBinder) -> VolumeChoice:
        """Return what one of the `delayed` claims could be bound to, the same for all nodes. Raises ClaimError."""
        choice = self._choices.get(claim.key)
        if choice is None:
            choice = self._choices[claim.key] = binder.choice(claim)
        return choice


class PodVolumes(msgspec.Struct):
    """Decisions for the pod's claims on one node; conflict_reasons is not empty if the pod cannot be on the node."""

    conflict_reasons: list[str] = msgspec.field(default_factory=list)
    static_bindings: list[tuple[PersistentVolume, PersistentVolumeClaim]] = msgspec.field(default_factory=list)
    dynamic_provisions: list[PersistentVolumeClaim] = msgspec.field(default_factory=list)


class AssumeCache(Generic[T]):
    """Assumed objects over a lister: as they will be after our writes. A change in the lister ends an assumption."""

    def __init__(self) -> None:
        self._objects: dict[str, T] = {}
        self.changes = 0  # of assumptions

    def assume(self, obj: T) -> None:
        self.changes += 1
        self._objects[obj.key] = obj

    def assumed(self) -> list[T]:
        return list(self._objects.values())

    def forget(self, keys: Iterable[str]) -> None:
        """Drop the assumptions for `keys`."""
        self.changes += 1
        for key in keys:
            self._objects.pop(key, None)

    def get(self, key: str, stored: T | None) -> T | None:
        assumed = self._objects.get(key)
        if assumed is None:
            return stored
        if stored is None or stored.metadata.resource_version != assumed.metadata.resource_version:
            del self._objects[key]
            return stored
        return assumed


def matches_node(affinity: VolumeNodeAffinity | None, node: Node) -> bool:
    """Return True if the node's labels match the volume's affinity; an affinity that cannot be parsed matches none."""
    if affinity is None or affinity.required is None:
        return True
    matcher = affinity_matcher(affinity)
    return not matcher.errors and matcher.matches("", node.metadata.labels)


def affinity_matcher(affinity: VolumeNodeAffinity) -> NodeSelectorMatcher:
    """Return the matcher of the required terms, which must exist. Cached until the volume's affinity object changes."""
    cached = _matchers.get(id(affinity))
    if cached is None or cached[0] is not affinity:
        assert affinity.required is not None
        if len(_matchers) >= _MAX_MATCHERS:
            _matchers.clear()
        cached = _matchers[id(affinity)] = (affinity, NodeSelectorMatcher(affinity.required))
    return cached[1]


_matchers: dict[int, tuple[VolumeNodeAffinity, NodeSelectorMatcher]] = {}  # by id(); the entry keeps the object alive
_MAX_MATCHERS = 16384


class VolumeCandidates:
    """The unbound volumes that claims of one kind could be bound to on some node, smallest first.

    Most volumes require one label of their node with certain values, so they are sorted by these labels. `key` of a
    claim: claims with the same have the same candidates.
    """

    def __init__(self, claim: PersistentVolumeClaim) -> None:
        """Raises ClaimError."""
        self._suits = _suitability(claim)
        self._anywhere: list[_Entry] = []  # including those with another affinity than one label
        self._by_label: dict[tuple[str, str], list[_Entry]] = {}
        self._with_other_affinity = 0
        self._changes = 0
        self._counts: VersionedCache[None, Int64] = VersionedCache(1)

    @staticmethod
    def key(claim: PersistentVolumeClaim) -> Hashable:
        spec = claim.spec
        return (
            claim_class(claim),
            _requested_nano(claim),
            spec.volume_mode,
            spec.volume_attributes_class_name,
            tuple(spec.access_modes),
            msgspec.msgpack.encode(spec.selector),
        )

    def replace(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        """Replace a version of a volume by another; None: it does not exist."""
        for volume, change in ((old, _remove), (new, insort)):
            if volume is None or volume.spec.claim_ref is not None or not self._suits(volume):
                continue
            self._changes += 1
            entry = _capacity_nano(volume), volume.metadata.name, volume
            labels = _required_labels(volume)
            if not _requires_one_label(volume):
                self._with_other_affinity += 1 if change is insort else -1
            for label in labels or ():
                change(self._by_label.setdefault(label, []), entry)
                if not self._by_label[label]:
                    del self._by_label[label]
            if labels is None:
                change(self._anywhere, entry)

    def find(self, node: Node, chosen: Container[str]) -> PersistentVolume | None:
        """Return the smallest volume that is not in `chosen` and accessible from the node; None if there is none."""
        labels = node.metadata.labels
        entries = [self._by_label[label] for label in labels.items() if label in self._by_label]
        for _, name, volume in heapq.merge(self._anywhere, *entries):
            if name not in chosen and matches_node(volume.spec.node_affinity, node):
                return volume
        return None

    def counts(self, snapshot: Snapshot) -> Int64 | None:
        """Return the number of volumes that each node has access to [N]; None if nodes must be checked one by one."""
        if self._with_other_affinity:
            return None
        version = (self._changes, snapshot.layout, snapshot.columns.node_generation)
        return self._counts.get(None, version, lambda: self._count(snapshot))

    def _count(self, snapshot: Snapshot) -> Int64:
        counts = np.full(len(snapshot), len(self._anywhere), np.int64)
        for key in {key for key, _ in self._by_label}:
            column = snapshot.columns.labels(key)
            by_code = np.zeros(len(column.values) + 1, np.int64)  # the last one for nodes without the label: -1
            for (label, value_), entries in self._by_label.items():
                if label == key and value_ in column.code_of:
                    by_code[column.code_of[value_]] = len(entries)
            counts += by_code[column.codes]
        return counts


class VolumeChoice(NamedTuple):
    """Volumes to which a claim can be bound: the one that is reserved for it, or the candidates."""

    prebound: PersistentVolume | None
    candidates: VolumeCandidates | None

    def find(self, node: Node, chosen: Container[str]) -> PersistentVolume | None:
        """Return the smallest volume that is not in `chosen` and accessible from the node; None if there is none."""
        if self.candidates is not None:
            return self.candidates.find(node, chosen)
        assert self.prebound is not None
        free = self.prebound.metadata.name not in chosen
        return self.prebound if free and matches_node(self.prebound.spec.node_affinity, node) else None


class _ClassVolumes:
    """The volumes of one StorageClass by name, and the candidates for kinds of claims."""

    def __init__(self) -> None:
        self.version: object = None
        self._volumes: dict[str, PersistentVolume] = {}
        self._candidates: dict[Hashable, VolumeCandidates] = {}

    def replace(self, volumes: dict[str, PersistentVolume]) -> None:
        old, self._volumes = self._volumes, volumes
        changes = [(old.get(name), volume) for name, volume in volumes.items() if old.get(name) is not volume]
        removed = [(old[name], None) for name in old.keys() - volumes.keys()]
        for candidates in self._candidates.values():
            for before, after in (*changes, *removed):
                candidates.replace(before, after)

    def candidates(self, claim: PersistentVolumeClaim) -> VolumeCandidates:
        """Return the candidates for a claim. Raises ClaimError."""
        key = VolumeCandidates.key(claim)
        candidates = self._candidates.pop(key, None)
        if candidates is None:
            candidates = VolumeCandidates(claim)
            for volume in self._volumes.values():
                candidates.replace(None, volume)
            while len(self._candidates) >= _MAX_KINDS:
                del self._candidates[next(iter(self._candidates))]
        self._candidates[key] = candidates
        return candidates


_Entry = tuple[int, str, PersistentVolume]
"""(capacity in nano, name, volume)."""
_MAX_KINDS = 16  # of claims of one StorageClass whose candidates are cached


def _remove(entries: list[_Entry], entry: _Entry) -> None:
    del entries[bisect_left(entries, entry[:2], key=lambda other: other[:2])]


def _required_labels(volume: PersistentVolume) -> list[tuple[str, str]] | None:
    """Return labels one of which a node must have to access the volume; None if they cannot be listed."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None or len(affinity.required.node_selector_terms) != 1:
        return None
    for expression in affinity.required.node_selector_terms[0].match_expressions:
        if expression.operator == "In":
            return [(expression.key, value) for value in dict.fromkeys(expression.values)]
    return None


def _requires_one_label(volume: PersistentVolume) -> bool:
    """Return True if a node with one of `_required_labels` has access, or if all nodes have."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    terms = affinity.required.node_selector_terms
    return (
        len(terms) == 1
        and not terms[0].match_fields
        and [expression.operator for expression in terms[0].match_expressions] == ["In"]
        and not affinity_matcher(affinity).errors
    )


def _capacity_nano(volume: PersistentVolume) -> int:
    return nano(volume.spec.capacity.get("storage", 0))


class VolumeBinder:
    def __init__(self, listers: Listers) -> None:
        self._listers = listers
        for name, function in (("storage_class", _class_index), ("claim", _claim_index)):
            listers.persistent_volumes.add_index(name, function)
        self._unbound: dict[str, _ClassVolumes] = {}  # by StorageClass
        self.volumes: AssumeCache[PersistentVolume] = AssumeCache()
        self.claims: AssumeCache[PersistentVolumeClaim] = AssumeCache()

    def volume(self, name: str) -> PersistentVolume | None:
        return self.volumes.get(name, self._listers.persistent_volumes.get(name))

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        return self.claims.get(key, self._listers.persistent_volume_claims.get(key))

    # --- claims of a pod -------------------------------------------------------------------------------------------

    def check_claims(self, pod: Pod) -> bool:
        """Return True if the pod uses claims. Raises ClaimError if one is missing, lost or being deleted."""
        any_claim = False
        for use in claim_uses(pod):
            any_claim = True
            try:
                claim = get_claim(pod, use.claim_name, self._listers)
            except ClaimNotFound:
                if not use.ephemeral:
                    raise
                raise ClaimError(
                    f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.claim_name}"'
                ) from None
            if claim.status.phase == "Lost":
                raise ClaimError(
                    f'persistentvolumeclaim "{claim.metadata.name}" bound to non-existent persistentvolume '
                    f'"{claim.spec.volume_name}"'
                )
            if claim.metadata.deletion_timestamp is not None:
                raise ClaimError(f'persistentvolumeclaim "{claim.metadata.name}" is being deleted')
            if use.ephemeral:
                check_owned_by(pod, claim)
        return any_claim

    def pod_claims(self, pod: Pod) -> PodVolumeClaims:
        """Return the pod's claims by binding state. Raises ClaimError."""
        bound, delayed, immediate = [], [], []
        for use in claim_uses(pod):
            claim = self.claim(f"{pod.metadata.namespace}/{use.claim_name}")
            if claim is None:
                raise ClaimError(f'error getting PVC "{pod.metadata.namespace}/{use.claim_name}": could not find it')
            if is_fully_bound(claim):
                bound.append(claim)
            elif waits_for_consumer(claim, self._listers) and not claim.spec.volume_name:
                delayed.append(claim)
            else:
                immediate.append(claim)
        return PodVolumeClaims(tuple(bound), tuple(delayed), tuple(immediate))

    # --- volumes of a claim ----------------------------------------------------------------------------------------

    def choice(self, claim: PersistentVolumeClaim) -> VolumeChoice:
        """Return the volumes that the claim could be bound to. Raises ClaimError."""
        prebound = self._prebound(claim)
        if prebound is not None:
            return VolumeChoice(prebound, None)
        name = claim_class(claim)
        volumes = self._unbound.setdefault(name, _ClassVolumes())
        version = (self._listers.persistent_volumes.version, self.volumes.changes)
        if volumes.version != version:
            volumes.replace({volume.metadata.name: volume for volume in self._volumes_of_class(name)})
            volumes.version = version
        return VolumeChoice(None, volumes.candidates(claim))

    def _prebound(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """Return the volume of the claim's class that is reserved for the claim and satisfies it, if there is one."""
        reserved = self._listers.persistent_volumes.by_index("claim", claim.key)
        for volume in (*reserved, *self.volumes.assumed()):
            current = self.volume(volume.key)
            if current is not None and is_bound_to(current, claim) and volume_class(current) == claim_class(claim):
                return current if _suitability(claim)(current) else None
        return None

    def _volumes_of_class(self, name: str) -> Iterable[PersistentVolume]:
        for volume in self._listers.persistent_volumes.by_index("storage_class", name):
            current = self.volumes.get(volume.key, volume)
            if current is not None:
                yield current

    # --- one node --------------------------------------------------------------------------------------------------

    def find_pod_volumes(self, claims: PodVolumeClaims, node: Node) -> PodVolumes:
        """Return the decisions for the pod's claims on `node`. Raises ClaimError, TranslationError."""
        pod_volumes = PodVolumes()
        if claims.bound:
            self._check_bound(claims.bound, node, pod_volumes)
        if claims.delayed:
            self._find_unbound(claims, node, pod_volumes)
        return pod_volumes

    def _check_bound(self, claims: Sequence[PersistentVolumeClaim], node: Node, pod_volumes: PodVolumes) -> None:
        csi_node = self._listers.csi_nodes.get(node.metadata.name)
        for claim in claims:
            volume = self.volume(claim.spec.volume_name)
            if volume is None:
                pod_volumes.conflict_reasons.append(ERR_REASON_PV_NOT_EXIST)
                return
            if not matches_node(node_affinity_for(volume, csi_node), node):
                pod_volumes.conflict_reasons.append(ERR_REASON_NODE_CONFLICT)
                return

    def _find_unbound(self, claims: PodVolumeClaims, node: Node, pod_volumes: PodVolumes) -> None:
        to_match, to_provision = [], []
        for claim in claims.delayed:
            selected = claim.metadata.annotations.get(SELECTED_NODE)
            if selected is None:
                to_match.append(claim)
            elif selected == node.metadata.name:
                to_provision.append(claim)
            else:
                pod_volumes.conflict_reasons.append(ERR_REASON_BIND_CONFLICT)
                return
        chosen: set[str] = set()
        for claim in sorted(to_match, key=_by_request):  # smallest first, so that each gets its smallest fit
            volume = claims.choice(claim, self).find(node, chosen)
            if volume is None:
                to_provision.append(claim)
            else:
                chosen.add(volume.metadata.name)
                pod_volumes.static_bindings.append((volume, claim))
        for claim in to_provision:
            reason = self.provision_conflict(claim, node)
            if reason:
                pod_volumes.conflict_reasons.append(reason)
                return
        pod_volumes.dynamic_provisions = to_provision

    def provision_conflict(self, claim: PersistentVolumeClaim, node: Node) -> str:
        """Return why no volume can be provisioned for the claim on this node; "" if one can. Raises ClaimError."""
        storage_class = self._storage_class(claim)
        if storage_class.provisioner in ("", _NO_PROVISIONER):
            return ERR_REASON_BIND_CONFLICT
        if not _in_topology(storage_class.allowed_topologies, node):
            return ERR_REASON_BIND_CONFLICT
        return "" if self._has_capacity(claim, storage_class, node) else ERR_REASON_NOT_ENOUGH_SPACE

    def _storage_class(self, claim: PersistentVolumeClaim) -> StorageClass:
        name = claim_class(claim)
        if not name:
            raise ClaimError(f'no class for claim "{claim.key}"')
        storage_class = self._listers.storage_classes.get(name)
        if storage_class is None:
            raise ClaimError(f'failed to find storage class "{name}"')
        return storage_class

    def _tracks_capacity(self, storage_class: StorageClass) -> bool:
        driver = self._listers.csi_drivers.get(storage_class.provisioner)
        return driver is not None and bool(driver.spec.storage_capacity)

    def _has_capacity(self, claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node) -> bool:
        """Return True if the node has access to enough storage, or if the driver does not publish capacities."""
        if "storage" not in claim.spec.resources.requests or not self._tracks_capacity(storage_class):
            return True
        return self._sufficient_capacity(claim, storage_class, node) is not None

    def node_capacity(self, claim: PersistentVolumeClaim, node: Node) -> CSIStorageCapacity | None:
        """Return where on the node the claim's volume can be provisioned; None if the driver publishes no capacities.

        Raises ClaimError.
        """
        storage_class = self._storage_class(claim)
        if "storage" not in claim.spec.resources.requests or not self._tracks_capacity(storage_class):
            return None
        return self._sufficient_capacity(claim, storage_class, node)

    def _sufficient_capacity(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node
    ) -> CSIStorageCapacity | None:
        requested = value(claim.spec.resources.requests["storage"])
        for capacity in self._listers.csi_storage_capacities.list():
            if (
                capacity.storage_class_name == storage_class.metadata.name
                and _has_enough_capacity(capacity, requested)
                and _is_accessible_from(capacity, node)
            ):
                return capacity
        return None

    def provisioning_depends_on_node(self, claims: PodVolumeClaims) -> bool:
        """Return False if provision_conflict() has the same result on all nodes. Raises ClaimError."""
        for claim in claims.delayed:
            storage_class = self._storage_class(claim)
            if (
                SELECTED_NODE in claim.metadata.annotations
                or storage_class.allowed_topologies
                or self._tracks_capacity(storage_class)
            ):
                return True
        return False

    # --- assuming --------------------------------------------------------------------------------------------------

    def assume(self, pod_volumes: PodVolumes, node_name: str) -> None:
        """Assume the decisions; later pods see them until the informers show the result or they are forgotten."""
        pod_volumes.static_bindings = [
            (with_claim_ref(volume, claim), claim) for volume, claim in pod_volumes.static_bindings
        ]
        for volume, _ in pod_volumes.static_bindings:
            self.volumes.assume(volume)
        pod_volumes.dynamic_provisions = [
            with_selected_node(claim, node_name) for claim in pod_volumes.dynamic_provisions
        ]
        for claim in pod_volumes.dynamic_provisions:
            self.claims.assume(claim)

    def forget(self, pod_volumes: PodVolumes) -> None:
        self.volumes.forget(volume.key for volume, _ in pod_volumes.static_bindings)
        self.claims.forget(claim.key for claim in pod_volumes.dynamic_provisions)


def node_affinity_for(volume: PersistentVolume, csi_node: CSINode | None) -> VolumeNodeAffinity | None:
    """Return the volume's node affinity for that node: translated if its in-tree plugin is migrated there.

    Raises TranslationError.
    """
    plugin = in_tree_plugin(volume.spec)
    if plugin is None or not is_migrated(plugin, csi_node):
        return volume.spec.node_affinity
    try:
        return translate_volume(volume, plugin)[1]
    except TranslationError as error:
        raise TranslationError(f"could not translate pv: {error}") from error


def _suitability(claim: PersistentVolumeClaim) -> Callable[[PersistentVolume], bool]:
    """Return whether a volume satisfies the claim, apart from node affinity. Raises ClaimError."""
    selector: Selector | None = None
    if claim.spec.selector is not None:
        try:
            selector = selector_from(claim.spec.selector)
        except ValueError as error:
            raise ClaimError(f"error creating internal label selector for claim: {claim.key}: {error}") from error
    requested = _requested_nano(claim)

    def suits(volume: PersistentVolume) -> bool:
        spec = volume.spec
        prebound = is_bound_to(volume, claim)
        if (
            (spec.claim_ref is not None and not prebound)
            or _capacity_nano(volume) < requested
            or (spec.volume_mode or "Filesystem") != (claim.spec.volume_mode or "Filesystem")
            or (spec.volume_attributes_class_name or "") != (claim.spec.volume_attributes_class_name or "")
            or volume.metadata.deletion_timestamp is not None
        ):
            return False
        return prebound or (
            volume.status.phase == "Available"
            and (selector is None or selector.matches(volume.metadata.labels))
            and volume_class(volume) == claim_class(claim)
            and set(claim.spec.access_modes) <= set(spec.access_modes)
        )

    return suits


def _class_index(volume: PersistentVolume) -> tuple[str, ...]:
    return (volume_class(volume),)


def _claim_index(volume: PersistentVolume) -> tuple[str, ...]:
    """Return the key of the claim that the volume is bound to or reserved for."""
    reference = volume.spec.claim_ref
    return () if reference is None else (f"{reference.namespace}/{reference.name}",)


def _by_request(claim: PersistentVolumeClaim) -> tuple[int, str]:
    return _requested_nano(claim), claim.metadata.name


def _requested_nano(claim: PersistentVolumeClaim) -> int:
    return nano(claim.spec.resources.requests.get("storage", 0))


def _in_topology(terms: Sequence[TopologySelectorTerm], node: Node) -> bool:
    """Return True if one term matches, or if there are no terms. An empty term matches no node."""
    labels = node.metadata.labels
    return not terms or any(
        term.match_label_expressions
        and all(labels.get(expression.key) in expression.values for expression in term.match_label_expressions)
        for term in terms
    )


def _has_enough_capacity(capacity: CSIStorageCapacity, wanted_bytes: int) -> bool:
    limit = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
    return limit is not None and value(limit) >= wanted_bytes


def _is_accessible_from(capacity: CSIStorageCapacity, node: Node) -> bool:
    if capacity.node_topology is None:
        return False
    try:
        return selector_from(capacity.node_topology).matches(node.metadata.labels)
    except ValueError:
        return False


def with_claim_ref(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """Return a copy of the volume, bound to the claim by the scheduler."""
    annotations = volume.metadata.annotations
    if volume.spec.claim_ref is None:
        annotations = {**annotations, BOUND_BY_CONTROLLER: "yes"}
    ref = ObjectReference(
        kind="PersistentVolumeClaim",
        api_version="v1",
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        resource_version=claim.metadata.resource_version,
    )
    return msgspec.structs.replace(
        volume,
        metadata=msgspec.structs.replace(volume.metadata, annotations=annotations),
        spec=msgspec.structs.replace(volume.spec, claim_ref=ref),
    )


def with_selected_node(claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
    annotations = {**claim.metadata.annotations, SELECTED_NODE: node_name}
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=annotations))
