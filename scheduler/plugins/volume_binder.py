"""Which volumes a pod would get on a node: those its claims have, those they could be bound to, those to be made.

Between Reserve and the API server's answer, choices are assumed: later pods see them as made. Source:
plugins/volumebinding/{binder,assume_cache}.go and component-helpers storage/volume of v1.36.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from kubeloop.kube.node_selectors import NodeSelectorMatcher
from kubeloop.kube.objects.api_types import Node, Object, ObjectReference, Pod
from kubeloop.kube.objects.storage_types import (
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
    VolumeNodeAffinity,
)
from kubeloop.kube.quantities import value
from kubeloop.kube.selectors import Selector, selector_from
from kubeloop.scheduler.api.listers import Lister, Listers
from kubeloop.scheduler.cache.pod_requests import nano
from kubeloop.scheduler.plugins.csi_migration import TranslationError, in_tree_plugin, is_migrated, translated
from kubeloop.scheduler.plugins.volume_claims import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    ClaimError,
    ClaimNotFound,
    check_made_for,
    claim_class,
    claim_uses,
    get_claim,
    is_bound_to,
    is_fully_bound,
    volume_class,
    waits_for_consumer,
)

NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
VOLUME_MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class PodClaims:
    """Claims of one pod. volumes: unbound volumes that `delayed` claims may get, by StorageClass."""

    bound: tuple[PersistentVolumeClaim, ...]
    delayed: tuple[PersistentVolumeClaim, ...]
    immediate: tuple[PersistentVolumeClaim, ...]
    volumes: dict[str, tuple[PersistentVolume, ...]]
    _suitable: dict[str, SuitableVolumes] = field(default_factory=dict, repr=False)

    def suitable(self, claim: PersistentVolumeClaim) -> SuitableVolumes:
        """For one of `delayed`. Raises ClaimError."""
        found = self._suitable.get(claim.key)
        if found is None:
            found = self._suitable[claim.key] = SuitableVolumes(claim, self.volumes[claim_class(claim)])
        return found


class NodeVolumes(msgspec.Struct):
    """reasons: why the pod's volumes keep it off the node; else what is to be done there."""

    reasons: list[str] = msgspec.field(default_factory=list)
    bindings: list[tuple[PersistentVolume, PersistentVolumeClaim]] = msgspec.field(default_factory=list)
    provisions: list[PersistentVolumeClaim] = msgspec.field(default_factory=list)


class Assumed(Generic[T]):
    """Objects as they will be once our writes are seen, over a lister; an assumption ends when a newer object comes."""

    def __init__(self) -> None:
        self._objects: dict[str, T] = {}

    def assume(self, obj: T) -> None:
        self._objects[obj.key] = obj

    def restore(self, keys: Iterable[str]) -> None:
        """Forget the assumptions."""
        for key in keys:
            self._objects.pop(key, None)

    def now(self, key: str, known: T | None) -> T | None:
        assumed = self._objects.get(key)
        if assumed is None:
            return known
        if known is None or known.metadata.resource_version != assumed.metadata.resource_version:
            del self._objects[key]
            return known
        return assumed


def matches_node(affinity: VolumeNodeAffinity | None, node: Node) -> bool:
    """A volume's affinity looks at labels only; one that cannot be parsed matches nothing."""
    if affinity is None or affinity.required is None:
        return True
    matcher = affinity_matcher(affinity)
    return not matcher.errors and matcher.matches("", node.metadata.labels)


def affinity_matcher(affinity: VolumeNodeAffinity) -> NodeSelectorMatcher:
    """Of the required terms, which there are. Compiled once for as long as the volume is as it is."""
    known = _matchers.get(id(affinity))
    if known is None or known[0] is not affinity:
        assert affinity.required is not None
        if len(_matchers) >= _MAX_MATCHERS:
            _matchers.clear()
        known = _matchers[id(affinity)] = (affinity, NodeSelectorMatcher(affinity.required))
    return known[1]


_matchers: dict[int, tuple[VolumeNodeAffinity, NodeSelectorMatcher]] = {}  # by identity, which the entry keeps
_MAX_MATCHERS = 16384


class SuitableVolumes:
    """The volumes that a claim could be bound to on some node, for asking about one node after the other.

    mine: one that is made for the claim, if there is; else `_others`, the smallest first. Most often a volume can be
    reached from one place (a label and its value), so those are looked up by the labels of the node.
    """

    __slots__ = ("_anywhere", "_at", "_keys", "_others", "mine")

    def __init__(self, claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume]) -> None:
        """Raises ClaimError."""
        found = list(_suitable(claim, volumes))
        self.mine = next((volume for volume in found if is_bound_to(volume, claim)), None)
        self._others = sorted(found, key=_capacity_nano) if self.mine is None else []
        self._anywhere: list[int] = []
        self._at: dict[tuple[str, str], list[int]] = {}
        for index, volume in enumerate(self._others):
            places = _places(volume)
            if places is None:
                self._anywhere.append(index)
            for place in places or ():
                self._at.setdefault(place, []).append(index)
        self._keys = {key for key, _ in self._at}

    def on(self, node: Node, chosen: Container[str]) -> PersistentVolume | None:
        """The volume made for the claim, or the smallest one that will do; none of `chosen`."""
        if self.mine is not None:
            free = self.mine.metadata.name not in chosen
            return self.mine if free and matches_node(self.mine.spec.node_affinity, node) else None
        labels = node.metadata.labels
        here = [self._at.get((key, labels[key]), []) for key in self._keys if key in labels]
        for index in heapq.merge(self._anywhere, *here):
            volume = self._others[index]
            if volume.metadata.name not in chosen and matches_node(volume.spec.node_affinity, node):
                return volume
        return None


def _places(volume: PersistentVolume) -> list[tuple[str, str]] | None:
    """Labels one of which a node must have to reach the volume; None: there is no such list."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None or len(affinity.required.node_selector_terms) != 1:
        return None
    for expression in affinity.required.node_selector_terms[0].match_expressions:
        if expression.operator == "In":
            return [(expression.key, value) for value in dict.fromkeys(expression.values)]
    return None


def _capacity_nano(volume: PersistentVolume) -> int:
    return nano(volume.spec.capacity.get("storage", 0))


class VolumeBinder:
    def __init__(self, listers: Listers) -> None:
        self._listers = listers
        self.volumes: Assumed[PersistentVolume] = Assumed()
        self.claims: Assumed[PersistentVolumeClaim] = Assumed()

    def volume(self, name: str) -> PersistentVolume | None:
        return self.volumes.now(name, self._listers.persistent_volumes.get(name))

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        return self.claims.now(key, self._listers.persistent_volume_claims.get(key))

    # --- claims of a pod -------------------------------------------------------------------------------------------

    def check_claims(self, pod: Pod) -> bool:
        """Does the pod use any claim? Raises ClaimError if one of them is not there, lost or going."""
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
                check_made_for(pod, claim)
        return any_claim

    def pod_claims(self, pod: Pod) -> PodClaims:
        """Raises ClaimError."""
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
        volumes: dict[str, tuple[PersistentVolume, ...]] = {}
        for claim in delayed:
            name = claim_class(claim)
            if name not in volumes:
                volumes[name] = tuple(self._volumes_of_class(name))
        return PodClaims(tuple(bound), tuple(delayed), tuple(immediate), volumes)

    def _volumes_of_class(self, name: str) -> Iterable[PersistentVolume]:
        for volume in of_class(self._listers.persistent_volumes, name):
            now = self.volumes.now(volume.key, volume)
            if now is not None:
                yield now

    # --- one node --------------------------------------------------------------------------------------------------

    def find(self, claims: PodClaims, node: Node) -> NodeVolumes:
        """Raises ClaimError, TranslationError."""
        found = NodeVolumes()
        if claims.bound:
            self._check_bound(claims.bound, node, found)
        if claims.delayed:
            self._find_for_delayed(claims, node, found)
        return found

    def _check_bound(self, claims: Sequence[PersistentVolumeClaim], node: Node, found: NodeVolumes) -> None:
        csi_node = self._listers.csi_nodes.get(node.metadata.name)
        for claim in claims:
            volume = self.volume(claim.spec.volume_name)
            if volume is None:
                found.reasons.append(VOLUME_MISSING)
                return
            if not matches_node(affinity_on(volume, csi_node), node):
                found.reasons.append(NODE_CONFLICT)
                return

    def _find_for_delayed(self, claims: PodClaims, node: Node, found: NodeVolumes) -> None:
        to_match, to_provision = [], []
        for claim in claims.delayed:
            selected = claim.metadata.annotations.get(SELECTED_NODE)
            if selected is None:
                to_match.append(claim)
            elif selected == node.metadata.name:
                to_provision.append(claim)
            else:
                found.reasons.append(BIND_CONFLICT)
                return
        chosen: set[str] = set()
        for claim in sorted(to_match, key=_requested_nano):  # the smallest first, so that each gets the smallest fit
            volume = claims.suitable(claim).on(node, chosen)
            if volume is None:
                to_provision.append(claim)
            else:
                chosen.add(volume.metadata.name)
                found.bindings.append((volume, claim))
        for claim in to_provision:
            reason = self._cannot_provision(claim, node)
            if reason:
                found.reasons.append(reason)
                return
        found.provisions = to_provision

    def _cannot_provision(self, claim: PersistentVolumeClaim, node: Node) -> str:
        """Why no volume can be made for the claim on this node; "" if one can. Raises ClaimError."""
        storage_class = self._class_of(claim)
        if storage_class.provisioner in ("", _NO_PROVISIONER):
            return BIND_CONFLICT
        if not _in_topology(storage_class.allowed_topologies, node):
            return BIND_CONFLICT
        return "" if self._has_capacity(claim, storage_class, node) else NOT_ENOUGH_SPACE

    def _class_of(self, claim: PersistentVolumeClaim) -> StorageClass:
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
        """Is there enough storage behind the node? Only drivers that publish capacities are asked."""
        if "storage" not in claim.spec.resources.requests or not self._tracks_capacity(storage_class):
            return True
        wanted = value(claim.spec.resources.requests["storage"])
        return any(
            capacity.storage_class_name == storage_class.metadata.name
            and _suffices(capacity, wanted)
            and _reaches(capacity, node)
            for capacity in self._listers.csi_storage_capacities.list()
        )

    def depends_on_node(self, claims: PodClaims) -> bool:
        """False: what `find` says of the delayed claims is the same for all nodes."""
        for claim in claims.delayed:
            storage_class = self._class_of(claim)
            if (
                SELECTED_NODE in claim.metadata.annotations
                or claims.volumes[claim_class(claim)]
                or storage_class.allowed_topologies
                or self._tracks_capacity(storage_class)
            ):
                return True
        return False

    # --- assuming --------------------------------------------------------------------------------------------------

    def assume(self, found: NodeVolumes, node_name: str) -> None:
        """Take the choice for made until it is, or is forgotten."""
        found.bindings = [(claimed(volume, claim), claim) for volume, claim in found.bindings]
        for volume, _ in found.bindings:
            self.volumes.assume(volume)
        found.provisions = [_selected(claim, node_name) for claim in found.provisions]
        for claim in found.provisions:
            self.claims.assume(claim)

    def forget(self, found: NodeVolumes) -> None:
        self.volumes.restore(volume.key for volume, _ in found.bindings)
        self.claims.restore(claim.key for claim in found.provisions)


def affinity_on(volume: PersistentVolume, csi_node: CSINode | None) -> VolumeNodeAffinity | None:
    """The volume's node affinity as that node reads it, in-tree ones maybe as CSI volumes. Raises TranslationError."""
    plugin = in_tree_plugin(volume.spec)
    if plugin is None or not is_migrated(plugin, csi_node):
        return volume.spec.node_affinity
    try:
        return translated(volume, plugin)[1]
    except TranslationError as error:
        raise TranslationError(f"could not translate pv: {error}") from error


def of_class(volumes: Lister[PersistentVolume], name: str) -> list[PersistentVolume]:
    return volumes.by_index("storage_class", name)


def _suitable(claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume]) -> Iterator[PersistentVolume]:
    """Of `volumes`, those that would do on a node that reaches them. Raises ClaimError."""
    selector: Selector | None = None
    if claim.spec.selector is not None:
        try:
            selector = selector_from(claim.spec.selector)
        except ValueError as error:
            raise ClaimError(f"error creating internal label selector for claim: {claim.key}: {error}") from error
    wanted = _requested_nano(claim)
    for volume in volumes:
        spec = volume.spec
        mine = is_bound_to(volume, claim)
        if (
            (spec.claim_ref is not None and not mine)
            or _capacity_nano(volume) < wanted
            or (spec.volume_mode or "Filesystem") != (claim.spec.volume_mode or "Filesystem")
            or (spec.volume_attributes_class_name or "") != (claim.spec.volume_attributes_class_name or "")
            or volume.metadata.deletion_timestamp is not None
        ):
            continue
        if mine or (
            volume.status.phase == "Available"
            and (selector is None or selector.matches(volume.metadata.labels))
            and volume_class(volume) == claim_class(claim)
            and set(claim.spec.access_modes) <= set(spec.access_modes)
        ):
            yield volume


def _requested_nano(claim: PersistentVolumeClaim) -> int:
    return nano(claim.spec.resources.requests.get("storage", 0))


def _in_topology(terms: Sequence[TopologySelectorTerm], node: Node) -> bool:
    """Any term holds; no terms: anywhere. An empty term holds nowhere."""
    labels = node.metadata.labels
    return not terms or any(
        term.match_label_expressions
        and all(labels.get(each.key) in each.values for each in term.match_label_expressions)
        for term in terms
    )


def _suffices(capacity: CSIStorageCapacity, wanted_bytes: int) -> bool:
    limit = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
    return limit is not None and value(limit) >= wanted_bytes


def _reaches(capacity: CSIStorageCapacity, node: Node) -> bool:
    if capacity.node_topology is None:
        return False
    try:
        return selector_from(capacity.node_topology).matches(node.metadata.labels)
    except ValueError:
        return False


def claimed(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """The volume, bound to the claim by us."""
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


def _selected(claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
    annotations = {**claim.metadata.annotations, SELECTED_NODE: node_name}
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=annotations))
