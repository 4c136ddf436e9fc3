"""Taint eviction controller: plans the deletion of Pods by the NoExecute taints of their nodes, and carries it out.

    Pod or its node changed --> stay_seconds --> None: cancel | 0: evict | s: evict after s, unless planned already

Source: v1.36 pkg/controller/tainteviction/taint_eviction.go.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import NamedTuple

from kubeloop.controllers.runtime.controller import EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.pods.disruption_target import disruption_target, patch_pod_status
from kubeloop.controllers.tainteviction.toleration_time import no_execute_taints, stay_seconds
from kubeloop.kube.errors import NotFound
from kubeloop.kube.objects.api_types import Node, Pod, Taint
from kubeloop.kube.objects.resources import NODES, PODS

log = logging.getLogger(__name__)

_WORKERS = 8


class _Plan(NamedTuple):
    """A planned eviction. due: loop time."""

    due: float
    uid: str


class TaintEvictionController(EventDrivenController):
    """Evicts Pods, by key; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "tainteviction", "noexec_taint_pod", workers=_WORKERS)
        self._comparison_operators = context.feature_gates.enabled("TaintTolerationComparisonOperators")
        self._deletions = context.metrics.counter(
            "taint_eviction_controller_pod_deletions_total",
            "Total number of Pods deleted by TaintEvictionController since its start.",
        ).labels()
        self._deletion_seconds = context.metrics.histogram(
            "taint_eviction_controller_pod_deletion_duration_seconds",
            "Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion"
            " via TaintEvictionController.",
            buckets=(0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240),
        ).labels()
        pods, nodes = context.informers.informer(PODS), context.informers.informer(NODES)
        self._pods = pods.store
        self._pods.add_index("node")
        self._tainted: dict[str, tuple[Taint, ...]] = {}  # node -> its NoExecute taints; nodes without are missing
        self._plans: dict[str, _Plan] = {}  # by key of the Pod
        self._evicted: dict[str, str] = {}  # key of a terminating Pod -> its UID
        self._registrations = (
            nodes.on_latest(self.on_node, deleted=lambda node: self._tainted.pop(node.metadata.name, None)),
            pods.on_events(added=self.on_pod, updated=self.on_pod_update, deleted=self.on_pod_delete),
        )

    # --- event handlers --------------------------------------------------------------------------------------------

    def on_node(self, node: Node) -> None:
        name, taints = node.metadata.name, no_execute_taints(node)
        if taints == self._tainted.get(name, ()):
            return
        if taints:
            self._tainted[name] = taints
        else:
            del self._tainted[name]
        for pod in self._pods.by_index("node", name):
            try:
                self._plan(pod, taints)
            except Exception:
                log.exception("cannot plan the eviction of a pod", extra={"pod": pod.key})

    def on_pod(self, pod: Pod) -> None:
        taints = self._tainted.get(pod.spec.node_name)
        if taints is not None:
            self._plan(pod, taints)

    def on_pod_update(self, old: Pod, new: Pod) -> None:
        if old.spec.node_name != new.spec.node_name or old.spec.tolerations != new.spec.tolerations:
            self.on_pod(new)

    def on_pod_delete(self, pod: Pod) -> None:
        self._evicted.pop(pod.key, None)
        self._cancel(pod)

    # --- plans -----------------------------------------------------------------------------------------------------

    def _plan(self, pod: Pod, taints: tuple[Taint, ...]) -> None:
        """Plan, replace or cancel the eviction of a Pod."""
        stay = None
        if taints:
            stay = stay_seconds(taints, pod.spec.tolerations, comparison_operators=self._comparison_operators)
        if stay is None:
            self._cancel(pod)
            return
        uid = pod.metadata.uid
        if self._evicted.get(pod.key) == uid:
            return
        if pod.key in self._plans:
            if stay or self._is_due(pod.key):
                return  # tolerationSeconds count from the first taint, and later tolerations change nothing
            self._cancel(pod)
        self._plans[pod.key] = _Plan(asyncio.get_running_loop().time() + stay, uid)
        self.queue.add_after(pod.key, stay)

    def _is_due(self, key: str) -> bool:
        """Return True for a plan that is being carried out."""
        return self._plans[key].due <= asyncio.get_running_loop().time()

    def _cancel(self, pod: Pod) -> None:
        if pod.key not in self._plans:
            return
        is_due = self._is_due(pod.key)
        del self._plans[pod.key]
        if not is_due:
            self._events.event(pod, "Normal", "TaintManagerEviction", f"Cancelling deletion of Pod {pod.key}")

    # --- reconcile -------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        """Evict a Pod if its planned time has come, else return the seconds until then.

        An exception means: retry with backoff.
        """
        plan = self._plans.get(key)
        if plan is None:
            return None
        seconds = plan.due - asyncio.get_running_loop().time()
        if seconds > 0:
            return seconds
        pod = self._pods.get(key)
        if pod is not None and pod.metadata.uid == plan.uid:
            if not self.queue.num_requeues(key):
                self._events.event(pod, "Normal", "TaintManagerEviction", f"Marking for deletion Pod {key}")
            with suppress(NotFound):
                await self._evict(pod)
                self._deletions.inc()
                self._deletion_seconds.observe(asyncio.get_running_loop().time() - plan.due)
        if self._plans.get(key) == plan:
            del self._plans[key]
        pod = self._pods.get(key)
        if pod is not None and pod.metadata.uid == plan.uid:
            self._evicted[key] = plan.uid
        return None

    async def _evict(self, pod: Pod) -> None:
        message = "Taint manager: deleting due to NoExecute taint"
        condition = disruption_target(pod, "DeletionByTaintManager", message, self._clock.now())
        metadata = pod.metadata
        await patch_pod_status(self._client, pod, condition)
        await self._client.delete(PODS, metadata.name, metadata.namespace, precondition_uid=metadata.uid)
