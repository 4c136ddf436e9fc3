"""Write the arrivals of the experiment as a recording for `kubeloop replay`, and the configuration of each policy.

    python arrivals.py TRACES WORKLOAD --seed 42 --output DIRECTORY

TRACES has nodes.csv and pods-WORKLOAD.csv in the form of cluster-trace-gpu-v2023. Pods arrive in an order that is drawn
from the seed; when all have arrived, pods are drawn from the list again, until the requested GPU capacity is 130 % of
the cluster's. They never leave. The order of the nodes' names, which decides between nodes of equal score, is drawn
from the seed as well.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

GPU_MILLI = "alibabacloud.com/gpu-milli"
GPU_MODEL = "alibabacloud.com/gpu-card-model"
POLICIES = ("Random", "DotProd", "GpuClustering", "GpuPacking", "BestFit", "Fragmentation")
REQUESTED = 1.3  # of the GPU capacity of the cluster
TYPICAL_SHARE = 0.95  # of all pods: those with the most frequent requests are the typical ones
SECONDS_APART = 0.1
WITHOUT = (
    "NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality", "NodeAffinity", "PodTopologySpread",
    "TaintToleration", "InterPodAffinity",
)  # fmt: skip

Row = Mapping[str, str]


def read_csv(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return sorted(csv.DictReader(file), key=lambda row: row.get("sn") or row["name"])


def gpu_milli(pod: Row) -> int:
    """Return the thousandths of GPUs that a pod requests in all."""
    count = int(pod["num_gpu"])
    return int(pod["gpu_milli"]) if count == 1 else count * 1000


def models(pod: Row) -> list[str]:
    return [model for model in pod["gpu_spec"].split("|") if model]


def arrivals(pods: Sequence[Row], capacity: int, seed: int) -> list[Row]:
    """Return the pods in the order of their arrival. capacity: thousandths of GPUs in the cluster."""
    rng = random.Random(seed)
    arriving = list(pods)
    rng.shuffle(arriving)
    requested = sum(map(gpu_milli, arriving))
    while True:
        pod = rng.choice(pods)
        if requested + min(gpu_milli(pod), 1000) > REQUESTED * capacity:
            return arriving
        requested += gpu_milli(pod)
        arriving.append(pod)


def node_object(name: str, node: Row) -> dict[str, Any]:
    capacity = {"cpu": f"{node['cpu_milli']}m", "memory": f"{node['memory_mib']}Mi", "pods": "1001"}
    labels = {"kubernetes.io/hostname": name}
    if gpus := int(node["gpu"]):
        capacity[GPU_MILLI] = str(gpus * 1000)
        labels[GPU_MODEL] = node["model"]
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"capacity": capacity, "allocatable": capacity, "conditions": conditions}
    metadata = {"name": name, "uid": node["sn"], "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def pod_object(name: str, pod: Row) -> dict[str, Any]:
    requests = {"cpu": f"{pod['cpu_milli']}m", "memory": f"{pod['memory_mib']}Mi"}
    resources: dict[str, Any] = {"requests": requests}
    if milli := gpu_milli(pod):
        requests[GPU_MILLI] = str(milli)
        resources["limits"] = {GPU_MILLI: str(milli)}
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "task", "resources": resources}]}
    if allowed := models(pod):
        term = {"matchExpressions": [{"key": GPU_MODEL, "operator": "In", "values": allowed}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        spec["affinity"] = {"nodeAffinity": required}
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def recording(nodes: Sequence[Row], arriving: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield the lines of the recording; docs/recording.md describes them. Names of nodes are in the given order."""
    yield {"format": "kubeloop-recording", "version": 1, "start": "2026-01-01T00:00:00.000000Z"}
    yield {"t": 0.0, "mark": "list", "resource": "nodes"}
    for number, node in enumerate(nodes):
        yield {"t": 0.0, "put": "nodes", "object": node_object(f"{number:04}-{node['sn']}", node)}
    yield {"t": 0.0, "mark": "listed", "resource": "nodes"}
    yield {"t": 0.0, "mark": "list", "resource": "pods"}
    yield {"t": 0.0, "mark": "listed", "resource": "pods"}
    seconds = 0.0
    for number, pod in enumerate(arriving, start=1):
        seconds = round(number * SECONDS_APART, 3)
        yield {"t": seconds, "put": "pods", "object": pod_object(f"task-{number:05}", pod)}
    yield {"t": seconds + 10, "mark": "end"}


def typical_pods(pods: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the most frequent requests, of 95 % of all pods, as arguments of the policy Fragmentation."""
    requests = Counter((int(pod["cpu_milli"]), gpu_milli(pod), tuple(models(pod))) for pod in pods)
    chosen: list[tuple[tuple[int, int, tuple[str, ...]], int]] = []
    for request, count in sorted(requests.items(), key=lambda item: (item[1], item[0]), reverse=True):
        if sum(count for _, count in chosen) >= TYPICAL_SHARE * len(pods):
            break
        chosen.append((request, count))
    covered = sum(count for _, count in chosen)
    return [
        {"cpuMilli": cpu, "gpuMilli": milli, "models": list(allowed), "share": count / covered}
        for (cpu, milli, allowed), count in chosen
    ]


def configuration(policy: str, pods: Sequence[Row]) -> dict[str, Any]:
    """Return the KubeSchedulerConfiguration of a policy: its score decides, then the names of the nodes."""
    plugins = {
        "multiPoint": {
            "enabled": [
                {"name": f"gpu_sharing:{policy}", "weight": 20_000},
                {"name": "gpu_sharing:FirstByName", "weight": 101},
                {"name": "gpu_sharing:FirstByNameWithinStep", "weight": 1},
            ]
        },
        "postFilter": {"disabled": [{"name": "*"}]},
        "score": {"disabled": [{"name": name} for name in WITHOUT]},
    }
    profile: dict[str, Any] = {"plugins": plugins}
    if policy == "Fragmentation":
        profile["pluginConfig"] = [{"name": f"gpu_sharing:{policy}", "args": {"typicalPods": typical_pods(pods)}}]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100,
        "profiles": [profile],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("workload", help="such as default: of pods-default.csv")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output", type=Path, default=Path())
    options = parser.parse_args()
    nodes, pods = read_csv(options.traces / "nodes.csv"), read_csv(options.traces / f"pods-{options.workload}.csv")
    capacity = sum(int(node["gpu"]) for node in nodes) * 1000
    arriving = arrivals(pods, capacity, options.seed)
    random.Random(options.seed).shuffle(nodes)
    options.output.mkdir(parents=True, exist_ok=True)
    with (options.output / "arrivals.kubeloop").open("w") as file:
        for line in recording(nodes, arriving):
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
    for policy in POLICIES:
        (options.output / f"{policy}.json").write_text(json.dumps(configuration(policy, pods), indent=1) + "\n")


if __name__ == "__main__":
    main()
