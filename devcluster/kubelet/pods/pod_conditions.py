"""Conditions of a pod that its kubelet reports: Ready, ContainersReady, Initialized, those of resizes. Pure functions.

Source: pkg/kubelet/status/generate.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kubeloop.devcluster.kubelet.containers.container_run import ContainerRun
from kubeloop.kube.json_object import JSON

RESIZE_PENDING, RESIZING = "PodResizePending", "PodResizeInProgress"


class Resize(NamedTuple):
    """A resize that is not finished. type: of its condition. generation: of the pod whose spec asks for it."""

    type: str
    generation: int
    reason: str = ""
    message: str = ""


class _Conditions:
    """Conditions of the kubelet, in its order; a transition time changes with the status only."""

    def __init__(self, pod: JSON, now: str) -> None:
        old = (pod.get("status") or {}).get("conditions") or ()
        self.old: dict[str, JSON] = {condition["type"]: condition for condition in old}
        self._generation = pod["metadata"].get("generation", 0)
        self._now = now
        self._set: dict[str, JSON] = {}

    def set(self, type_: str, status: bool, reason: str = "", message: str = "") -> None:
        value = "True" if status else "False"
        before = self.old.get(type_)
        same = before is not None and before.get("status") == value
        condition: JSON = {
            "type": type_,
            "status": value,
            "lastProbeTime": None,
            "lastTransitionTime": before["lastTransitionTime"] if same and before else self._now,
        }
        if self._generation:
            condition["observedGeneration"] = self._generation
        if reason:
            condition["reason"] = reason
        if message:
            condition["message"] = message
        self._set[type_] = condition

    def set_resize(self, resize: Resize) -> None:
        """Set PodResizePending or PodResizeInProgress, whose transition time changes with its reason."""
        self.set(resize.type, True, resize.reason, resize.message)
        condition, before = self._set[resize.type], self.old.get(resize.type)
        if before is not None and before.get("reason", "") != resize.reason:
            condition["lastTransitionTime"] = self._now
        if resize.generation:
            condition["observedGeneration"] = resize.generation

    def all(self) -> list[JSON]:
        """Return the kubelet's conditions, then other writers' unchanged."""
        others = (
            value for key, value in self.old.items() if key not in self._set and key not in (RESIZE_PENDING, RESIZING)
        )
        return [*self._set.values(), *others]


def pod_conditions(
    pod: JSON, runs: Sequence[ContainerRun], phase: str, *, now: str, has_network: bool, resizes: Iterable[Resize]
) -> list[JSON]:
    """Return the conditions of `pod`, with those of other writers unchanged. resizes: those that are not finished."""
    conditions = _Conditions(pod, now)
    has_ended = phase in ("Succeeded", "Failed")
    for resize in () if has_ended else resizes:
        conditions.set_resize(resize)
    conditions.set("PodReadyToStartContainers", has_network and not has_ended)
    _set_initialized(conditions, runs, phase)
    _set_ready(conditions, pod, runs, phase)
    scheduled = conditions.old.get("PodScheduled")
    if scheduled is None or scheduled.get("status") != "True":
        conditions.set("PodScheduled", True)
    return conditions.all()


def rejected_conditions(pod: JSON, *, now: str) -> list[JSON]:
    """Return the conditions of a pod that its node rejects."""
    conditions = _Conditions(pod, now)
    for type_ in ("Ready", "ContainersReady"):
        conditions.set(type_, False, "PodFailed")
    return conditions.all()


def _set_initialized(conditions: _Conditions, runs: Sequence[ContainerRun], phase: str) -> None:
    waiting = [
        run
        for run in runs
        if (run.role == "init" and not run.has_succeeded) or (run.role == "sidecar" and not run.started)
    ]
    main_ran = any(run.role == "main" and (run.state != "waiting" or run.last_state) for run in runs)
    if phase == "Succeeded":
        conditions.set("Initialized", True, "PodCompleted")
    elif waiting and not main_ran:
        text = f"containers with incomplete status: {_names(waiting)}"
        conditions.set("Initialized", False, "ContainersNotInitialized", text)
    else:
        conditions.set("Initialized", True)


def _set_ready(conditions: _Conditions, pod: JSON, runs: Sequence[ContainerRun], phase: str) -> None:
    """Set Ready and ContainersReady, by the containers and the readiness gates."""
    unready = [run for run in runs if run.role in ("main", "sidecar") and not (run.state == "running" and run.ready)]
    if phase in ("Succeeded", "Failed"):
        reason, text = "PodCompleted" if phase == "Succeeded" else "PodFailed", ""
    elif unready:
        reason, text = "ContainersNotReady", f"containers with unready status: {_names(unready)}"
    else:
        closed = ", ".join(_closed_gates(pod, conditions.old))
        conditions.set("Ready", not closed, "ReadinessGatesNotReady" if closed else "", closed)
        conditions.set("ContainersReady", True)
        return
    for type_ in ("Ready", "ContainersReady"):
        conditions.set(type_, False, reason, text)


def _closed_gates(pod: JSON, conditions: Mapping[str, JSON]) -> Iterator[str]:
    """Yield a message for each readiness gate whose condition is not True."""
    for gate in pod["spec"].get("readinessGates") or ():
        type_ = gate["conditionType"]
        condition = conditions.get(type_)
        if condition is None:
            yield f'corresponding condition of pod readiness gate "{type_}" does not exist.'
        elif condition.get("status") != "True":
            yield f'the status of pod readiness gate "{type_}" is not "True", but {condition.get("status")}'


def _names(runs: Sequence[ContainerRun]) -> str:
    return f"[{' '.join(run.name for run in runs)}]"  # as Go prints a list
