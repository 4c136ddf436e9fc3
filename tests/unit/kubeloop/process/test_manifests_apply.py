import random

import pytest

from kubeloop.devcluster.api.request import Request, Response
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.server.faults import AnswerLost
from kubeloop.kube.client.api_client import Client
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.errors import ServerUnreachable, UserError
from kubeloop.kube.objects.resources import CONFIG_MAPS
from kubeloop.process.manifests import Manifest, apply
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.tracing.recording.apply_recorder import MAX_OBJECTS, ApplyRecorder
from kubeloop.tracing.sampling.samplers import Sampler
from kubeloop.tracing.spans.trace import Trace


def config_map(**metadata: str) -> Manifest:
    return Manifest("app.yaml", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}})


def apply_trace(finished: list[Trace]) -> ApplyRecorder:
    return ApplyRecorder(
        clock=SystemClock(),
        rng=random.Random(1),
        sampler=Sampler(),
        on_finished=lambda trace, _sampled: finished.append(trace),
    )


class Cluster:
    """A development API server that loses the response of the first write, which is executed or not."""

    def __init__(self, *, carried_out: bool) -> None:
        clock, rng = SystemClock(), random.Random(1)
        self._server = ApiServer(clock=clock, rng=rng, token=None)
        self._carried_out = carried_out
        self.writes = 0
        self.client = Client(MemoryTransport(self._handle), clock=clock, rng=rng)

    async def config_maps(self) -> int:
        return len((await self.client.list(CONFIG_MAPS, "default")).items)

    async def _handle(self, request: Request) -> Response:
        if request.method != "GET":
            self.writes += 1
            if self.writes == 1:
                if self._carried_out:
                    await self._server.handle(request)
                raise AnswerLost
        return await self._server.handle(request)


@pytest.mark.parametrize("carried_out", [True, False])
async def test_apply_continues_after_a_lost_response(carried_out: bool) -> None:
    cluster = Cluster(carried_out=carried_out)
    assert await apply(cluster.client, [config_map(name="app")]) == [("configmap/app", "created")]
    assert cluster.writes == 2
    assert await cluster.config_maps() == 1


async def test_apply_does_not_retry_generate_name() -> None:
    cluster = Cluster(carried_out=True)
    with pytest.raises(ServerUnreachable):
        await apply(cluster.client, [config_map(generateName="app-")])
    assert cluster.writes == 1


async def test_apply_trace_records_an_unknown_outcome() -> None:
    cluster = Cluster(carried_out=True)
    traces: list[Trace] = []
    trace = apply_trace(traces)
    with pytest.raises(ServerUnreachable) as raised:
        await apply(cluster.client, [config_map(generateName="app-")], trace=trace)
    (applied,) = traces
    assert [span.error for span in applied.spans] == [str(raised.value)] * 2
    assert applied.spans[1].attributes["kubeloop.outcome"] == "unknown"


async def test_apply_reports_configured_or_unchanged() -> None:
    cluster = Cluster(carried_out=True)
    await apply(cluster.client, [config_map(name="app")])
    assert await apply(cluster.client, [config_map(name="app")]) == [("configmap/app", "unchanged")]
    other = config_map(name="app")
    other.body["data"] = {"c": "d"}
    assert await apply(cluster.client, [other]) == [("configmap/app", "configured")]
    stored = await cluster.client.get(CONFIG_MAPS, "app", "default")
    assert stored["data"] == {"c": "d"}  # fields removed from the manifest are removed


def definition() -> Manifest:
    return Manifest(
        "app.yaml",
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "gears.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "gears", "kind": "Gear"},
                "versions": [
                    {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
                ],
            },
        },
    )


def of_kind(kind: str) -> Manifest:
    return Manifest("app.yaml", {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "x"}})


async def test_apply_creates_definitions_before_their_objects() -> None:
    cluster = Cluster(carried_out=True)
    assert await apply(cluster.client, [of_kind("Gear"), config_map(name="app"), definition()]) == [
        ("customresourcedefinition.apiextensions.k8s.io/gears.example.com", "created"),
        ("gear.example.com/x", "created"),
        ("configmap/app", "created"),
    ]


async def test_apply_rejects_unknown_kinds_before_any_request() -> None:
    cluster = Cluster(carried_out=True)
    with pytest.raises(UserError, match="Wheel"):
        await apply(cluster.client, [definition(), of_kind("Gear"), of_kind("Wheel")])
    assert cluster.writes == 0


def test_root_span_has_the_rejection_beyond_the_span_limit() -> None:
    traces: list[Trace] = []
    trace = apply_trace(traces)
    for number in range(MAX_OBJECTS + 1):
        error = "no" if number == MAX_OBJECTS else ""
        trace.end(trace.begin(), "Pod", "default", f"web-{number}", "refused" if error else "created", error)
    trace.finish()
    assert traces[0].root.error == "no"
    assert len(traces[0].spans) == 1 + MAX_OBJECTS
