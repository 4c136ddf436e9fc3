"""Requests of a replay's controllers are sent at the times of the recording."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.kube.client.transport import HttpRequest
from kubeloop.replay.pod_times import WorkloadTimes
from kubeloop.replay.recorded_pace import PacedTransport, TaintTimes

pytestmark = pytest.mark.virtual_time

JSON = dict[str, Any]
UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


class Server:
    """Records when requests arrive."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.times: list[float] = []

    async def handle(self, request: ApiRequest) -> Response:
        self.times.append(asyncio.get_running_loop().time())
        return Response(self.status, b"{}")


def recorded_pods(*seconds: float) -> WorkloadTimes:
    times = WorkloadTimes()
    for number, created in enumerate(seconds):
        metadata = {"name": f"a-{number}", "namespace": "default", "uid": str(number)}
        times.observe(created, {"metadata": metadata, "spec": {}}, "job default/a", initial=False)
    return times


def node(*taints: JSON) -> JSON:
    return {"metadata": {"name": "node-0"}, "spec": {"taints": list(taints)}}


def transport(server: Server, times: WorkloadTimes, taints: TaintTimes | None = None) -> PacedTransport:
    return PacedTransport(
        server.handle, times, taints or TaintTimes(), lambda pod: f"job {pod['metadata']['namespace']}/a"
    )


def request(method: str, target: str, body: JSON) -> HttpRequest:
    return HttpRequest(method, target, {}, msgspec.json.encode(body))


CREATE = request("POST", "/api/v1/namespaces/default/pods", {"metadata": {"generateName": "a-"}})


@pytest.mark.parametrize(
    ("recorded", "sent"),
    [
        ((2.0, 4.5, 4.5), [2.0, 4.5, 4.5]),
        ((2.0, 1.0, 60.0), [2.0, 2.0, 2.0]),  # not out of order, and not after more than 5 s
        ((2.0,), [2.0, 2.0, 2.0]),
    ],
)
async def test_pods_are_created_at_recorded_times(recorded: tuple[float, ...], sent: list[float]):
    server = Server()
    paced = transport(server, recorded_pods(*recorded))
    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(paced.send(CREATE))
    assert server.times == pytest.approx(sent, abs=0.001)


async def test_refused_pod_does_not_count():
    server = Server(403)
    paced = transport(server, recorded_pods(2.0, 4.0))
    await paced.send(CREATE)
    server.status = 201
    await paced.send(CREATE)
    await paced.send(CREATE)
    assert server.times == pytest.approx([2.0, 2.0, 4.0], abs=0.001)


@pytest.mark.parametrize(("taints", "sent"), [([], 3.25), ([UNSCHEDULABLE], 3.0)])
async def test_taints_are_written_at_recorded_times(taints: list[JSON], sent: float):
    recorded = TaintTimes()
    recorded.observe(1.0, node(), node(UNSCHEDULABLE))
    recorded.observe(3.25, node(UNSCHEDULABLE), node())
    recorded.observe(3.5, node(), node({"key": "example.com/of-a-user", "effect": "NoSchedule"}))
    server = Server()
    await asyncio.sleep(3.0)
    body = {"spec": {"taints": taints or None}}
    await transport(server, recorded_pods(), recorded).send(request("PATCH", "/api/v1/nodes/node-0", body))
    assert server.times == [sent]


async def test_other_requests_are_sent_at_once():
    server = Server()
    paced = transport(server, recorded_pods(2.0))
    for target in ("/api/v1/namespaces/default/pods/a-0/binding", "/apis/apps/v1/namespaces/default/deployments"):
        await paced.send(request("POST", target, {"metadata": {}}))
    await paced.send(request("PATCH", "/api/v1/nodes/node-0", {"metadata": {"labels": {}}}))
    assert server.times == [0.0, 0.0, 0.0]
