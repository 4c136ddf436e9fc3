"""The condition Ready of the pods of nodes that are not ready."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kubeloop.controllers.runtime.controller import ReconcileLoop
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.writes.object_patch import patch_object
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import JSONValue, Pod
from kubeloop.kube.objects.object_fields import condition_of
from kubeloop.kube.objects.resources import PODS

log = logging.getLogger(__name__)

_WORKERS = 4


class NotReadyPods:
    """Writes Ready=False to pods of nodes that are not ready: those of a node at once, and pods that are bound later.

    is_not_ready: returns True for the name of a node that is known not to be ready. failed: names of nodes with pods
    that could not be marked.
    """

    def __init__(self, context: ControllerContext, is_not_ready: Callable[[str], bool]) -> None:
        self._client = context.client
        self._clock = context.clock
        self._events = context.events
        self._is_not_ready = is_not_ready
        self.failed: set[str] = set()
        pods = context.informers.informer(PODS)
        self._pods = pods.store
        self._pods.add_index("node")
        self._queue = context.new_queue("node_lifecycle_controller_pods")
        self.controller = ReconcileLoop("node-lifecycle-pods", self.reconcile, self._queue, _WORKERS, context)
        self.registration = pods.on_events(added=lambda pod: self._on_pod(None, pod), updated=self._on_pod)

    def _on_pod(self, old: Pod | None, pod: Pod) -> None:
        node = pod.spec.node_name
        if node and (old is None or old.spec.node_name != node) and self._is_not_ready(node):
            self._queue.add(pod.key)

    async def reconcile(self, key: str) -> None:
        """Mark a Pod of a node that is not ready. An exception means: retry with backoff."""
        pod = self._pods.get(key)
        if pod is not None and self._is_not_ready(pod.spec.node_name):
            await self._mark(pod)

    async def mark_pods_of(self, node: str) -> None:
        """Mark all Pods of a node; `failed` has the node if one could not be marked."""
        self.failed.discard(node)
        for pod in self._pods.by_index("node", node):
            try:
                await self._mark(pod)
            except (ApiError, ServerUnreachable) as error:
                log.warning("could not mark pod %s as not ready: %s", pod.key, error)
                self.failed.add(node)

    async def _mark(self, pod: Pod) -> None:
        ready = condition_of(pod.status.conditions, "Ready")
        if ready is None or ready.status == "False":
            return
        condition: JSONValue = {"type": "Ready", "status": "False", "lastTransitionTime": rfc3339(self._clock.now())}
        metadata = pod.metadata
        patch = {
            "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
            "status": {"conditions": [condition]},
        }
        try:
            await patch_object(self._client, PODS, pod, patch, PatchType.STRATEGIC, "status")
        except NotFound:
            return
        self._events.event(pod, "Warning", "NodeNotReady", "Node is not ready")
