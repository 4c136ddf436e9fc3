"""The pace of the recorded controllers: their pods and node taints appear when they did in the recording.

In virtual time requests take no time. On a cluster they do, and where room is scarce it matters which pod is created
first, and which pods are tried before a node has lost its taint. A request is delayed to its recorded time, if that is
at most five seconds later: under another configuration, a workload runs on at its own pace.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from kubeloop.kube.client.transport import HttpRequest, HttpResponse
from kubeloop.kube.json_object import JSON
from kubeloop.replay.pod_times import WorkloadTimes
from kubeloop.testing.memory_transport import Handle, MemoryTransport

NODE_TAINTS: Final = "node.kubernetes.io/"
"""Prefix of the taints that controllers write, by conditions and spec.unschedulable."""

_MAX_DELAY_SECONDS: Final = 5.0
_PODS: Final = re.compile(r"/api/v1/namespaces/([^/]+)/pods(\?.*)?")
_NODES: Final = "/api/v1/nodes/"

TaintKeys = frozenset[tuple[str, str]]


class TaintTimes:
    """Times at which controllers wrote taints of nodes, in seconds."""

    def __init__(self) -> None:
        self._changes: dict[str, list[tuple[float, TaintKeys]]] = {}  # by node

    def observe(self, seconds: float, before: JSON, node: JSON) -> None:
        """Record a change of a Node."""
        keys = _taint_keys(node)
        if keys != _taint_keys(before):
            self._changes.setdefault(node["metadata"]["name"], []).append((seconds, keys))

    def next(self, name: str, node: JSON, now: float) -> float | None:
        """Return when a node got the taints of `node`, within the longest delay; None if it did not."""
        keys, end = _taint_keys(node), now + _MAX_DELAY_SECONDS
        changes = self._changes.get(name, ())
        return next((seconds for seconds, recorded in changes if now < seconds <= end and recorded == keys), None)


def _taint_keys(node: JSON) -> TaintKeys:
    taints = node["spec"].get("taints") or ()
    return frozenset((it["key"], it.get("effect", "")) for it in taints if it["key"].startswith(NODE_TAINTS))


class PacedTransport(MemoryTransport):
    """A transport of controllers that sends requests for pods and taints at their recorded times.

    workload_of: returns the workload of a pod. The n-th pod of a workload has the time of its n-th recorded one.
    """

    def __init__(
        self, handle: Handle, times: WorkloadTimes, taints: TaintTimes, workload_of: Callable[[JSON], str]
    ) -> None:
        super().__init__(handle)
        self._times = times
        self._taints = taints
        self._workload_of = workload_of
        self._numbers = Counter[str]()  # of requested pods by workload, without those that were refused
        self._last: dict[str, float] = {}  # time of the last request by workload

    async def send(self, request: HttpRequest) -> HttpResponse:
        if request.method == "POST" and (match := _PODS.fullmatch(request.target)):
            return await self._create_pod(request, namespace=match[1])
        if request.method == "PATCH" and request.target.startswith(_NODES):
            node = msgspec.json.decode(request.body)
            if "taints" in node.get("spec", ()):
                name = request.target.removeprefix(_NODES).partition("?")[0]
                now = asyncio.get_running_loop().time()
                await asyncio.sleep((self._taints.next(name, node, now) or now) - now)
        return await super().send(request)

    async def _create_pod(self, request: HttpRequest, namespace: str) -> HttpResponse:
        now = asyncio.get_running_loop().time()
        pod = msgspec.json.decode(request.body)
        workload = self._workload_of({"metadata": {"name": "", **pod["metadata"], "namespace": namespace}})
        recorded = self._times.created(workload, self._numbers[workload])
        self._numbers[workload] += 1
        if recorded is None or recorded > now + _MAX_DELAY_SECONDS:
            recorded = now
        # in the order of the requests
        self._last[workload] = max(now, recorded, self._last.get(workload, now))
        await asyncio.sleep(self._last[workload] - now)
        response = await super().send(request)
        if response.status >= 400:
            self._numbers[workload] -= 1
        return response
