"""Taints of DeviceTaintRules, which are added to those that drivers publish in ResourceSlices.

Source: staging/src/k8s.io/dynamic-resource-allocation/resourceslice/tracker of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import structs

from kubeloop.informers.store import Store
from kubeloop.kube.objects.device_taints import selects_device
from kubeloop.kube.objects.device_types import Device, DeviceTaint, DeviceTaintRule, ResourceSlice


class RuleTaints:
    """Handler of the informer of DeviceTaintRules.

    rules, slices: the stores of the informers. changed: called with the state of a slice before and after a change of
    a rule that changes its taints.
    """

    def __init__(
        self,
        rules: Store[DeviceTaintRule],
        slices: Store[ResourceSlice],
        changed: Callable[[ResourceSlice, ResourceSlice], None],
    ) -> None:
        self._rules = rules
        self._slices = slices
        self._changed = changed
        self._tainted: dict[str, ResourceSlice] = {}  # by name; slices that no rule taints are missing

    def add_to(self, slice_: ResourceSlice) -> ResourceSlice:
        """Return the slice with the taints of all rules, which follow its own in the order of the rules' names."""
        rules = sorted(self._rules.values(), key=lambda rule: rule.metadata.name)
        rules = [rule for rule in rules if _taints(rule, slice_)]
        if not rules:
            self._tainted.pop(slice_.metadata.name, None)
            return slice_
        devices = tuple(_with_taints(device, rules) for device in slice_.spec.devices)
        tainted = structs.replace(slice_, spec=structs.replace(slice_.spec, devices=devices))
        self._tainted[slice_.metadata.name] = tainted
        return tainted

    def forget(self, slice_: ResourceSlice) -> None:
        """Release a deleted slice."""
        self._tainted.pop(slice_.metadata.name, None)

    def on_add(self, obj: DeviceTaintRule, initial: bool) -> None:
        self._rule_changed((obj,))

    def on_update(self, old: DeviceTaintRule, new: DeviceTaintRule) -> None:
        if old.spec != new.spec:
            self._rule_changed((old, new))

    def on_delete(self, obj: DeviceTaintRule, final_state_unknown: bool) -> None:
        self._rule_changed((obj,))

    def _rule_changed(self, states: Sequence[DeviceTaintRule]) -> None:
        for slice_ in list(self._slices.values()):
            if any(_taints(rule, slice_) for rule in states):
                before = self._tainted.get(slice_.metadata.name, slice_)
                after = self.add_to(slice_)
                if before.spec != after.spec:
                    self._changed(before, after)


def _taints(rule: DeviceTaintRule, slice_: ResourceSlice) -> bool:
    """Return True if a rule taints a device of the slice. A rule without deviceSelector taints all devices."""
    selector, spec = rule.spec.device_selector, slice_.spec
    if selector is None:
        return bool(spec.devices)
    return any(selects_device(selector, spec.driver, spec.pool.name, device.name) for device in spec.devices)


def _with_taints(device: Device, rules: Sequence[DeviceTaintRule]) -> Device:
    """Return a device with the taints of those of the slice's rules that select its name."""
    added: list[DeviceTaint] = []
    for rule in rules:
        selector = rule.spec.device_selector
        if selector is None or selector.device in (None, device.name):
            added.append(rule.spec.taint)
    return structs.replace(device, taints=(*device.taints, *added)) if added else device
