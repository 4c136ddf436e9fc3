"""Pods to create and delete so that every node has the pod it should have.

Pure functions. Source: podsShouldBeOnNode and getUnscheduledPodsWithoutNode in v1.36
pkg/controller/daemon/daemon_controller.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from kubeloop.controllers.daemonset.daemon_pods import REVISION_LABEL, oldest_first
from kubeloop.controllers.daemonset.node_states import NodeState, Revision
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import is_ready


class DaemonPodPlan(msgspec.Struct):
    """create: names of nodes. finished: those pods of `delete` that failed or succeeded, with an event for each.

    retry_seconds: time until the first failed pod that is in back-off may be deleted; None if there is none.
    """

    create: list[str] = []
    delete: list[Pod] = []
    finished: list[Pod] = []
    retry_seconds: float | None = None


def plan_pods(
    states: Iterable[NodeState],
    revision: Revision,
    now: datetime,
    *,
    surges: bool,
    backoff_seconds: Callable[[str], float],
) -> DaemonPodPlan:
    """Return the plan for all nodes.

    surges: see `rolling_update.allows_surge`. backoff_seconds: returns the time for which failed pods on a node are not
    deleted, 0 if there is none.
    """
    plan = DaemonPodPlan()
    abandoned: list[Pod] = []
    for state in states:
        if not state.exists:
            # Never scheduled, so that the pod garbage collector does not delete them.
            abandoned += (pod for pod in state.pods if not pod.spec.node_name)
        elif state.eligibility.should_run and not state.pods:
            plan.create.append(state.name)
        elif state.eligibility.should_continue:
            running = _plan_finished_pods(plan, state, backoff_seconds)
            if surges:
                if not running and state.eligibility.should_run:
                    plan.create.append(state.name)
                plan.delete += _surplus_with_surge(running, revision, now)
            else:
                plan.delete += oldest_first(running)[1:]
        else:
            plan.delete += (pod for pod in state.pods if pod.metadata.deletion_timestamp is None)
    plan.delete += abandoned
    return plan


def _plan_finished_pods(plan: DaemonPodPlan, state: NodeState, backoff_seconds: Callable[[str], float]) -> list[Pod]:
    """Add the finished pods of a node to the plan, and return the others that are not being deleted."""
    running: list[Pod] = []
    for pod in state.pods:
        if pod.metadata.deletion_timestamp is not None:
            continue
        if pod.status.phase == "Failed":
            # The kubelet may reject every new pod; without back-off each sync would replace it.
            seconds = backoff_seconds(state.name)
            if seconds > 0:
                plan.retry_seconds = min(seconds, plan.retry_seconds or seconds)
                continue
        elif pod.status.phase != "Succeeded":
            running.append(pod)
            continue
        plan.finished.append(pod)
        plan.delete.append(pod)
    return running


def _surplus_with_surge(running: list[Pod], revision: Revision, now: datetime) -> list[Pod]:
    """Return the pods to delete of a node that may have an old and a new pod.

    Both stay while the old one is ready and the new one is not yet available.
    """
    if len(running) <= 1:
        return []
    updated: Pod | None = None
    old: Pod | None = None
    surplus: list[Pod] = []
    for pod in oldest_first(running):
        if pod.metadata.labels.get(REVISION_LABEL) == revision.hash:
            if updated is None:
                updated = pod
                continue
        elif old is None:
            old = pod
            continue
        surplus.append(pod)
    if updated is not None and old is not None and (not is_ready(old) or revision.is_available(updated, now)):
        surplus.append(old)
    return surplus
