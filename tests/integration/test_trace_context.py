"""The W3C header of each request that belongs to a trace, as the API server gets it, and the annotations on objects."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import Client
from kubeloop.kube.client.transport import Response, Transport
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS, PRIORITY_CLASSES, REPLICA_SETS
from kubeloop.process.control_plane import ControlPlane, Settings
from kubeloop.tracing.provider import Tracing
from support.cli_processes import TIMEOUT_SECONDS, Kubeloop
from support.manifests import deployment

ANNOTATION = "tracing.k8s.io/traceparent"
AT_ONCE = {"terminationGracePeriodSeconds": 0}
THEIRS = "00-11111111111111111111111111111111-2222222222222222-01"


class Wire:
    """A transport that notes each request: method, target, traceparent and body."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.server = inner.server
        self.stream = inner.stream
        self.close = inner.close
        self.seen: list[tuple[str, str, str, bytes]] = []

    async def request(self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b"", **options):
        self.seen.append((method, target, headers.get("traceparent", ""), body))
        answer: Response = await self.inner.request(method, target, headers=headers, body=body, **options)
        return answer

    def of(self, method: str, part: str) -> list[tuple[str, bytes]]:
        return [(traceparent, body) for m, target, traceparent, body in self.seen if m == method and part in target]


@asynccontextmanager
async def control_plane(
    folder, environ: Mapping[str, str], *arguments: str
) -> AsyncIterator[tuple[ControlPlane, Wire]]:
    kubeconfig = folder / "kubeconfig"
    options = ("--start-delay", "0", "--start-spread", "0", "--kubeconfig", str(kubeconfig), *arguments)
    with Kubeloop(folder).running("apiserver", *options) as server:
        await asyncio.to_thread(server.wait_for, "export KUBECONFIG")
        clock, rng = SystemClock(), random.Random(1)
        wire = Wire(await connect(str(kubeconfig), None))
        client = Client(wire, clock=clock, rng=rng)
        try:
            plane = ControlPlane(
                client,
                Settings(),
                clock=clock,
                rng=rng,
                registry=CollectorRegistry(),
                tracing=Tracing(clock=clock, rng=rng, environ=environ),
            )
            async with asyncio.TaskGroup() as group:
                running = group.create_task(plane.run())
                await plane.synced.wait()
                yield plane, wire
                running.cancel()
        finally:
            await client.close()


async def until(condition, what):
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)
    assert condition(), what


async def test_every_request_that_belongs_to_a_trace_says_so_on_the_wire(tmp_path):
    async with control_plane(tmp_path, {}, "--nodes", "1", "--node-cpu", "2") as (plane, wire):
        client, pods = plane.client, plane.informers.informer(PODS).store

        def bound(app):
            return sum(bool(pod.spec.node_name) for pod in pods.list() if pod.metadata.labels["app"] == app)

        for name, value in (("low", 1), ("high", 1000)):
            await client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        await client.create(
            DEPLOYMENTS, deployment("low", replicas=2, cpu="800m", priorityClassName="low", **AT_ONCE), "default"
        )
        await until(lambda: bound("low") == 2, "the first two bound")
        body = deployment("high", replicas=1, cpu="800m", priorityClassName="high", **AT_ONCE)
        body["metadata"]["annotations"] = {ANNOTATION: THEIRS}
        await client.create(DEPLOYMENTS, body, "default")
        await until(lambda: bound("high") == 1, "room was made")
        await until(lambda: wire.of("PATCH", "/deployments/high/status"), "its status written")

        pods_created = [(sent, json.loads(body)) for sent, body in wire.of("POST", "/pods") if b"template-hash" in body]
        assert pods_created
        for sent, pod in pods_created:
            assert sent == pod["metadata"]["annotations"][ANNOTATION]
        of_pods = {sent.split("-")[1] for sent, _ in pods_created}
        bindings = [sent.split("-")[1] for sent, _ in wire.of("POST", "/binding")]
        assert len(bindings) == 3
        assert set(bindings) <= of_pods
        (victim,) = wire.of("DELETE", "/pods/low-")
        assert victim[0].split("-")[1] in of_pods, "of the pod that needs the room"
        for method, part in (("PATCH", "/pods/high-"), ("PATCH", "/pods/low-")):
            assert wire.of(method, part)
            assert {sent.split("-")[1] for sent, _ in wire.of(method, part)} <= of_pods
        for method, part in (
            ("POST", "/replicasets"),
            ("PATCH", "/replicasets/"),
            ("PATCH", "/deployments/"),
        ):
            assert wire.of(method, part)
            assert all(sent and sent.split("-")[1] not in of_pods for sent, _ in wire.of(method, part))
        (rs,) = [rs for rs in plane.informers.informer(REPLICA_SETS).store.list() if rs.key.startswith("default/low")]
        syncs = plane.tracing.recent.reconciles("default/low")
        assert rs.metadata.annotations[ANNOTATION].split("-")[2] in {each["spans"][0]["spanId"] for each in syncs}
        first, *_ = plane.tracing.recent.reconciles("default/high")
        assert {"traceId": "1" * 32, "spanId": "2" * 16, "attributes": {"kubeloop.link": "cause"}} in first["spans"][0][
            "links"
        ], "the user's request is the cause of what the controllers do"
        revisions = {
            rs.metadata.annotations["deployment.kubernetes.io/revision"]
            for rs in plane.informers.informer(REPLICA_SETS).store.list()
        }
        assert revisions == {"1"}, "no annotation of ours began a rollout"


async def test_a_trace_in_the_pod_template_is_gone_on_with(tmp_path):
    async with control_plane(tmp_path, {}, "--nodes", "1") as (plane, _):
        body = deployment(replicas=2)
        body["spec"]["template"]["metadata"]["annotations"] = {ANNOTATION: THEIRS}
        await plane.client.create(DEPLOYMENTS, body, "default")
        pods = plane.informers.informer(PODS).store
        await until(lambda: sum(bool(pod.spec.node_name) for pod in pods.list()) == 2, "both bound")
        contexts = [pod.metadata.annotations[ANNOTATION].split("-") for pod in pods.list()]
        assert {context[1] for context in contexts} == {"1" * 32}
        assert len({context[2] for context in contexts} - {"2" * 16}) == 2
        for pod in pods.list():
            root = plane.tracing.recent.find_pod_trace("default", pod.metadata.name)["spans"][0]
            assert root["parentSpanId"] == "2" * 16


async def test_with_tracing_off_no_request_and_no_object_knows_of_it(tmp_path):
    async with control_plane(tmp_path, {"OTEL_TRACES_SAMPLER": "always_off"}, "--nodes", "1") as (plane, wire):
        await plane.client.create(DEPLOYMENTS, deployment(replicas=2), "default")
        pods = plane.informers.informer(PODS).store
        await until(lambda: sum(bool(pod.spec.node_name) for pod in pods.list()) == 2, "both bound")
        assert {sent for _, _, sent, _ in wire.seen} == {""}
        assert not any(ANNOTATION in pod.metadata.annotations for pod in pods.list())
        assert not any(b"pod-trace" in body for _, _, _, body in wire.seen)
