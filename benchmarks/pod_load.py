"""Workloads on nodes without kubelets, observed by a watch; for any API server."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import job_finished_condition
from kubeloop.kube.objects.resources import JOBS, NODES, PODS


@dataclass
class Run:
    """Observations of one run. Seconds are those of time.perf_counter()."""

    expected: int
    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    cpu_at: list[tuple[int, float]] = field(default_factory=list)  # (pods bound, CPU seconds of the control plane)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    started_pods: asyncio.Queue[str] = field(default_factory=asyncio.Queue)  # names of bound pods, see run_job_pods

    def observe(self, pod: Pod, now: float, cpu_seconds: float | None) -> None:
        uid = pod.metadata.uid
        self.created.setdefault(uid, now)
        if pod.spec.node_name and uid not in self.bound:
            self.bound[uid] = now
            self.started_pods.put_nowait(pod.metadata.name)
            if cpu_seconds is not None:
                self.cpu_at.append((len(self.bound), cpu_seconds))
        if any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions):
            self.ready.add(uid)
        if len(self.bound) >= self.expected:
            self.done.set()

    def waits_milliseconds(self) -> dict[str, float]:
        """Return the times from the created to the bound event of the watch."""
        waits = [self.bound[uid] - self.created[uid] for uid in self.bound]
        return {f"p{round(share * 100)}": round(percentile(waits, share) * 1000, 1) for share in (0.5, 0.9, 0.99)}


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def create_nodes(client: ApiClient, count: int) -> None:
    resources = {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "100Gi"}

    async def make(number: int) -> None:
        name = f"bench-{number:05}"
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        with contextlib.suppress(ApiError):
            await client.create(NODES, body)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
        node = await client.get_raw(NODES, name)
        node["status"] = status
        node["spec"].pop("taints", None)  # kube-apiserver adds not-ready, which no controller removes here
        node = await client.update_raw(NODES, name, node)
        node["status"] = status
        await client.update_raw(NODES, name, node, subresource="status")

    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await make(number)

    async with asyncio.TaskGroup() as workers:
        for _ in range(32):
            workers.create_task(worker())


def deployment(name: str, replicas: int) -> dict[str, Any]:
    labels = {"app": name}
    container = {
        "name": "main",
        "image": "registry.example/pause:1",
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def daemon_set(name: str) -> dict[str, Any]:
    """Return a DaemonSet with the pods of `deployment`."""
    body = deployment(name, 0)
    del body["spec"]["replicas"]
    return {**body, "kind": "DaemonSet"}


def stateful_set(name: str, replicas: int) -> dict[str, Any]:
    """Return a StatefulSet with the pods of `deployment`, in parallel mode."""
    body = deployment(name, replicas)
    return {**body, "kind": "StatefulSet", "spec": {**body["spec"], "podManagementPolicy": "Parallel"}}


def job(name: str, completions: int) -> dict[str, Any]:
    """Return an Indexed Job with the pods of `deployment`, which all run at the same time."""
    template = deployment(name, 0)["spec"]["template"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": completions,
            "parallelism": completions,
            "completionMode": "Indexed",
            "template": {**template, "spec": {**template["spec"], "restartPolicy": "Never"}},
        },
    }


def cron_job(name: str, hour: int, minute: int) -> dict[str, Any]:
    """Return a CronJob of one pod that is due once a day, at this time (UTC)."""
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {
            "schedule": f"{minute} {hour} * * *",
            "timeZone": "Etc/UTC",
            "jobTemplate": {"spec": {"template": job(name, 1)["spec"]["template"]}},
        },
    }


def pod_status(phase: str, *, ready: bool) -> dict[str, Any]:
    """Return the patch of a kubelet that starts or ends a pod."""
    status = "True" if ready else "False"
    conditions = [{"type": "Initialized", "status": "True"}]
    conditions += [{"type": type_, "status": status} for type_ in ("Ready", "ContainersReady")]
    return {"status": {"phase": phase, "conditions": conditions}}


async def run_job_pods(client: ApiClient, namespace: str, run: Run) -> None:
    """Act as the kubelets until cancelled: each bound pod becomes Running, then Succeeded."""

    async def worker() -> None:
        while True:
            name = await run.started_pods.get()
            for patch in (pod_status("Running", ready=True), pod_status("Succeeded", ready=False)):
                await client.patch(PODS, name, patch, PatchType.STRATEGIC, namespace, subresource="status")

    async with asyncio.TaskGroup() as workers:
        for _ in range(16):
            workers.create_task(worker())


async def wait_for_finished_job(client: ApiClient, name: str, namespace: str) -> None:
    while job_finished_condition(await client.get(JOBS, name, namespace)) is None:
        await asyncio.sleep(0.02)


async def watch(client: ApiClient, namespace: str, run: Run, cpu_seconds: Callable[[], float]) -> None:
    """Watch until cancelled. kube-apiserver ends watches that are too slow, as on a busy machine in a burst of events;
    the watch then resumes where it ended."""
    step = max(1, run.expected // 20)
    version = "0"
    while True:
        try:
            async with client.watch(PODS, namespace, resource_version=version) as events:
                async for event in events:
                    if event.type == "ERROR":
                        version = "0"
                        break
                    version = event.object.metadata.resource_version
                    if event.type in ("ADDED", "MODIFIED"):
                        cpu = cpu_seconds() if len(run.bound) % step == 0 else None
                        run.observe(event.object, time.perf_counter(), cpu)
        except (ApiError, ServerUnreachable) as error:
            print(f"reopened the watch on pods: {error}", file=sys.stderr)
            version = "0"
            await asyncio.sleep(0.1)
