"""Taints of devices, tolerations, and the devices that a DeviceTaintRule selects.

Pure functions. Source: staging/src/k8s.io/dynamic-resource-allocation/resourceclaim/devicetoleration.go of v1.36.
"""

from __future__ import annotations

from kubeloop.kube.objects.device_types import DeviceTaint, DeviceTaintSelector, DeviceToleration


def tolerates_device_taint(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Return True if the toleration tolerates the taint. An empty operator means Equal."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    return toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == taint.value)


def selects_device(selector: DeviceTaintSelector, driver: str, pool: str, device: str) -> bool:
    return selector.driver in (None, driver) and selector.pool in (None, pool) and selector.device in (None, device)
