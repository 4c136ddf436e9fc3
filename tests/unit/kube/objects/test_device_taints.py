"""Tolerations of device taints, and selectors of DeviceTaintRules."""

from __future__ import annotations

import pytest

from kubeloop.kube.objects.device_taints import selects_device, tolerates_device_taint
from kubeloop.kube.objects.device_types import DeviceTaint, DeviceTaintSelector, DeviceToleration

TAINT = DeviceTaint(key="example.com/broken", value="yes", effect="NoExecute")


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "key": "example.com/broken"}, True),
        ({"operator": "Exists", "key": "example.com/other"}, False),
        ({"operator": "Exists", "effect": "NoExecute"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, False),
        ({"operator": "Equal", "key": "example.com/broken", "value": "yes"}, True),
        ({"key": "example.com/broken", "value": "yes"}, True),
        ({"operator": "Equal", "key": "example.com/broken"}, False),
        ({"operator": "Other", "key": "example.com/broken", "value": "yes"}, False),
    ],
)
def test_toleration_of_a_taint(toleration, tolerates):
    assert tolerates_device_taint(DeviceToleration(**toleration), TAINT) == tolerates


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        ({}, True),
        ({"driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0"}, True),
        ({"driver": "nic.example.com"}, False),
        ({"pool": "node-1"}, False),
        ({"device": "gpu-1"}, False),
    ],
)
def test_selector_requires_each_field_that_is_set(selector, selects):
    assert selects_device(DeviceTaintSelector(**selector), "gpu.example.com", "node-0", "gpu-0") == selects
