"""Status of a DaemonSet. Pure functions. Source: updateDaemonSetStatus in v1.36 daemon_controller.go."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from kubeloop.controllers.daemonset.daemon_pods import oldest_first
from kubeloop.controllers.daemonset.node_states import NodeStates, Revision
from kubeloop.kube.objects.api_types import DaemonSetStatus
from kubeloop.kube.objects.object_fields import is_ready

ALWAYS_SET = {"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0}
"""Fields that are written as 0, where others are omitted."""


def daemon_set_status(status: DaemonSetStatus, nodes: NodeStates, revision: Revision, now: datetime) -> DaemonSetStatus:
    """Return `status` with new counts. Of several pods on a node the oldest counts."""
    desired = current = ready = available = updated = nodes.complete
    misscheduled = 0
    for state in nodes.states:
        if not state.exists:
            continue
        if not state.eligibility.should_run:
            misscheduled += bool(state.pods)
            continue
        desired += 1
        if not state.pods:
            continue
        current += 1
        pod = oldest_first(state.pods)[0] if len(state.pods) > 1 else state.pods[0]
        ready += is_ready(pod)
        available += revision.is_available(pod, now)
        updated += revision.has(pod)
    return replace(
        status,
        desired_number_scheduled=desired,
        current_number_scheduled=current,
        number_misscheduled=misscheduled,
        number_ready=ready,
        updated_number_scheduled=updated,
        number_available=available,
        number_unavailable=desired - available,
    )
