"""Size of a recorded day, and time of a plan: writes a recording with Deployments, and plans a change of it.

    .venv/bin/python benchmarks/recordings.py [--nodes 1000] [--pods 10000] [--day 50000]

--day: number of pods that are created, run and deleted in the recorded day, after the first list.
"""

from __future__ import annotations

import argparse
import heapq
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubeloop.recording.writer import Header, RecordingWriter

JSON = dict[str, Any]
DEPLOYMENTS = 300
CREATED = "2026-01-01T00:00:00Z"
LIMITS = {"revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
REQUESTS = {"cpu": "100m", "memory": "128Mi"}
DEFAULTS: JSON = {
    "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler", "securityContext": {},
}  # fmt: skip
CONTAINER: JSON = {
    "resources": {"requests": REQUESTS}, "imagePullPolicy": "IfNotPresent",
    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
}  # fmt: skip


class DayClock:
    """A clock that the benchmark sets."""

    seconds = 0.0

    def time_ns(self) -> int:
        return 1_767_225_600_000_000_000 + round(self.seconds * 1e9)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time_ns() / 1e9, UTC)


def obj(api_version: str, kind: str, name: str, uid: str, owner: JSON | None = None, **fields: Any) -> JSON:
    metadata: JSON = {
        "name": name,
        "uid": uid,
        "generation": 1,
        "creationTimestamp": CREATED,
        **fields.pop("metadata", {}),
    }
    if owner:
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        metadata["ownerReferences"] = [reference | {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def node(number: int) -> JSON:
    amounts = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    name, conditions = f"node-{number}", [{"type": "Ready", "status": "True", "lastTransitionTime": CREATED}]
    images = [{"names": [f"registry.example.com/app-{image}:v1"], "sizeBytes": 10**8} for image in range(number % 50)]
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{'abc'[number % 3]}"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions, "images": images}
    return obj("v1", "Node", name, name, metadata={"labels": labels}, spec={}, status=status)


def workload(number: int, replicas: int) -> tuple[JSON, JSON]:
    """Return a Deployment and its ReplicaSet."""
    labels = {"app": f"app-{number}"}
    hashed = {**labels, "pod-template-hash": "5d4"}
    spec = {**DEFAULTS, "containers": [{"name": "app", "image": f"registry.example.com/app-{number}:v1", **CONTAINER}]}
    counts = {"replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas, "observedGeneration": 1}
    progress = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "lastUpdateTime": CREATED}
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
    place = {"namespace": "default", "labels": labels}
    deployment = obj(
        "apps/v1", "Deployment", f"app-{number}", f"d-{number}", metadata=place,
        spec={"replicas": replicas, "selector": {"matchLabels": labels}, "strategy": rolling, **LIMITS,
              "template": {"metadata": {"labels": labels}, "spec": spec}},
        status={**counts, "updatedReplicas": replicas, "conditions": [progress]},
    )  # fmt: skip
    replica_set = obj(
        "apps/v1", "ReplicaSet", f"app-{number}-5d4", f"r-{number}", deployment,
        metadata={**place, "labels": hashed, "annotations": {"deployment.kubernetes.io/revision": "1"}},
        spec={"replicas": replicas, "selector": {"matchLabels": hashed},
              "template": {"metadata": {"labels": hashed}, "spec": spec}},
        status=counts,
    )  # fmt: skip
    return deployment, replica_set


def pod(replica_set: JSON, name: str, node_name: str, stage: int) -> JSON:
    """Return a pod. stage: 0 created, 1 bound, 2 starting, 3 running, 4 ready, 5 ended."""
    types = ("PodScheduled", "Initialized", "PodReadyToStartContainers", "Ready")
    conditions = [
        {"type": type_, "status": "True" if number < stage else "False", "lastTransitionTime": CREATED}
        for number, type_ in enumerate(types)
    ]
    state = {"running": {"startedAt": CREATED}} if stage > 2 else {"waiting": {"reason": "ContainerCreating"}}
    status: JSON = {"phase": ("Pending", "Running", "Succeeded")[(stage > 2) + (stage > 4)], "conditions": conditions}
    status["containerStatuses"] = [{"name": "app", "ready": stage == 4, "restartCount": 0, "state": state}]
    template = replica_set["spec"]["template"]
    spec = {**template["spec"], **({"nodeName": node_name} if stage else {})}
    place = {"namespace": "default", "labels": template["metadata"]["labels"]}
    return obj("v1", "Pod", name, f"uid-{name}", replica_set, metadata=place, spec=spec, status=status)


def write(path: Path, nodes: int, pods: int, day: int) -> None:
    clock, rng = DayClock(), random.Random(1)
    writer = RecordingWriter.create(path, Header(server="generated"), clock=clock)
    workloads = [workload(number, len(range(number, pods, DEPLOYMENTS))) for number in range(DEPLOYMENTS)]
    lists = {
        "nodes": [node(number) for number in range(nodes)],
        "deployments.apps": [deployment for deployment, _ in workloads],
        "replicasets.apps": [replica_set for _, replica_set in workloads],
        "pods": [
            pod(workloads[number % DEPLOYMENTS][1], f"app-{number}", f"node-{number % nodes}", 4)
            for number in range(pods)
        ],
    }
    for resource, objects in lists.items():
        writer.start_list(resource)
        for item in objects:
            writer.put(resource, item)
        writer.end_list(resource)
    events = [(rng.uniform(0, 80_000), number, 0) for number in range(day)]
    heapq.heapify(events)
    while events:
        seconds, number, stage = heapq.heappop(events)
        if int(seconds) != int(clock.seconds):
            writer.flush()
        clock.seconds = seconds
        state = pod(workloads[number % DEPLOYMENTS][1], f"day-{number}", f"node-{number * 7 % nodes}", min(stage, 5))
        if stage > 5:
            writer.delete("pods", state)
            continue
        writer.put("pods", state)
        heapq.heappush(events, (seconds + (0.05, 0.3, 2.0, 5.0, 600.0, 30.0)[stage], number, stage + 1))
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("nodes", 1_000), ("pods", 10_000), ("day", 50_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, began = Path(folder) / "day.kubeloop", time.process_time()
        write(path, arguments.nodes, arguments.pods, arguments.day)
        print(f"recording: {path.stat().st_size / 1e6:.1f} MB, {time.process_time() - began:.1f} s CPU")
        command = [sys.executable, "-m", "kubeloop", "plan", f"--cluster={path}", "--scale=deploy/app-0=200"]
        command += ["--at=0"]
        began = time.perf_counter()
        subprocess.run(command, check=True)
        print(f"plan: {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
