"""Taints of DeviceTaintRules in the scheduler's view of ResourceSlices."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import DEVICE_TAINT_RULES, RESOURCE_SLICES
from kubeloop.scheduler.devices.cluster.rule_taints import RuleTaints
from kubeloop.scheduler.devices.cluster_devices import ClusterDevices
from support.objects.devices import (
    DRIVER,
    FilledDevices,
    allocate,
    chosen,
    claim,
    device,
    device_class,
    device_slice,
    request,
    taint_rule,
    typed,
)
from support.simulation.set_clock import SetClock

GATE = {"DRADeviceTaintRules": True}
SLICE = device_slice("a", device("d", taints=[{"key": "example.com/own", "effect": "NoSchedule"}]), device("e"))


class Slices:
    """Informers of rules and slices, and the RuleTaints over them; `changes` are those that it reports."""

    def __init__(self) -> None:
        client: Any = None
        informers = InformerFactory(client, clock=SetClock(datetime(2026, 3, 1, tzinfo=UTC)), rng=random.Random(1))
        self.rules, self.slices = informers.informer(DEVICE_TAINT_RULES), informers.informer(RESOURCE_SLICES)
        self.changes: list[tuple[Any, Any]] = []
        self.taints = RuleTaints(self.rules.store, self.slices.store, lambda old, new: self.changes.append((old, new)))
        self.rules.add_handler(self.taints)
        self._version = 0

    def apply(self, *objects: Any, type_: str = "MODIFIED") -> None:
        for obj in objects:
            self._version += 1
            changed = typed({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}})
            informer = self.rules if obj["kind"] == "DeviceTaintRule" else self.slices
            informer.apply(type_, changed, 0)

    def keys(self) -> dict[str, list[str]]:
        """Return the keys of the taints of each device."""
        (slice_,) = self.slices.store.values()
        devices = self.taints.add_to(slice_).spec.devices
        return {entry.name: [taint.key for taint in entry.taints] for entry in devices}


@pytest.mark.parametrize(
    ("selector", "tainted"),
    [
        ({}, ["d", "e"]),
        ({"device": "e"}, ["e"]),
        ({"driver": DRIVER, "pool": "a", "device": "d"}, ["d"]),
        ({"driver": "nic.example.com"}, []),
        ({"pool": "b"}, []),
    ],
)
def test_rule_taints_the_devices_that_it_selects(selector, tainted):
    slices = Slices()
    slices.apply(SLICE, taint_rule(**selector))
    assert [name for name, keys in slices.keys().items() if "example.com/rule" in keys] == tainted
    assert len(slices.changes) == bool(tainted)


def test_rule_without_selector_taints_every_device():
    rule = taint_rule()
    del rule["spec"]["deviceSelector"]
    slices = Slices()
    slices.apply(SLICE, rule)
    assert slices.keys() == {"d": ["example.com/own", "example.com/rule"], "e": ["example.com/rule"]}


def test_taints_follow_changes_and_deletions_of_rules():
    slices = Slices()
    slices.apply(SLICE, taint_rule("y", key="example.com/y"), taint_rule("x", key="example.com/x", device="e"))
    assert slices.keys() == {"d": ["example.com/own", "example.com/y"], "e": ["example.com/x", "example.com/y"]}
    slices.apply(taint_rule("y", key="example.com/y", device="e"))
    assert slices.keys() == {"d": ["example.com/own"], "e": ["example.com/x", "example.com/y"]}
    for name in ("x", "y"):
        slices.apply(taint_rule(name), type_="DELETED")
    assert slices.keys() == {"d": ["example.com/own"], "e": []}
    assert len(slices.changes) == 5
    before, after = slices.changes[-1]
    assert (before.spec.devices[1].taints != (), after.spec.devices[1].taints) == (True, ())


def test_change_of_a_rule_that_leaves_taints_as_they_are_is_not_reported():
    slices = Slices()
    slices.apply(SLICE, taint_rule(device="e"))
    slices.apply(taint_rule(device="e"), taint_rule("other", pool="b"))
    assert len(slices.changes) == 1


def test_rule_that_is_created_again_taints_again():
    slices = Slices()
    slices.apply(SLICE, taint_rule(device="e"))
    for type_ in ("DELETED", "ADDED"):
        slices.apply(taint_rule(device="e"), type_=type_)
    assert [[bool(entry.spec.devices[1].taints) for entry in change] for change in slices.changes] == [
        [False, True],
        [True, False],
        [False, True],
    ]


# --- allocation -------------------------------------------------------------------------------------------------------


def test_tainted_device_is_not_allocated_until_the_rule_is_deleted():
    devices = FilledDevices(device_class(), device_slice("a", device("d")), gates=GATE)
    devices.apply(taint_rule(effect="NoSchedule"))
    assert allocate(devices, claim("c")) is None
    tolerant = request(tolerations=[{"operator": "Exists", "key": "example.com/rule"}])
    assert chosen(allocate(devices, claim("c", tolerant))) == ["r: a/d"]
    devices.delete(taint_rule())
    assert chosen(allocate(devices, claim("c"))) == ["r: a/d"]


def test_slice_that_is_published_later_is_tainted():
    devices = FilledDevices(device_class(), taint_rule(), gates=GATE)
    devices.apply(device_slice("a", device("d")))
    assert allocate(devices, claim("c")) is None
    devices.delete(device_slice("a", device("d")))
    devices.delete(taint_rule())
    devices.apply(device_slice("a", device("d")))
    assert chosen(allocate(devices, claim("c"))) == ["r: a/d"]


def test_rule_that_the_informers_have_already_counts():
    filled = FilledDevices(device_class(), device_slice("a", device("d")), taint_rule(), gates=GATE)
    assert allocate(ClusterDevices(filled.informers, FeatureGates(GATE)), claim("c")) is None


def test_rules_do_not_count_without_their_gate():
    devices = FilledDevices(device_class(), device_slice("a", device("d")), taint_rule())
    assert chosen(allocate(devices, claim("c"))) == ["r: a/d"]


def test_changed_taints_are_reported_after_the_pools_have_changed():
    filled = FilledDevices(device_class(), device_slice("a", device("d")), gates=GATE)
    results: list[Any] = []
    report: Callable[..., None] = lambda _old, _new: results.append(allocate(devices, claim("c")))  # noqa: E731
    devices = ClusterDevices(filled.informers, FeatureGates(GATE), taints_changed=report)
    filled.apply(taint_rule())
    filled.delete(taint_rule())
    assert [chosen(result) for result in results] == [None, ["r: a/d"]]
