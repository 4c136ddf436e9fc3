"""An HTTP endpoint with traced pods: tests put pods into the recorder and the informer's store."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from kubeloop.informers.store import Store
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects import api_types
from kubeloop.process.endpoint.object_pages import OBJECTS_PATH
from kubeloop.process.endpoint.server import EndpointServer
from kubeloop.process.endpoint.trace_pages import add_trace_pages
from kubeloop.tracing.observation.clock_skew import ClockSkew
from kubeloop.tracing.provider import Tracing
from kubeloop.tracing.recording.pod_recorder import AttemptFacts
from kubeloop.tracing.spans.pod_group_record import PodGroupAttemptFacts
from kubeloop.tracing.spans.pod_record import ObservedPhase, PodRecord
from kubeloop.tracing.spans.traceparent import TraceContext
from support.processes.endpoints import serving
from support.traces.traced_groups import pod_group

_OBSERVED: Any = (  # name, seconds, source and uncertainty of the end, attributes, error
    ("schedule", 1.2, "event", 0, {}, None),
    (
        "unschedulable",
        2.5,
        "arrival",
        0.02,
        {"kubeloop.message": "0/3 nodes are available: 3 Insufficient cpu."},
        "0/3 nodes are available: 3 Insufficient cpu.",
    ),
    ("bind", 0.3, "condition", 1, {}, None),
    ("start sandbox", 1.0, "condition", 1, {}, None),
    ("init container", 1.5, "container", 1, {"k8s.container.name": "migrate"}, None),
    (
        "image pull",
        2.2,
        "event",
        1,
        {"container.image.name": "postgres:18", "kubeloop.image.size_bytes": 157_000_000},
        None,
    ),
    ("container start", 0.8, "container", 1, {"k8s.container.name": "postgres"}, None),
    ("crash back-off", 1.0, "event", 1, {"k8s.container.name": "postgres"}, "exit code 1"),
    ("readiness probe", 1.2, "condition", 1, {"k8s.container.name": "postgres"}, None),
)


class TracedPods:
    """The pods of one process, in namespace "shop", of the Deployment "web"; names are "web-5f-N".

    With start_group(), they belong to a pod group as well. objects: responses of /debug/objects by page.
    """

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.tracing = Tracing(clock=self.clock, rng=random.Random(11), environ={})
        self.pods: Store[api_types.Pod] = Store()
        self.deployments: Store[api_types.Deployment] = Store()
        self.traceparents: dict[str, str] = {}
        self.clock_skew = ClockSkew()
        self.objects: dict[str, Any] = {"owner": {"state": "", "complete": None, "problems": []}, "nodes": []}
        self.creator = ""  # traceparent of the reconcile that creates them
        self.group = ""  # pod group of the pods that are created

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Run an endpoint with the trace pages and yield its URL."""
        endpoint = EndpointServer(CollectorRegistry(), clock=SystemClock())
        add_trace_pages(endpoint, self.tracing, self.pods, self.deployments, self.clock_skew)
        for page in ("pod", "logs", "owner", "nodes"):
            endpoint.add_page(f"{OBJECTS_PATH}/{page}", partial(self._object, page))
        async with serving(endpoint) as url:
            yield url

    def _object(self, page: str, query: Mapping[str, str]) -> Any:
        """Return `objects` for a page of the objects in the cluster; a missing one is a 404."""
        return self.objects[page]

    def start_group(self, name: str, min_count: int) -> None:
        """Create a pod group: the pods created from now on belong to it."""
        self.group = name
        self.tracing.groups.group_observed(pod_group(name, min_count=min_count))

    def group_attempt(self, result: Any, **facts: Any) -> None:
        self.tracing.groups.attempt_started(f"shop/{self.group}")
        self.tracing.groups.attempt_finished(f"shop/{self.group}", PodGroupAttemptFacts(result, **facts))

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
        self._observe(pod)
        traces.queued(pod, "active", "PodAdd")
        if message:
            traces.attempt_started(pod, 1)
            now_ns = self.clock.time_ns()
            facts = AttemptFacts(
                "unschedulable",
                nodes=3,
                rejections={"NodeAffinity": 3},
                filter_start_ns=now_ns,
                filter_end_ns=now_ns,
                message=message,
            )
            traces.attempt_finished(pod, facts)
            traces.queued(pod, "unschedulable", "ScheduleAttemptFailure")

    def bound(self, name: str, node: str = "node-1") -> None:
        """Record that a pending pod was bound and is ready."""
        traces = self.tracing.pods
        pod = self.pods[f"shop/{name}"]
        traces.attempt_started(pod, 1)
        now_ns = self.clock.time_ns()
        facts = AttemptFacts("scheduled", nodes=3, feasible=3, filter_start_ns=now_ns, filter_end_ns=now_ns, node=node)
        traces.attempt_finished(pod, facts)
        traces.bind_started(pod, node)
        traces.bind_finished(pod)
        self._observe(self._put_pod(name, node=node))

    def observed(self, name: str, *, reconstructed: bool = False, owner: str = "db") -> None:
        """Add the trace of a pod of a StatefulSet that another control plane created, scheduled and started."""
        second = 1_000_000_000
        start_ns = self.clock.time_ns() - 12 * second
        context = TraceContext(f"{abs(hash(name)):032x}"[:32], f"{abs(hash(name)):016x}"[:16], True)
        record = PodRecord(context.traceparent, start_ns, namespace="data", name=name, uid=f"uid of {name}")
        record.node = "node-1"
        record.owner_kind = record.top_owner_kind = "StatefulSet"
        record.owner_name = record.top_owner_name = owner
        record.is_observed, record.reconstructed = True, reconstructed
        at_ns, edge = start_ns, ("creation", second)
        for span, seconds, source, uncertain, attributes, error in _OBSERVED:
            end_ns, end = at_ns + round(seconds * second), (source, round(uncertain * second))
            record.facts.append(ObservedPhase(at_ns, span, end_ns, *edge, *end, attributes, error))
            at_ns, edge = end_ns, end
        record.bound_ns = start_ns + 4 * second
        record.finish("ready", at_ns)
        self.tracing.recent.add(record)

    def untraced(self, name: str) -> None:
        self._put_pod(name, node="node-9")

    def _observe(self, pod: api_types.Pod) -> None:
        self.tracing.pods.observed(pod)
        if pod.spec.scheduling_group is not None:
            self.tracing.groups.pod_observed(pod)

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
                "spec": {"nodeName": node, **({"schedulingGroup": {"podGroupName": self.group}} if self.group else {})},
                "status": {"phase": "Running" if node else "Pending", "conditions": ready},
            },
        )
        self.pods.put(pod.key, pod)
        return pod
