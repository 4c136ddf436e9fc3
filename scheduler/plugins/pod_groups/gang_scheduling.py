"""GangScheduling: the pods of a group with a gang policy are scheduled once minCount of them fit, or none of them.

Source: plugins/gangscheduling of v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import ADD, POD, POD_GROUP, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.listers import Lister
from kubeloop.scheduler.api.results import failed, on_event, unresolvable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_groups import PodGroupStates, pod_group_key
from kubeloop.scheduler.config.plugin_args import NoArgs

PERMIT_SECONDS = 300.0
"""For which a pod of a gang waits for minCount pods to have a node; then its node is released."""


class GangScheduling:
    name = "GangScheduling"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._handle = handle
        self._pod_groups = handle.listers.pod_groups
        self._states = handle.pod_groups
        self._waits = Status(Code.WAIT, ("waiting for minCount pods from a gang to be scheduled",), self.name)

    def pre_enqueue(self, pod: Pod) -> Status | None:
        key = pod_group_key(pod)
        if not key:
            return None
        pod_group = self._pod_groups.get(key)
        if pod_group is None:
            name = key.partition("/")[2]
            message = f'waiting for pods\'s pod group "{name}" to appear in scheduling queue'  # kube-scheduler's text
            return unresolvable(self.name, message)
        state = self._states.get(key)
        if (len(state.pods) if state is not None else 0) < _min_count(pod_group):
            return unresolvable(self.name, "waiting for minCount pods from a gang to appear in scheduling queue")
        return None

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status | None, float]:
        """Wait until minCount pods of the gang have a node, then allow all that wait.

        In the cycle of the group, the nodes are those found so far, and no waiting pod is allowed: the cycle may still
        end without binding any.
        """
        key = pod_group_key(pod.pod)
        if not key:
            return None, 0
        pod_group = self._pod_groups.get(key)
        if pod_group is None:
            name = key.partition("/")[2]
            return failed(self.name, f'failed to get podGroup {key}: podgroup.scheduling.k8s.io "{name}" not found'), 0
        min_count = _min_count(pod_group)
        if not min_count:
            return None, 0
        cycle = state.pod_group_cycle
        group = cycle.pods if cycle is not None else self._states.get(key)
        if group is None:
            return failed(self.name, f"pod group state not found for pod group {key}"), 0
        if group.scheduled_count < min_count:
            self._handle.activate(group.take_inactive())
            if cycle is None:
                group.waiting[pod.uid] = None
            return self._waits, PERMIT_SECONDS
        if cycle is None:
            for uid in group.waiting:
                waiting = self._handle.waiting_pod(uid)
                if waiting is not None:
                    waiting.allow(self.name)
            group.waiting.clear()
        return None, 0

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        # Neither a pod's scheduling group nor the policy of a PodGroup changes.
        return on_event(POD, ADD, self._after_pod_added), on_event(POD_GROUP, ADD, self._after_pod_group_added)

    def _after_pod_added(self, pod: Pod, old: Any, new: Pod | None) -> Hint:
        """Return QUEUE for another member of the pod's group: it may complete the gang."""
        key = pod_group_key(pod)
        return Hint.QUEUE if key and new is not None and pod_group_key(new) == key else Hint.SKIP

    def _after_pod_group_added(self, pod: Pod, old: Any, new: PodGroup | None) -> Hint:
        return Hint.QUEUE if new is not None and pod_group_key(pod) == new.key else Hint.SKIP


def completes_gang(pod: Pod, pod_groups: Lister[PodGroup], states: PodGroupStates) -> bool:
    """Return True if the gang of a pod that was just added has exactly minCount pods now."""
    key = pod_group_key(pod)
    pod_group, state = (pod_groups.get(key), states.get(key)) if key else (None, None)
    return pod_group is not None and state is not None and len(state.pods) == _min_count(pod_group)


def _min_count(pod_group: PodGroup) -> int:
    """Return the pods that must be scheduled together; 0 for a group without a gang policy."""
    gang = pod_group.spec.scheduling_policy.gang
    return gang.min_count if gang is not None else 0
