"""Size of a recorded day, and time of plans: writes a recording with Deployments, and plans changes of it.

    .venv/bin/python benchmarks/recordings.py [--nodes 1000] [--pods 10000] [--day 50000] [--live]

--day: number of pods that are created, run and deleted in the recorded day, after the first list. --live: the same
plans of a real kube-apiserver with the objects of the recording (KUBEBUILDER_ASSETS).
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import structs

from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects import resources
from kubeloop.kube.objects.resources import NODES, PODS, REPLICA_SETS, Resource
from kubeloop.recording.changes import state_at
from kubeloop.recording.reader import RecordingFile
from kubeloop.recording.writer import Header, RecordingWriter

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.comparison.real_apiserver import real_apiserver

JSON = dict[str, Any]
SERVER_FLAGS = {"max-requests-inflight": "4000", "max-mutating-requests-inflight": "4000"}
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
    for name, objects in lists.items():
        writer.start_list(name)
        for item in objects:
            writer.put(name, item)
        writer.end_list(name)
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


async def create(kubeconfig: str, recording: Path) -> None:
    """Create the first objects of a recording on an API server, which gives them other UIDs."""
    state = state_at(RecordingFile(recording), 0.0)
    client = ApiClient(await connect(kubeconfig, None), clock=SystemClock(), rng=random.Random(1))
    uids: dict[str, str] = {}

    async def create_one(resource: Resource[Any], body: JSON) -> None:
        metadata = {name: value for name, value in body["metadata"].items() if name != "uid"}
        for owner in metadata.get("ownerReferences", ()):
            owner["uid"] = uids[owner["uid"]]
        plain, namespace = structs.replace(resource, type=dict), metadata.get("namespace", "")
        created = await client.create(plain, {**body, "metadata": metadata}, namespace)
        uids[body["metadata"]["uid"]] = created["metadata"]["uid"]
        patch = {"status": body["status"]}
        await client.patch(plain, metadata["name"], patch, PatchType.MERGE, namespace, subresource="status")

    try:
        for resource in (NODES, resources.DEPLOYMENTS, REPLICA_SETS, PODS):
            bodies = iter(state.of(resource).values())

            async def worker(resource: Resource[Any] = resource, bodies: Iterator[JSON] = bodies) -> None:
                for body in bodies:
                    await create_one(resource, body)

            async with asyncio.TaskGroup() as workers:
                for _ in range(32):
                    workers.create_task(worker())
    finally:
        await client.close()


def plan(folder: Path, *cluster: str) -> None:
    """Print the time of plans: of 166 more pods, of pods that fit on no node, and on an empty node only."""
    manifest = folder / "large.json"
    for pods, cpu in ((0, 0), (1_000, 33), (2_880, 33), (1_000, 32), (2_880, 32)):
        arguments = ["--scale=deploy/app-0=200"]
        if pods:
            large, _ = workload(0, pods)
            metadata = {"name": "large", "namespace": "default"}
            large["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": f"{cpu}"}}
            manifest.write_text(json.dumps({**large, "metadata": metadata, "status": {}}))
            arguments = [f"--filename={manifest}"]
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "kubeloop", "plan", *cluster, *arguments]
        output = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True).stdout
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(
            f"plan with {pods} pending pods of {cpu} CPUs: {seconds:.1f} s, {used:.1f} s CPU; {output.splitlines()[-1]}"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("nodes", 1_000), ("pods", 10_000), ("day", 50_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--live", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, began = Path(folder) / "day.kubeloop", time.process_time()
        write(path, arguments.nodes, arguments.pods, arguments.day)
        print(f"recording: {path.stat().st_size / 1e6:.1f} MB, {time.process_time() - began:.1f} s CPU")
        plan(Path(folder), f"--cluster={path}", "--at=0")
        if arguments.live:
            with real_apiserver(Path(folder) / "server", SERVER_FLAGS) as server:
                asyncio.run(create(str(server.kubeconfig), path))
                plan(Path(folder), f"--kubeconfig={server.kubeconfig}")


if __name__ == "__main__":
    main()
