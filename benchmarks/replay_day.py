"""Replay of a generated day: 1,000 nodes, 5,000 pods of Deployments, 50,000 pod creations by Jobs and rollouts.

    python benchmarks/replay_day.py generate day.kubeloop [--nodes 1000] [--pods 50000]
    python benchmarks/replay_day.py replay day.kubeloop

The first writes the recording; the second replays it, and prints one JSON document: seconds of CPU and wall time, peak
memory, pods.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import json
import random
import resource
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kubeloop.kube.clock import rfc3339
from kubeloop.recording.reader import RecordingFile
from kubeloop.recording.writer import Header, RecordingWriter
from kubeloop.replay.replay import replay, replay_options
from kubeloop.replay.user_actions import read_file

JSON = dict[str, Any]
DAY_SECONDS = 86_400.0
_START = datetime(2026, 1, 1, tzinfo=UTC)
_PODS_PER_JOB, _PODS_PER_ROLLOUT, _DEPLOYMENTS = 8, 40, 125


class GeneratedClock:
    """Clock of the generated recording."""

    seconds = 0.0

    def now(self) -> datetime:
        return _START + timedelta(seconds=self.seconds)

    def time_ns(self) -> int:
        return int(_START.timestamp()) * 1_000_000_000 + round(self.seconds * 1e9)


class Day:
    """Events of the day, in the order of their time."""

    def __init__(self, writer: RecordingWriter, clock: GeneratedClock, nodes: int, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self._writer = writer
        self._clock = clock
        self._nodes = nodes
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._events, (seconds, self._serial, act))

    def run(self) -> None:
        while self._events and self._events[0][0] <= DAY_SECONDS:
            self._clock.seconds, _, act = heapq.heappop(self._events)
            act()
            self._writer.flush()
        self._clock.seconds = DAY_SECONDS

    def uid(self) -> str:
        return str(self.rng.randbytes(8).hex())

    def put(self, resource: str, obj: JSON) -> None:
        self._writer.put(resource, obj)

    def any_node(self) -> str:
        return f"node-{self.rng.randrange(self._nodes)}"

    def list_all(self, resource: str, objects: list[JSON]) -> None:
        self._writer.start_list(resource)
        for obj in objects:
            self._writer.put(resource, obj)
        self._writer.end_list(resource)

    def run_pod(self, template: JSON, owner: JSON, *, starts_after: float, runs: float | None) -> None:
        """Record a pod: created, bound, running, and, after `runs` seconds, succeeded and deleted."""
        pod = self.pod(template, owner)
        now = self._clock.seconds
        self.put("pods", pod)
        self.at(now + 0.2, lambda: self._become(pod, "Pending", bound=True))
        self.at(now + 0.2 + starts_after, lambda: self._become(pod, "Running", ready=True))
        if runs is not None:
            self.at(now + 0.2 + starts_after + runs, lambda: self._become(pod, "Succeeded"))
            self.at(now + 0.2 + starts_after + runs + 600.0, lambda: self._writer.delete("pods", pod))

    def pod(self, template: JSON, owner: JSON) -> JSON:
        uid = self.uid()
        metadata = {
            "name": f"{owner['metadata']['name']}-{uid[:5]}",
            "namespace": "default",
            "uid": uid,
            "labels": template["metadata"]["labels"],
            "creationTimestamp": rfc3339(self._clock.now()),
            "ownerReferences": [_reference(owner)],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }

    def _become(self, pod: JSON, phase: str, *, bound: bool = False, ready: bool = False) -> None:
        if bound:
            pod["spec"] = {**pod["spec"], "nodeName": self.any_node()}
        conditions = [{"type": "PodScheduled", "status": "True"}]
        if ready:
            conditions.append({"type": "Ready", "status": "True"})
        pod["status"] = {"phase": phase, "conditions": conditions}
        self.put("pods", pod)


def _reference(owner: JSON) -> JSON:
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _template(labels: JSON, image: str, cpu: str, memory: str, restart: str) -> JSON:
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    spec = {"restartPolicy": restart, "containers": [{"name": "main", "image": image, "resources": resources}]}
    return {"metadata": {"labels": labels}, "spec": spec}


def generate(path: Path, nodes: int, pods: int) -> None:
    clock = GeneratedClock()
    writer = RecordingWriter.create(path, Header(), clock=clock)
    day = Day(writer, clock, nodes)
    day.list_all("namespaces", [_namespace(day)])
    day.list_all("nodes", [_node(day, number) for number in range(nodes)])
    deployments = [_Deployment(day, f"app-{number}") for number in range(_DEPLOYMENTS)]
    day.list_all("deployments.apps", [it.deployment for it in deployments])
    day.list_all("replicasets.apps", [it.replica_set for it in deployments])
    day.list_all("jobs.batch", [])
    day.list_all("pods", [pod for it in deployments for pod in it.running_pods()])
    rollouts = pods // 5 // _PODS_PER_ROLLOUT
    jobs = (pods - rollouts * _PODS_PER_ROLLOUT) // _PODS_PER_JOB
    for number in range(rollouts):
        day.at(day.rng.uniform(1.0, DAY_SECONDS), deployments[number % _DEPLOYMENTS].roll_out)
    for number in range(jobs):
        day.at(day.rng.uniform(1.0, DAY_SECONDS), functools.partial(_run_job, day, number))
    day.run()
    writer.close()


def _namespace(day: Day) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "default", "uid": day.uid()},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def _node(day: Day, number: int) -> JSON:
    size = (
        {"cpu": "16", "memory": "64Gi", "pods": "110"}
        if number % 4
        else {"cpu": "64", "memory": "256Gi", "pods": "250"}
    )
    labels = {
        "kubernetes.io/hostname": f"node-{number}",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
        "node.kubernetes.io/instance-type": "small" if number % 4 else "large",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number}", "uid": day.uid(), "labels": labels},
        "spec": {},
        "status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]},
    }


class _Deployment:
    """A Deployment of 40 pods, and its ReplicaSet; rollouts record new pods."""

    def __init__(self, day: Day, name: str) -> None:
        self._day = day
        self._version = 1
        self._cpu = day.rng.choice(["250m", "500m", "1"])
        template = self._template(name)
        self.deployment: JSON = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "default", "uid": day.uid(), "generation": 1},
            "spec": {
                "replicas": _PODS_PER_ROLLOUT,
                "selector": {"matchLabels": {"app": name}},
                "template": template,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            },
        }
        self.replica_set = self._replica_set(template)

    def _template(self, name: str) -> JSON:
        return _template({"app": name}, f"app:{self._version}", self._cpu, "512Mi", "Always")

    def _replica_set(self, template: JSON) -> JSON:
        labels = {**template["metadata"]["labels"], "pod-template-hash": f"h{self._version}"}
        name = self.deployment["metadata"]["name"]
        return {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{name}-h{self._version}",
                "namespace": "default",
                "uid": self._day.uid(),
                "labels": labels,
                "annotations": {"deployment.kubernetes.io/revision": str(self._version)},
                "ownerReferences": [_reference(self.deployment)],
            },
            "spec": {
                "replicas": _PODS_PER_ROLLOUT,
                "selector": {"matchLabels": labels},
                "template": {**template, "metadata": {"labels": labels}},
            },
        }

    def running_pods(self) -> list[JSON]:
        pods = []
        for _ in range(_PODS_PER_ROLLOUT):
            pod = self._day.pod(self.replica_set["spec"]["template"], self.replica_set)
            pod["spec"] = {**pod["spec"], "nodeName": self._day.any_node()}
            conditions = [{"type": name, "status": "True"} for name in ("PodScheduled", "Ready", "ContainersReady")]
            pod["status"] = {"phase": "Running", "conditions": conditions}
            pods.append(pod)
        return pods

    def roll_out(self) -> None:
        self._version += 1
        template = self._template(self.deployment["metadata"]["name"])
        self.deployment["spec"] = {**self.deployment["spec"], "template": template}
        self._day.put("deployments.apps", self.deployment)
        replica_set = self._replica_set(template)
        self._day.put("replicasets.apps", replica_set)
        for _ in range(_PODS_PER_ROLLOUT):
            start = self._day.rng.uniform(1.0, 20.0)
            self._day.run_pod(replica_set["spec"]["template"], replica_set, starts_after=start, runs=None)


def _run_job(day: Day, number: int) -> None:
    template = _template({"job": f"job-{number}"}, "batch:1", day.rng.choice(["500m", "1", "2"]), "1Gi", "Never")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"job-{number}", "namespace": "default", "uid": day.uid()},
        "spec": {
            "completions": _PODS_PER_JOB,
            "parallelism": _PODS_PER_JOB,
            "ttlSecondsAfterFinished": 600,
            "template": template,
        },
    }
    day.put("jobs.batch", job)
    for _ in range(_PODS_PER_JOB):
        start, runs = day.rng.uniform(0.5, 5.0), day.rng.uniform(20.0, 3_000.0)
        day.run_pod(template, job, starts_after=start, runs=runs)


def measure(path: Path) -> JSON:
    began, cpu = time.monotonic(), time.process_time()
    day = read_file(RecordingFile(path))
    read = time.monotonic() - began
    result = replay(day, "default", replay_options("", seed=0))
    runs = result.measurement.runs.values()
    return {
        "recording_mb": round(path.stat().st_size / 1e6, 1),
        "pods_created": sum(not run.is_initial for run in runs),
        "pods_bound": sum(not run.is_initial and run.bound is not None for run in runs),
        "actions": len(day.actions),
        "findings": len(result.findings),
        "read_seconds": round(read, 1),
        "wall_seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["generate", "replay"])
    parser.add_argument("path", type=Path)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=50_000)
    options = parser.parse_args()
    if options.command == "generate":
        generate(options.path, options.nodes, options.pods)
    else:
        print(json.dumps(measure(options.path)))


if __name__ == "__main__":
    main()
