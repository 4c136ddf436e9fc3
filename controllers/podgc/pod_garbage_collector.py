"""Pod garbage collector: a periodic check of all Pods, and the deletion of those that `pod_selection` returns.

A node that is missing is quarantined first, because the caches of Pods and Nodes may differ for a moment. Source: v1.36
pkg/controller/podgc/gc_controller.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress

from kubeloop.controllers.podgc.pod_selection import (
    pods_on_out_of_service_nodes,
    surplus_terminated_pods,
    unscheduled_terminating_pods,
)
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.pods.disruption_target import disruption_target, patch_pod_status
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import is_finished
from kubeloop.kube.objects.resources import NODES, PODS

log = logging.getLogger(__name__)

CHECK_SECONDS = 20.0
QUARANTINE_SECONDS = 40.0
_STATES = "pod-gc"  # index of Pods: those of most checks are few


def _states(pod: Pod) -> list[str]:
    """Return the states for which a Pod may have to be deleted."""
    states = ["finished"] if is_finished(pod) else []
    return [*states, "terminating"] if pod.metadata.deletion_timestamp is not None else states


class PodGarbageCollector:
    """Deletes Pods every 20 seconds; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._pods = context.informers.informer(PODS)
        self._pods.store.add_index(_STATES, _states)
        self._nodes = context.informers.informer(NODES)
        labels = "namespace", "reason"
        self._deletions = context.metrics.counter(
            "pod_gc_collector_force_delete_pods_total",
            "Number of pods that are being forcefully deleted since the Pod GC Controller started.",
            labels,
        )
        self._errors = context.metrics.counter(
            "pod_gc_collector_force_delete_pod_errors_total",
            "Number of errors encountered when forcefully deleting the pods since the Pod GC Controller started.",
            labels,
        )
        self._threshold: int = context.options["terminated_pod_gc_threshold"]
        self._node_deleted = asyncio.Event()
        self._registration = self._nodes.on_events(deleted=lambda _node: self._node_deleted.set())
        self._quarantine: dict[str, float] = {}  # missing node -> loop time of the end of its quarantine

    async def run(self) -> None:
        """Check all Pods until cancelled: every 20 seconds, when a Node is deleted, and at the end of a quarantine."""
        await self._pods.wait_synced()
        await self._registration.wait_synced()
        loop = asyncio.get_running_loop()
        next_check = loop.time()
        while True:
            self._node_deleted.clear()
            await self.collect()
            now = loop.time()
            if next_check <= now:
                next_check = now + CHECK_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min([next_check, *self._quarantine.values()])):
                    await self._node_deleted.wait()

    async def collect(self) -> None:
        """Delete the Pods of one check. Failures are logged; the next check tries again."""
        pods = self._pods.store
        finished, terminating = pods.by_index(_STATES, "finished"), pods.by_index(_STATES, "terminating")
        await self._delete(surplus_terminated_pods(finished, self._threshold), "terminated")
        await self._delete(pods_on_out_of_service_nodes(terminating, self._nodes.store.get), "out-of-service")
        orphans = [pod for name in await self._nodes_gone() for pod in pods.by_index("node", name)]
        await self._delete(orphans, "orphaned", disruption="PodGC: node no longer exists")
        await self._delete(unscheduled_terminating_pods(terminating), "unscheduled")

    async def _nodes_gone(self) -> list[str]:
        """Quarantine nodes that are missing. Return those whose quarantine is over, and that the API server does not
        have either."""
        now = asyncio.get_running_loop().time()
        missing = sorted(self._pods.store.index_values("node") - self._nodes.store.keys())
        self._quarantine = {name: self._quarantine.get(name, now + QUARANTINE_SECONDS) for name in missing}
        gone = []
        for name in [name for name, until in self._quarantine.items() if until <= now]:
            del self._quarantine[name]
            try:
                await self._client.get(NODES, name)
            except NotFound:
                gone.append(name)
            except (ApiError, ServerUnreachable) as error:
                log.warning("could not read node %s of orphaned pods: %s", name, error)
        return gone

    async def _delete(self, pods: Collection[Pod], reason: str, *, disruption: str = "") -> None:
        if not pods:
            return
        async with asyncio.TaskGroup() as deletions:
            for pod in pods:
                deletions.create_task(self._delete_pod(pod, reason, disruption))

    async def _delete_pod(self, pod: Pod, reason: str, disruption: str) -> None:
        """Mark an unfinished Pod as failed, so that it does not stay Running without a kubelet, and delete it."""
        metadata = pod.metadata
        self._deletions.labels(metadata.namespace, reason).inc()
        try:
            if not is_finished(pod):
                conditions = []
                if disruption:
                    conditions = [disruption_target(pod, "DeletionByPodGC", disruption, self._clock.now())]
                await patch_pod_status(
                    self._client, pod, *conditions, phase="Failed", observedGeneration=metadata.generation
                )
            await self._client.delete(
                PODS, metadata.name, metadata.namespace, grace_period_seconds=0, precondition_uid=metadata.uid
            )
        except NotFound:
            return
        except (ApiError, ServerUnreachable) as error:
            log.warning("could not delete pod %s: %s", pod.key, error)
            self._errors.labels(metadata.namespace, reason).inc()
        except Exception:
            log.exception("could not delete pod %s", pod.key)
            self._errors.labels(metadata.namespace, reason).inc()
