"""Load on a whole control plane over a long time: rollouts, failing nodes and dropped watches, and what they cost.

Users create, roll out, scale and delete workloads in namespaces of their own. One watch, which is never dropped,
records every pod; the collector records the traces. Requests use plain HTTP with aiohttp and no code of kubeloop.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import json
import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import aiohttp

from kubeloop.devcluster.server.faults import SPARED_USER_AGENT
from kubeloop.kube.objects.resources import DAEMON_SETS, DEPLOYMENTS, JOBS, SERVICES, STATEFUL_SETS
from support.faults.objects import manifest, pod_template, workload
from support.traces.otlp import Collector

JSON = dict[str, Any]
NODES = 12
_APPLY = "application/apply-patch+yaml"  # creates or updates
_COMPLETE_SECONDS = 240.0  # for a rollout or a deletion, with failing nodes on a busy machine
_POLL_SECONDS = 0.25
_WORKLOADS = {"deployments": "web", "statefulsets": "db", "daemonsets": "agent"}
_MIB = 1 << 20
FILLING_PODS = 12_000  # until caches are full, among them the 10,000 most recent traces


class ApiClient:
    """Requests that meet no injected faults."""

    def __init__(self, http: aiohttp.ClientSession, url: str, token: str) -> None:
        self._http, self._url = http, url
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": SPARED_USER_AGENT}

    async def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> JSON:
        """Return the response, also a Status; its status code is in "code". Raises AssertionError for other errors."""
        data = None if body is None else json.dumps(body)
        headers = self._headers | {"Content-Type": content_type}
        async with self._http.request(method, self._url + path, data=data, headers=headers) as response:
            content: JSON = await response.json()
        assert response.status < 300 or response.status == 404, (method, path, content)
        return content

    def open(self, path: str) -> Any:
        """Return the context of a streamed response."""
        return self._http.get(self._url + path, headers=self._headers, timeout=aiohttp.ClientTimeout(total=None))

    async def started_watches(self) -> int:
        """Return the number of watch requests that the API server has received."""
        async with self.open("/metrics") as response:
            text = await response.text()
        counts = re.findall(r'^apiserver_request_total\{[^}]*verb="WATCH"[^}]*\} (\S+)$', text, re.MULTILINE)
        return int(sum(map(float, counts)))


@dataclass
class PodLog:
    """All pods of the cluster by UID. existing, deleted, bound: UIDs."""

    existing: dict[str, str] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)

    @property
    def created(self) -> int:
        return len(self.existing) + len(self.deleted)

    async def watch(self, api: ApiClient) -> None:
        """Watch until cancelled. A watch that fell behind the history begins again with a list."""
        while True:
            listed: set[str] | None = set()
            query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
            async with api.open(f"/api/v1/pods?{query}&timeoutSeconds=86400") as response:
                async for line in response.content:
                    event = json.loads(line)
                    metadata = event["object"].get("metadata", {})
                    if event["type"] == "ERROR":
                        assert event["object"]["code"] == 410, event
                        break
                    if event["type"] == "BOOKMARK":
                        if listed is not None and "k8s.io/initial-events-end" in metadata.get("annotations", {}):
                            self._forget(self.existing.keys() - listed)
                            listed = None
                        continue
                    self._apply(event["type"], event["object"])
                    if listed is not None:
                        listed.add(metadata["uid"])

    def _apply(self, type_: str, pod: JSON) -> None:
        uid = pod["metadata"]["uid"]
        self.existing[uid] = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if pod["spec"].get("nodeName"):
            self.bound.add(uid)
        if type_ == "DELETED":
            self._forget({uid})

    def _forget(self, uids: set[str]) -> None:
        for uid in uids:
            del self.existing[uid]
        self.deleted |= uids


@dataclass
class TraceLog:
    """Traces of pods, taken from a collector. by_pod: IDs of the traces by UID."""

    collector: Collector
    by_pod: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def take(self) -> list[float]:
        """Take what the collector has received, and return the created-to-bound times of bound pods in it."""
        bound_ms = []
        for span in self.collector.take_spans():
            if span.name != "pod" or span.parent_id:
                continue
            uid = span.attributes.get("k8s.pod.uid")
            if uid is None:  # the API server refused to create it
                continue
            self.by_pod[uid].add(span.trace_id)
            if span.attributes["kubeloop.outcome"] == "bound":
                bound_ms.append((span.end - span.start) / 1e6)
        return bound_ms


class User:
    """One user: round after round of workloads in a new namespace."""

    def __init__(self, index: int, api: ApiClient, rng: random.Random, counts: Counter[str]) -> None:
        self._index, self._api, self._rng, self._counts = index, api, rng, counts
        self.ended = False  # no further round

    async def run(self) -> None:
        number = 0
        while not self.ended:
            number += 1
            await self._round(f"soak-{self._index}-{number}")

    async def _round(self, namespace: str) -> None:
        await self._api.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        service = manifest(
            SERVICES, "web", namespace=namespace, spec={"selector": {"app": "web"}, "ports": [{"port": 80}]}
        )
        await self._api.request("POST", f"/api/v1/namespaces/{namespace}/services", service)
        template = pod_template("job", restartPolicy="Never", tolerations=_tolerations())
        job = manifest(
            JOBS, "job", namespace=namespace, spec={"completions": 5, "parallelism": 3, "template": template}
        )
        await self._api.request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", job)
        for version in range(1, self._rng.randint(3, 4)):
            replicas = self._rng.randint(4, 12)
            for resource, spec in (
                (DEPLOYMENTS, {"replicas": replicas}),
                (STATEFUL_SETS, {"replicas": self._rng.randint(1, 3), "serviceName": "web"}),
                (DAEMON_SETS, {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "50%"}}}),
            ):
                name = _WORKLOADS[resource.plural]
                pod = {"cpu": "10m", "tolerations": _tolerations()}
                body = workload(resource, name, image=f"app:{version}", pod=pod, **spec)
                body["metadata"]["namespace"] = namespace
                path = f"{_apps(namespace, resource.plural)}/{name}?fieldManager=soak&force=true"
                await self._api.request("PATCH", path, body, _APPLY)
            self._counts["rollouts"] += len(_WORKLOADS)
            if self._rng.random() < 0.3:  # the next version interrupts this one
                await asyncio.sleep(self._rng.random())
            else:
                await self._wait_until_complete(namespace)
        await self._wait_until_complete(namespace)
        self._counts["rounds"] += 1
        path = f"/api/v1/namespaces/{namespace}"
        await self._api.request("DELETE", path)
        async with asyncio.timeout(_COMPLETE_SECONDS):
            while (await self._api.request("GET", path)).get("code") != 404:
                await asyncio.sleep(_POLL_SECONDS)

    async def _wait_until_complete(self, namespace: str) -> None:
        missing: dict[str, JSON] = {}
        try:
            async with asyncio.timeout(_COMPLETE_SECONDS):
                while True:
                    paths = {f"{_apps(namespace, kind)}/{name}": _is_rolled_out for kind, name in _WORKLOADS.items()}
                    paths[f"/apis/batch/v1/namespaces/{namespace}/jobs/job"] = _is_finished
                    objects = {path: await self._api.request("GET", path) for path in paths}
                    missing = {path: obj for path, obj in objects.items() if not paths[path](obj)}
                    if not missing:
                        return
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise AssertionError(f"lost pods: not complete in {_COMPLETE_SECONDS:g} s: {missing}") from None


def _apps(namespace: str, plural: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/{plural}"


def _tolerations() -> list[JSON]:
    return [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        for key in ("not-ready", "unreachable")
    ]


def _is_rolled_out(obj: JSON) -> bool:
    """Return whether all pods of a Deployment, StatefulSet or DaemonSet have the latest template and are available."""
    status = obj.get("status", {})
    if status.get("observedGeneration") != obj["metadata"]["generation"]:
        return False
    if obj["kind"] == "DaemonSet":
        counts = [
            status.get(name, 0) for name in ("currentNumberScheduled", "updatedNumberScheduled", "numberAvailable")
        ]
        return counts == [status["desiredNumberScheduled"]] * 3
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    return counts == [obj["spec"]["replicas"]] * 3


def _is_finished(job: JSON) -> bool:
    return any(condition["type"] == "Complete" for condition in job.get("status", {}).get("conditions", []))


async def wait_until_ready(http: aiohttp.ClientSession, endpoint: str) -> None:
    """Wait until the caches of a control plane are filled."""
    async with asyncio.timeout(_COMPLETE_SECONDS):
        while True:
            async with http.get(f"{endpoint}/readyz") as response:
                if response.status == 200:
                    return
            await asyncio.sleep(_POLL_SECONDS)


async def fail_nodes(api: ApiClient, rng: random.Random, counts: Counter[str]) -> None:
    """Fail one node after the other until cancelled, each until its pods are evicted, and let it recover."""
    while True:
        path = f"/api/v1/nodes/node-{rng.randrange(NODES)}"
        for mode in (rng.choice(("unreachable", "not-ready")), None):
            patch = {"metadata": {"annotations": {"kubeloop.dev/fail": mode}}}
            await api.request("PATCH", path, patch, "application/merge-patch+json")
            async with asyncio.timeout(_COMPLETE_SECONDS):
                while _is_ready(await api.request("GET", path)) == bool(mode):
                    await asyncio.sleep(_POLL_SECONDS)
            await asyncio.sleep(rng.uniform(1, 4))
        counts["node failures"] += 1


def _is_ready(node: JSON) -> bool:
    (status,) = [condition["status"] for condition in node["status"]["conditions"] if condition["type"] == "Ready"]
    return bool(status == "True")


# --- cost -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """Cost of a window of time. memory_bytes: resident sets at its end; cpu_seconds: in it; both by process."""

    pods: int
    bound_ms: Sequence[float]
    cpu_seconds: dict[str, float]
    memory_bytes: dict[str, int]
    load: float


class Meter:
    """Samples of running processes."""

    def __init__(self, pids: dict[str, int], pods: PodLog, traces: TraceLog) -> None:
        self._pids, self._pods, self._traces = pids, pods, traces
        self._created = 0
        self._cpu = self._cpu_seconds()
        self.samples: list[Sample] = []

    async def run(self, seconds: float) -> None:
        """Take a sample every `seconds` until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            self.sample()

    def sample(self) -> None:
        created, cpu = self._pods.created, self._cpu_seconds()
        self.samples.append(
            Sample(
                created - self._created,
                self._traces.take(),
                {name: cpu[name] - self._cpu[name] for name in cpu},
                {name: _resident_bytes(pid) for name, pid in self._pids.items()},
                os.getloadavg()[0],
            )
        )
        self._created, self._cpu = created, cpu

    def _cpu_seconds(self) -> dict[str, float]:
        return {name: _cpu_seconds(pid) for name, pid in self._pids.items()}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Quarter:
    """A quarter of a run. Of memory, the median; CPU in ms per created pod."""

    pods: int
    bound_p50_ms: float
    bound_p99_ms: float
    cpu_ms_per_pod: dict[str, float]
    memory_mib: dict[str, float]
    load: float


def quarters(samples: Sequence[Sample]) -> list[Quarter]:
    """Return the four quarters of at least four samples."""
    size = len(samples) // 4
    return [_quarter(samples[size * number : size * (number + 1)]) for number in range(4)]


def _quarter(samples: Sequence[Sample]) -> Quarter:
    pods = sum(sample.pods for sample in samples)
    cuts = quantiles([ms for sample in samples for ms in sample.bound_ms], n=100, method="inclusive")
    names = samples[0].cpu_seconds
    return Quarter(
        pods,
        cuts[49],
        cuts[98],
        {name: 1000 * sum(sample.cpu_seconds[name] for sample in samples) / pods for name in names},
        {name: median(sample.memory_bytes[name] for sample in samples) / _MIB for name in names},
        median(sample.load for sample in samples),
    )


def growth(samples: Sequence[Sample], *, filling_pods: int = FILLING_PODS) -> list[str]:
    """Return what the last quarter needs more of than one after `filling_pods`: memory (10 %) or CPU per pod (25 %).

    CPU per pod stands for latency, which follows the load of the machine.
    """
    size = len(samples) // 4
    created = list(itertools.accumulate(sample.pods for sample in samples))
    start = bisect.bisect_left(created, filling_pods)
    if start + 2 * size > len(samples):
        return [f"{created[-1]} pods are too few to compare two quarters after {filling_pods}"]
    before, after = _quarter(samples[start : start + size]), _quarter(samples[-size:])
    return [
        f"{kind} of the {name}: {values_before[name]:.1f}, then {values_after[name]:.1f}"
        for kind, values_before, values_after, limit in (
            ("memory in MiB", before.memory_mib, after.memory_mib, 1.10),
            ("CPU in ms per pod", before.cpu_ms_per_pod, after.cpu_ms_per_pod, 1.25),
        )
        for name in values_before
        if values_after[name] > values_before[name] * limit
    ]


def table(parts: Sequence[Quarter]) -> str:
    """Return a Markdown table."""
    names = list(parts[0].memory_mib)
    title = ["quarter", "pods", "created to bound, p50 and p99, ms"]
    title += [f"{name}: CPU per pod, ms; memory, MiB" for name in names] + ["load average"]
    rows = [
        [
            str(number),
            str(part.pods),
            f"{part.bound_p50_ms:.0f}, {part.bound_p99_ms:.0f}",
            *[f"{part.cpu_ms_per_pod[name]:.1f}; {part.memory_mib[name]:.0f}" for name in names],
            f"{part.load:.1f}",
        ]
        for number, part in enumerate(parts, 1)
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in (title, ["---"] * len(title), *rows))
