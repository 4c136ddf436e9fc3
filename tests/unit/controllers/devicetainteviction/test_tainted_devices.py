"""Devices with NoExecute taints, from the newest generation of each pool."""

from __future__ import annotations

from kubeloop.controllers.devicetainteviction.tainted_devices import TaintedDevices
from kubeloop.kube.objects.device_types import DeviceTaint
from support.objects.devices import DRIVER, device, device_slice, typed

BROKEN = {"key": "example.com/broken", "effect": "NoExecute"}
CORDONED = {"key": "example.com/cordoned", "effect": "NoSchedule"}
TAINT = DeviceTaint(key="example.com/broken", effect="NoExecute")
GPU = (DRIVER, "a", "gpu-0")


def gpus(*taints, **fields):
    return typed(device_slice("a", device("gpu-0", taints=list(taints)), device("gpu-1"), **fields))


def test_taints_with_other_effects_do_not_count():
    devices = TaintedDevices()
    assert devices.change(None, gpus(BROKEN, CORDONED)) == {GPU}
    assert devices.taints(*GPU) == (TAINT,)
    assert devices.taints(DRIVER, "a", "gpu-1") == ()
    assert devices.change(gpus(BROKEN, CORDONED), gpus(BROKEN)) == set()
    assert devices.change(gpus(BROKEN), gpus(CORDONED)) == {GPU}
    assert devices.taints(*GPU) == ()


def test_deleted_slice_untaints_its_devices():
    devices = TaintedDevices()
    devices.change(None, gpus(BROKEN))
    assert devices.change(gpus(BROKEN), None) == {GPU}
    assert list(devices.devices()) == []


def test_older_generation_of_a_pool_does_not_count():
    devices = TaintedDevices()
    devices.change(None, gpus(BROKEN, name="old"))
    assert devices.change(None, gpus(name="new", generation=2)) == {GPU}
    assert devices.taints(*GPU) == ()
    assert sorted(devices.devices()) == [GPU, (DRIVER, "a", "gpu-1")]
    assert devices.change(gpus(name="new", generation=2), None) == {GPU}  # the older one is the newest again
    assert devices.taints(*GPU) == (TAINT,)


def test_slice_that_moves_to_another_pool_changes_both():
    devices = TaintedDevices()
    devices.change(None, gpus(BROKEN, name="slice"))
    moved = gpus(BROKEN, name="slice", pool="b")
    assert devices.change(gpus(BROKEN, name="slice"), moved) == {GPU, (DRIVER, "b", "gpu-0")}
    assert devices.taints(DRIVER, "b", "gpu-0") == (TAINT,)


def test_changed_value_is_reported():
    devices = TaintedDevices()
    devices.change(None, gpus(BROKEN))
    assert devices.change(gpus(BROKEN), gpus({**BROKEN, "value": "fan"})) == {GPU}
