"""kubeloop/recording/recorder.py: a cluster in memory is recorded, with what may be read of it."""

from __future__ import annotations

import asyncio
import contextlib
import re

import msgspec
import pytest

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.transport import HttpRequest, TransportError
from kubeloop.kube.objects.resources import DEPLOYMENTS, NODES, PODS
from kubeloop.kube.user_error import UserError
from kubeloop.recording.changes import state_at
from kubeloop.recording.memory import MemoryLimit
from kubeloop.recording.reader import RecordingFile
from kubeloop.recording.recorder import ClusterRecorder, read_cluster, recorded_resources
from kubeloop.recording.resources import RECORDED
from kubeloop.recording.writer import Header, RecordingWriter
from kubeloop.testing import memory_cluster

pytestmark = pytest.mark.virtual_time

WEB = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [{"name": "app", "image": "web", "env": [{"name": "PASSWORD", "value": "hunter2"}]}]
            },
        },
    },
}


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "short"},
    "spec": {"containers": [{"name": "app", "image": "app"}], "terminationGracePeriodSeconds": 0},
}


class ReadOnlyTransport:
    """Passes on requests of a transport, and fails for every write."""

    def __init__(self, transport):
        self._transport = transport

    def __getattr__(self, name):
        return getattr(self._transport, name)

    def _check(self, request: HttpRequest) -> HttpRequest:
        assert request.method == "GET", f"{request.method} {request.target}"
        return request

    async def send(self, request):
        return await self._transport.send(self._check(request))

    def stream(self, request):
        return self._transport.stream(self._check(request))


@contextlib.asynccontextmanager
async def recorder_of(cluster, path, clock, rng, *, watch=True):
    client = ApiClient(ReadOnlyTransport(cluster.client.transport), clock=clock, rng=rng)
    resources, denied = await recorded_resources(client, "", watch=watch)
    assert denied == {}
    writer = RecordingWriter.create(path, Header(), clock=clock)
    yield ClusterRecorder(client, writer, resources, namespace="", clock=clock, rng=rng)
    writer.close()


async def test_snapshot_has_the_objects_of_the_cluster(tmp_path, clock, rng):
    path = tmp_path / "cluster.kubeloop"
    async with memory_cluster(clock=clock, nodes=2) as cluster:
        await cluster.apply(WEB)
        await cluster.until(lambda: len([pod for pod in cluster.seen_pods() if pod.spec.node_name]) == 2)
        async with recorder_of(cluster, path, clock, rng, watch=False) as recorder:
            await recorder.snapshot()
            assert recorder.counts()["pods"] == 2
        stored = cluster.api.store.list(PODS)
    recording = RecordingFile(path)
    state = state_at(recording)
    assert recording.findings == []
    assert [pod["spec"]["nodeName"] for pod in state.of(PODS).values()] == [pod["spec"]["nodeName"] for pod in stored]
    assert set(state.of(DEPLOYMENTS)) == {"default/web"}
    assert "hunter2" not in str(state.objects)


async def test_changes_are_recorded_until_the_end(tmp_path, clock, rng):
    path = tmp_path / "cluster.kubeloop"
    async with (
        memory_cluster(clock=clock, nodes=2) as cluster,
        recorder_of(cluster, path, clock, rng) as recorder,
        asyncio.TaskGroup() as group,
    ):
        task = group.create_task(recorder.run())
        await recorder.listed_once.wait()
        await cluster.apply(WEB)
        await cluster.wait_for("deploy/web", "condition=Available")
        await cluster.delete("deploy/web")
        await cluster.until(lambda: not cluster.seen_pods())
        await asyncio.sleep(2)
        task.cancel()
    recording = RecordingFile(path)
    changes = [change for change in recording.changes() if change.resource == "pods"]
    assert recording.findings == []
    assert [change.type for change in changes if change.type in ("ADDED", "DELETED")] == ["ADDED"] * 2 + ["DELETED"] * 2
    assert {change.object["status"]["phase"] for change in changes if change.type == "MODIFIED"} >= {
        "Pending",
        "Running",
    }
    assert state_at(recording).of(PODS) == {}


async def test_expired_watch_is_a_gap_also_if_the_list_shows_no_change(tmp_path, clock, rng):
    path = tmp_path / "cluster.kubeloop"
    async with memory_cluster(clock=clock, nodes=1) as cluster:
        transport = BreakableTransport(cluster.client.transport)
        client = ApiClient(transport, clock=clock, rng=rng)
        writer = RecordingWriter.create(path, Header(), clock=clock)
        recorder = ClusterRecorder(client, writer, [NODES, PODS], namespace="", clock=clock, rng=rng)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(recorder.run())
            await recorder.listed_once.wait()
            before = cluster.api.store.revision
            transport.is_broken = True
            cluster.api.store.max_changes = 1  # older ones get 410
            await cluster.apply(POD)
            await cluster.delete("pod/short")
            await asyncio.sleep(900)
            transport.is_broken = False
            await asyncio.sleep(300)
            task.cancel()
        writer.close()
    recording = RecordingFile(path)
    changes = [(it.type, it.key) for it in recording.changes() if it.resource == "pods"]
    assert changes == [("LISTED", ""), ("GAP", ""), ("LISTED", "")]
    (finding,) = recording.findings
    assert (finding.subject, finding.effect) == ("pods", "objects that existed only between are not part of the result")
    match = re.fullmatch(
        r"changes between (\S+) s and (\S+) s may be missing \(the watch expired, resourceVersion (\d+) to (\d+)\)",
        finding.problem,
    )
    since, until, first, last = map(float, match.groups())
    assert (since < 5, 900 <= until < 1200) == (True, True)
    assert first <= before < last


async def test_resources_that_may_not_be_listed_are_left_out(clock, rng):
    async with memory_cluster(clock=clock, nodes=1) as cluster:
        transport = DeniedTransport(cluster.client.transport, "/resourcequotas")
        resources, denied = await recorded_resources(ApiClient(transport, clock=clock, rng=rng), "", watch=True)
        assert list(denied) == ["resourcequotas"]
        assert "resourcequotas" not in {resource.plural for resource in resources}
        # kinds of feature gates that are off are not served
        assert {resource.plural for resource in RECORDED} - {resource.plural for resource in resources} == {
            "resourcequotas", "workloads", "podgroups", "devicetaintrules",
        }  # fmt: skip
        transport = DeniedTransport(cluster.client.transport, "/pods")
        with pytest.raises(UserError, match="pods cannot be recorded: pods is forbidden"):
            await recorded_resources(ApiClient(transport, clock=clock, rng=rng), "", watch=False)


async def test_live_cluster_is_read_without_what_may_not_be_listed(clock, rng):
    async with memory_cluster(clock=clock, nodes=2) as cluster:
        transport = DeniedTransport(cluster.client.transport, "/resourcequotas")
        state, findings = await read_cluster(ApiClient(transport, clock=clock, rng=rng), clock)
        assert set(state.of(NODES)) == {"node-0", "node-1"}
        assert [str(finding) for finding in findings] == [
            "memory://: resourcequotas may not be listed: resourcequotas is forbidden; "
            "the result is that of a cluster without resourcequotas"
        ]


async def test_live_cluster_is_read_in_pages_without_managed_fields(clock, rng):
    async with memory_cluster(clock=clock, nodes=5) as cluster:
        state, _ = await read_cluster(ApiClient(SmallPages(cluster.client.transport), clock=clock, rng=rng), clock)
        assert list(state.of(NODES)) == [f"node-{number}" for number in range(5)]
        assert state.of(NODES)["node-3"] == await cluster.client.get_raw(NODES, "node-3")


async def test_live_cluster_that_is_larger_than_memory_is_refused(clock, rng):
    async with memory_cluster(clock=clock, nodes=5) as cluster:
        transport = SmallPages(cluster.client.transport)
        with pytest.raises(UserError, match="live: the cluster is larger than memory"):
            await read_cluster(ApiClient(transport, clock=clock, rng=rng), clock, MemoryLimit("live", 10_000))


class SmallPages:
    """Requests pages of two objects, which have managedFields."""

    def __init__(self, transport):
        self._transport = transport

    def __getattr__(self, name):
        return getattr(self._transport, name)

    async def send(self, request):
        target = request.target.replace("limit=500", "limit=2")
        response = await self._transport.send(msgspec.structs.replace(request, target=target))
        page = msgspec.json.decode(response.body)
        for item in page.get("items", ()):
            item["metadata"]["managedFields"] = [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]
        return msgspec.structs.replace(response, body=msgspec.json.encode(page))


class BreakableTransport:
    """Breaks the watches of pods while `is_broken`, and refuses new ones."""

    def __init__(self, transport):
        self._transport = transport
        self.is_broken = False

    def __getattr__(self, name):
        return getattr(self._transport, name)

    @contextlib.asynccontextmanager
    async def stream(self, request):
        async with self._transport.stream(request) as response:
            yield msgspec.structs.replace(response, chunks=self._chunks(response.chunks, request.target))

    async def _chunks(self, chunks, target):
        async for chunk in chunks:
            if self.is_broken and target.startswith("/api/v1/pods"):
                raise TransportError("broken", request_sent=True)
            yield chunk


class DeniedTransport:
    """Denies requests of paths with this end."""

    def __init__(self, transport, end):
        self._transport = transport
        self._end = end

    def __getattr__(self, name):
        return getattr(self._transport, name)

    async def send(self, request):
        response = await self._transport.send(request)
        if not request.target.partition("?")[0].endswith(self._end):
            return response
        body = b'{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"%s is forbidden"}'
        return type(response)(403, body % self._end[1:].encode(), {"content-type": "application/json"})
