"""Taints and labels that the node lifecycle controller sets.

Pure functions. Source: doNoScheduleTaintingPass, reconcileNodeLabels in
pkg/controller/nodelifecycle/node_lifecycle_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from kubeloop.kube.objects.api_types import Node, Taint
from kubeloop.kube.objects.taints_and_tolerations import NO_EXECUTE, NO_SCHEDULE

_PREFIX = "node.kubernetes.io/"
NOT_READY, UNREACHABLE = _PREFIX + "not-ready", _PREFIX + "unreachable"
_UNSCHEDULABLE = _PREFIX + "unschedulable"
_TAINT_KEYS = {  # (condition, status) -> taint key
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): _PREFIX + "memory-pressure",
    ("DiskPressure", "True"): _PREFIX + "disk-pressure",
    ("PIDPressure", "True"): _PREFIX + "pid-pressure",
    ("NetworkUnavailable", "True"): _PREFIX + "network-unavailable",
}
_CONDITION_TAINTS = frozenset({_UNSCHEDULABLE, *_TAINT_KEYS.values()})
_LABELS = {"kubernetes.io/os": "beta.kubernetes.io/os", "kubernetes.io/arch": "beta.kubernetes.io/arch"}


def eviction_taint_key(ready: str) -> str | None:
    """Return the key of the NoExecute taint for this status of the condition Ready; None for a ready node."""
    return _TAINT_KEYS.get(("Ready", ready))


def has_taint(node: Node, key: str, effect: str) -> bool:
    return any(taint.key == key and taint.effect == effect for taint in node.spec.taints)


def has_eviction_taint(node: Node) -> bool:
    return any(_is_eviction_taint(taint) for taint in node.spec.taints)


def with_condition_taints(node: Node, now: datetime) -> tuple[Taint, ...] | None:
    """Return the node's taints with the NoSchedule taints of its conditions and of spec.unschedulable.

    None if it has exactly these.
    """
    keys = [_TAINT_KEYS.get((condition.type, condition.status)) for condition in node.status.conditions]
    if node.spec.unschedulable:
        keys.append(_UNSCHEDULABLE)
    required = dict.fromkeys(key for key in keys if key is not None)
    remaining = [
        taint
        for taint in node.spec.taints
        if taint.effect != NO_SCHEDULE or taint.key not in _CONDITION_TAINTS or taint.key in required
    ]
    present = {taint.key for taint in remaining if taint.effect == NO_SCHEDULE}
    missing = [Taint(key=key, effect=NO_SCHEDULE, time_added=now) for key in required if key not in present]
    if not missing and len(remaining) == len(node.spec.taints):
        return None
    return (*remaining, *missing)


def with_eviction_taint(taints: Iterable[Taint], key: str, now: datetime) -> tuple[Taint, ...]:
    """Return the taints with the NoExecute taint `key`, NOT_READY or UNREACHABLE, and without the other one."""
    return (*without_eviction_taints(taints), Taint(key=key, effect=NO_EXECUTE, time_added=now))


def without_eviction_taints(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Return the taints without the NoExecute taints NOT_READY and UNREACHABLE."""
    return tuple(taint for taint in taints if not _is_eviction_taint(taint))


def _is_eviction_taint(taint: Taint) -> bool:
    return taint.effect == NO_EXECUTE and taint.key in (NOT_READY, UNREACHABLE)


def missing_labels(labels: dict[str, str]) -> dict[str, str]:
    """Return the beta labels of operating system and architecture that differ from the stable ones."""
    return {
        beta: labels[stable]
        for stable, beta in _LABELS.items()
        if stable in labels and labels.get(beta) != labels[stable]
    }
