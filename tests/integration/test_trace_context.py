"""The traceparent header of requests to the API server, and the trace annotations on objects."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from unittest.mock import patch

from prometheus_client import CollectorRegistry

from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.transport import HttpRequest, HttpResponse, Transport
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS, PRIORITY_CLASSES, REPLICA_SETS
from kubeloop.process.control_plane.control_plane import ControlPlane, Settings
from support.objects.manifests import deployment
from support.processes.cli_processes import TIMEOUT_SECONDS, Kubeloop

ANNOTATION = "tracing.k8s.io/traceparent"
NO_GRACE_PERIOD = {"terminationGracePeriodSeconds": 0}
USER_TRACEPARENT = "00-11111111111111111111111111111111-2222222222222222-01"


class RecordingTransport:
    """A transport that records method, target, traceparent and body of each request."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.server = inner.server
        self.stream = inner.stream
        self.close = inner.close
        self.requests: list[tuple[str, str, str, bytes]] = []

    async def send(self, request: HttpRequest):
        self.requests.append((request.method, request.target, request.headers.get("traceparent", ""), request.body))
        response: HttpResponse = await self.inner.send(request)
        return response

    def sent(self, method: str, part: str) -> list[tuple[str, bytes]]:
        return [(traceparent, body) for m, target, traceparent, body in self.requests if m == method and part in target]


@asynccontextmanager
async def control_plane(
    folder, environ: Mapping[str, str], *arguments: str
) -> AsyncIterator[tuple[ControlPlane, RecordingTransport]]:
    kubeconfig = folder / "kubeconfig"
    options = ("--start-delay", "0", "--start-spread", "0", "--kubeconfig", str(kubeconfig), *arguments)
    with Kubeloop(folder).running("apiserver", *options) as server:
        await asyncio.to_thread(server.wait_for, "export KUBECONFIG")
        clock, rng = SystemClock(), random.Random(1)
        transport = RecordingTransport(await connect(str(kubeconfig), None))
        client = ApiClient(transport, clock=clock, rng=rng, trace_requests=True)
        try:
            with patch.dict(os.environ, environ):
                plane = ControlPlane(client, Settings(), clock=clock, rng=rng, registry=CollectorRegistry())
            async with asyncio.TaskGroup() as group:
                running = group.create_task(plane.run())
                await plane.synced.wait()
                yield plane, transport
                running.cancel()
        finally:
            await client.close()


async def wait_until(condition, description):
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)
    assert condition(), description


async def test_traced_requests_have_a_traceparent_header(tmp_path):
    async with control_plane(tmp_path, {}, "--nodes", "1", "--node-cpu", "2") as (plane, transport):
        client, pods = plane.client, plane.informers.informer(PODS).store

        def bound(app):
            return sum(bool(pod.spec.node_name) for pod in pods.list() if pod.metadata.labels["app"] == app)

        for name, value in (("low", 1), ("high", 1000)):
            await client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        await client.create(
            DEPLOYMENTS,
            deployment("low", replicas=2, cpu="800m", priorityClassName="low", **NO_GRACE_PERIOD),
            "default",
        )
        await wait_until(lambda: bound("low") == 2, "the first two bound")
        body = deployment("high", replicas=1, cpu="800m", priorityClassName="high", **NO_GRACE_PERIOD)
        body["metadata"]["annotations"] = {ANNOTATION: USER_TRACEPARENT}
        await client.create(DEPLOYMENTS, body, "default")
        await wait_until(lambda: bound("high") == 1, "a pod was preempted")
        await wait_until(lambda: transport.sent("PATCH", "/deployments/high/status"), "the status was written")

        pods_created = [
            (traceparent, json.loads(body))
            for traceparent, body in transport.sent("POST", "/pods")
            if b"template-hash" in body
        ]
        assert pods_created
        for traceparent, pod in pods_created:
            assert traceparent == pod["metadata"]["annotations"][ANNOTATION]
        pod_traces = {traceparent.split("-")[1] for traceparent, _ in pods_created}
        bindings = [traceparent.split("-")[1] for traceparent, _ in transport.sent("POST", "/binding")]
        assert len(bindings) == 3
        assert set(bindings) <= pod_traces
        (victim,) = transport.sent("DELETE", "/pods/low-")
        assert victim[0].split("-")[1] in pod_traces, "the trace of the preempting pod"
        for method, part in (("PATCH", "/pods/high-"), ("PATCH", "/pods/low-")):
            assert transport.sent(method, part)
            assert {traceparent.split("-")[1] for traceparent, _ in transport.sent(method, part)} <= pod_traces
        for method, part in (
            ("POST", "/replicasets"),
            ("PATCH", "/replicasets/"),
            ("PATCH", "/deployments/"),
        ):
            assert transport.sent(method, part)
            assert all(
                traceparent and traceparent.split("-")[1] not in pod_traces
                for traceparent, _ in transport.sent(method, part)
            )
        (rs,) = [rs for rs in plane.informers.informer(REPLICA_SETS).store.list() if rs.key.startswith("default/low")]
        assert ANNOTATION not in rs.metadata.annotations
        syncs = {sync["spans"][0]["spanId"] for sync in plane.tracing.recent.reconciles("default/low")}
        created, *_ = plane.tracing.recent.reconciles(rs.key)
        causes = [link for link in created["spans"][0]["links"] if link["attributes"]["kubeloop.link"] == "cause"]
        assert {link["spanId"] for link in causes} <= syncs
        assert causes
        first, *_ = plane.tracing.recent.reconciles("default/high")
        assert {"traceId": "1" * 32, "spanId": "2" * 16, "attributes": {"kubeloop.link": "cause"}} in first["spans"][0][
            "links"
        ], "the user's request is the cause of what the controllers do"
        revisions = {
            rs.metadata.annotations["deployment.kubernetes.io/revision"]
            for rs in plane.informers.informer(REPLICA_SETS).store.list()
        }
        assert revisions == {"1"}, "annotations must not start a rollout"


async def test_trace_of_the_pod_template_is_continued(tmp_path):
    async with control_plane(tmp_path, {}, "--nodes", "1") as (plane, _):
        body = deployment(replicas=2)
        body["spec"]["template"]["metadata"]["annotations"] = {ANNOTATION: USER_TRACEPARENT}
        await plane.client.create(DEPLOYMENTS, body, "default")
        pods = plane.informers.informer(PODS).store
        await wait_until(lambda: sum(bool(pod.spec.node_name) for pod in pods.list()) == 2, "both bound")
        contexts = [pod.metadata.annotations[ANNOTATION].split("-") for pod in pods.list()]
        assert {context[1] for context in contexts} == {"1" * 32}
        assert len({context[2] for context in contexts} - {"2" * 16}) == 2
        for pod in pods.list():
            root = plane.tracing.recent.find_pod_trace("default", pod.metadata.name)["spans"][0]
            assert root["parentSpanId"] == "2" * 16


async def test_disabled_tracing_adds_no_headers_or_annotations(tmp_path):
    async with control_plane(tmp_path, {"OTEL_TRACES_SAMPLER": "always_off"}, "--nodes", "1") as (plane, transport):
        await plane.client.create(DEPLOYMENTS, deployment(replicas=2), "default")
        pods = plane.informers.informer(PODS).store
        await wait_until(lambda: sum(bool(pod.spec.node_name) for pod in pods.list()) == 2, "both bound")
        assert {traceparent for _, _, traceparent, _ in transport.requests} == {""}
        assert not any(ANNOTATION in pod.metadata.annotations for pod in pods.list())
        assert not any(b"pod-trace" in body for _, _, _, body in transport.requests)
