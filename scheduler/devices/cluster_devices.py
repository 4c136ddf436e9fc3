"""The cluster's devices: informers of claims, device classes and slices, and the state that all profiles share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import SharedInformer
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.device_types import DeviceClass, ResourceClaim, ResourceSlice
from kubeloop.kube.objects.resources import DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES
from kubeloop.scheduler.devices.class_devices import ClassDevices
from kubeloop.scheduler.devices.cluster.claim_cache import ClaimCache
from kubeloop.scheduler.devices.cluster.device_pools import DevicePools
from kubeloop.scheduler.devices.cluster.device_usage import DeviceUsage
from kubeloop.scheduler.devices.cluster.rule_taints import RuleTaints
from kubeloop.scheduler.devices.extended_resources import ExtendedResources
from kubeloop.scheduler.devices.node_results import KeptResults
from kubeloop.scheduler.devices.requests import SelectorLists, device_features
from kubeloop.scheduler.devices.selectors import DeviceSelectors


class ClusterDevices:
    """Claims, classes and pools, kept up to date by informers that start with this object.

    is_overdue: the caches are not complete after some time; pods without claims no longer wait for them.
    """

    def __init__(
        self,
        informers: InformerFactory,
        gates: FeatureGates,
        *,
        classes_changed: Callable[[], None] = lambda: None,
        taints_changed: Callable[[ResourceSlice, ResourceSlice], None] = lambda _old, _new: None,
        allocation_undone: Callable[[ResourceClaim, ResourceClaim], None] = lambda _old, _new: None,
    ) -> None:
        """classes_changed: called after an extended resource has got another class, or none. taints_changed: called
        after a DeviceTaintRule has changed the taints of a slice. allocation_undone: called with the allocated and the
        unallocated claim after an allocation was undone that was not written."""
        self.is_overdue = False
        self._allocation_undone = allocation_undone
        self.features = device_features(gates)
        self.selectors = DeviceSelectors(
            consumable_capacity=self.features.consumable_capacity, list_attributes=self.features.list_attributes
        )
        self.selector_lists = SelectorLists()
        self.pools = DevicePools(partitionable=self.features.partitionable_devices)
        self.usage = DeviceUsage(self.pools.node_of, consumable_capacity=self.features.consumable_capacity)
        self.kept_results = KeptResults()
        self._class_devices = ClassDevices(self.pools, self.usage, self.selectors, self.selector_lists)
        claims = informers.informer(RESOURCE_CLAIMS)
        classes = informers.informer(DEVICE_CLASSES)
        slices = informers.informer(RESOURCE_SLICES)
        self.claims = ClaimCache(claims, self.usage)
        self.extended_resources = ExtendedResources(classes_changed)
        self._classes = classes.store
        self._informers: tuple[SharedInformer[Any], ...] = (claims, classes, slices)
        self._rule_taints: RuleTaints | None = None
        if gates.enabled("DRADeviceTaintRules"):
            rules = informers.informer(DEVICE_TAINT_RULES)
            self._informers = (*self._informers, rules)
            self._rule_taints = RuleTaints(rules.store, slices.store, self._taints_changed)
            rules.add_handler(self._rule_taints)
            self._report_changed_taints = taints_changed
        # What other users of these informers have read already is delivered to new handlers only later.
        slice_events = self._slice_events = _SliceEvents(self, self._rule_taints)
        for claim in claims.store.values():
            self.claims.on_add(claim, True)
        for slice_ in slices.store.values():
            slice_events.on_add(slice_, True)
        for device_class in classes.store.values():
            self.extended_resources.on_add(device_class, True)
        claims.add_handler(self.claims)
        classes.add_handler(self.extended_resources)
        slices.add_handler(slice_events)

    @property
    def has_synced(self) -> bool:
        """True if the caches are complete; until then no pod with claims is scheduled."""
        return all(informer.has_synced for informer in self._informers)

    async def wait_synced(self) -> None:
        """Wait until the caches are complete. Cancellation: safe."""
        for informer in self._informers:
            await informer.wait_synced()

    def _taints_changed(self, old: ResourceSlice, new: ResourceSlice) -> None:
        self._slice_events.replace(new)
        self._report_changed_taints(old, new)

    def release(self, claim: ResourceClaim, pod: Pod) -> None:
        """Release what a pod has reserved for a claim; report devices that are free again without a write."""
        allocation = self.claims.release_pending(claim, pod)
        if allocation is not None:
            self._allocation_undone(replace(claim, status=replace(claim.status, allocation=allocation)), claim)

    def count_devices(self, resource: str, node: str, labels: Mapping[str, str]) -> tuple[int, int]:
        """Return (devices of a node that provide an extended resource, those in use)."""
        device_class = self.extended_resources.get(resource)
        return (0, 0) if device_class is None else self._class_devices.count(device_class, node, labels)

    def device_class(self, name: str) -> DeviceClass | None:
        return self._classes.get(name)


class _SliceEvents:
    """Handler of the informer of slices. rule_taints: None if DeviceTaintRules do not count."""

    def __init__(self, devices: ClusterDevices, rule_taints: RuleTaints | None) -> None:
        self._devices = devices
        self._rule_taints = rule_taints

    def on_add(self, obj: ResourceSlice, initial: bool) -> None:
        self._put(obj)

    def on_update(self, old: ResourceSlice, new: ResourceSlice) -> None:
        if (old.spec.driver, old.spec.pool.name) != (new.spec.driver, new.spec.pool.name):
            self.on_delete(old, False)
        if old.spec != new.spec:
            self._put(new)

    def on_delete(self, obj: ResourceSlice, final_state_unknown: bool) -> None:
        self._changed(obj)
        self._devices.pools.remove(obj)
        if self._rule_taints is not None:
            self._rule_taints.forget(obj)
        self._changed(obj)

    def _put(self, slice_: ResourceSlice) -> None:
        self.replace(self._rule_taints.add_to(slice_) if self._rule_taints is not None else slice_)

    def replace(self, slice_: ResourceSlice) -> None:
        """Replace a slice that has the taints of rules: nodes change that could use its pool before or can now."""
        self._changed(slice_)
        self._devices.pools.put(slice_)
        self._changed(slice_)

    def _changed(self, slice_: ResourceSlice) -> None:
        key = (slice_.spec.driver, slice_.spec.pool.name)
        pools = self._devices.pools
        if pools.has_pool(key):
            self._devices.usage.changed(pools.node_of(key))
