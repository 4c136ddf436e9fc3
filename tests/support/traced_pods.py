"""An HTTP endpoint with traced pods: tests put pods into the recorder and the informer's store."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator

from prometheus_client import CollectorRegistry

from kubeloop.informers.store import Store
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects import api_types
from kubeloop.process.endpoint.server import EndpointServer
from kubeloop.process.endpoint.trace_pages import add_trace_pages
from kubeloop.tracing.provider import Tracing
from kubeloop.tracing.recording.pod_recorder import AttemptFacts
from support.endpoints import serving


class TracedPods:
    """The pods of one process, in namespace "shop", of the Deployment "web"; names are "web-5f-N"."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.tracing = Tracing(clock=self.clock, rng=random.Random(11), environ={})
        self.pods: Store[api_types.Pod] = Store()
        self.deployments: Store[api_types.Deployment] = Store()
        self.traceparents: dict[str, str] = {}
        self.creator = ""  # traceparent of the reconcile that creates them

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Run an endpoint with the trace pages and yield its URL."""
        endpoint = EndpointServer(CollectorRegistry(), clock=SystemClock())
        add_trace_pages(endpoint, self.tracing, self.pods, self.deployments)
        async with serving(endpoint) as url:
            yield url

    def requested(self, name: str) -> None:
        request = self.tracing.pods.create_requested(
            namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f", link=self.creator
        )
        self.traceparents[name] = request.traceparent

    def pending(self, name: str, *, message: str = "") -> None:
        """Create and queue a pod; with a message, record an unschedulable attempt with this message."""
        self.requested(name)
        traces = self.tracing.pods
        pod = self._put_pod(name)
        traces.created(self.traceparents[name], pod)
        traces.observed(pod)
        traces.queued(pod, "active", "PodAdd")
        if message:
            traces.attempt_started(pod, 1)
            now_ns = self.clock.time_ns()
            facts = AttemptFacts(
                "unschedulable", nodes=3, rejections={"NodeAffinity": 3}, filter_ns=(now_ns, now_ns), message=message
            )
            traces.attempt_finished(pod, facts)
            traces.queued(pod, "unschedulable", "ScheduleAttemptFailure")

    def bound(self, name: str, node: str = "node-1") -> None:
        """Record that a pending pod was bound and is ready."""
        traces = self.tracing.pods
        pod = self.pods[f"shop/{name}"]
        traces.attempt_started(pod, 1)
        now_ns = self.clock.time_ns()
        facts = AttemptFacts("scheduled", nodes=3, feasible=3, filter_ns=(now_ns, now_ns), node=node)
        traces.attempt_finished(pod, facts)
        traces.bind_started(pod, node)
        traces.bind_finished(pod)
        traces.observed(self._put_pod(name, node=node))

    def untraced(self, name: str) -> None:
        self._put_pod(name, node="node-9")

    def _put_pod(self, name: str, node: str = "") -> api_types.Pod:
        traceparent = self.traceparents.get(name, "")
        ready = [{"type": "Ready", "status": "True"}] if node else []
        pod = api_types.convert(
            api_types.Pod,
            {
                "metadata": {
                    "name": name,
                    "namespace": "shop",
                    "uid": f"uid of {name}",
                    "labels": {"pod-template-hash": "5f"},
                    "annotations": {"tracing.k8s.io/traceparent": traceparent} if traceparent else {},
                    "ownerReferences": [{"kind": "ReplicaSet", "name": "web-5f", "uid": "rs", "controller": True}],
                    "creationTimestamp": "2026-01-01T12:00:00Z",
                },
                "spec": {"nodeName": node},
                "status": {"phase": "Running" if node else "Pending", "conditions": ready},
            },
        )
        self.pods.put(pod.key, pod)
        return pod
