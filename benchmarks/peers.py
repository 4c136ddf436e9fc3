#!/usr/bin/env python3
"""Plans and replays beside cluster-capacity, kube-scheduler-simulator and SimKube, on a real kube-apiserver.

    KUBEBUILDER_ASSETS=DIR .venv/bin/python benchmarks/peers.py --cluster-capacity FILE --simulator FOLDER
    KUBEBUILDER_ASSETS=DIR .venv/bin/python benchmarks/peers.py --simkube FOLDER --trace FILE --nodes 100

FILE: cluster-capacity's binary (go build ./cmd/hypercc). FOLDER: kube-scheduler-simulator's (go build -o FOLDER
./cmd/simulator ./cmd/scheduler). SimKube's FOLDER is its repository, after cargo build --release -p sk-driver; its
driver runs as a process, with kube-controller-manager, kube-scheduler and simulated kubelets instead of KWOK.

How long it takes to find the nodes of further pods of a live cluster: `kubeloop plan` of a Deployment, and
cluster-capacity with a limit. How long to schedule the pods of a recording: `kubeloop replay`, and the simulator's
replay with its scheduler, or SimKube's of a trace. CPU and peak memory are those of the processes, without the API
server's.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop
from msgspec import structs
from pod_load import create_nodes, deployment
from recordings import DayClock
from scheduler_perf.figures import cpu_seconds, peak_memory_mib

from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.resources import NODES, PODS, Resource
from kubeloop.recording.sources.simkube import read_simkube_trace
from kubeloop.recording.writer import Header, RecordingWriter

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.comparison.fake_kubelet import fake_kubelet, make_node
from support.comparison.real_apiserver import RealApiServer, free_ports, real_apiserver, why_missing

JSON = dict[str, Any]
NAMESPACE = "default"
SERVER_FLAGS = {"max-requests-inflight": "4000", "max-mutating-requests-inflight": "4000"}
KUBELOOP = (sys.executable, "-m", "kubeloop")
READY_SECONDS = 900.0


def pod(name: str, node: str = "") -> JSON:
    template = deployment("peer", 1)["spec"]["template"]
    spec = {**template["spec"], **({"nodeName": node} if node else {})}
    metadata = {"name": name, "namespace": NAMESPACE, **template["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def create_cluster(kubeconfig: str, nodes: int, pods: int) -> list[JSON]:
    """Create the nodes, and pods that are bound to them in turn; return the nodes."""
    client = ApiClient(await connect(kubeconfig, None), clock=SystemClock(), rng=random.Random(1))
    try:
        await create_nodes(client, nodes)
        resource: Resource[Any] = NODES
        items: list[JSON] = (await client.list_all(structs.replace(resource, type=dict))).items
        numbers = iter(range(pods))

        async def worker() -> None:
            for number in numbers:
                node = items[number % len(items)]["metadata"]["name"]
                await client.create(PODS, pod(f"running-{number}", node), NAMESPACE)

        async with asyncio.TaskGroup() as workers:
            for _ in range(32):
                workers.create_task(worker())
        return items
    finally:
        await client.close()


def measured(*command: object) -> tuple[JSON, str]:
    """Run a command to its end. Returns its figures, and its output."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([*map(str, command)], stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    seconds = time.perf_counter() - began
    if process.returncode not in (0, 1):
        raise SystemExit(f"{command[0]}: exit code {process.returncode}\n{text[-3000:]}")
    return figures(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024), text


def figures(seconds: float, cpu: float, mib: float) -> JSON:
    return {"seconds": round(seconds, 1), "cpuSeconds": round(cpu, 1), "peakMiB": round(mib)}


def plans(options: argparse.Namespace, folder: Path, server: RealApiServer) -> Iterator[tuple[str, JSON]]:
    """Yield the figures of cluster-capacity and of `kubeloop plan`, in turn."""
    manifest, spec = folder / "deployment.json", folder / "pod.json"
    manifest.write_text(json.dumps(deployment("planned", options.planned)))
    planned = pod("planned")
    planned["spec"] |= {"terminationGracePeriodSeconds": 30, "restartPolicy": "Always", "dnsPolicy": "ClusterFirst"}
    planned["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent"
    spec.write_text(json.dumps(planned))
    capacity = [options.cluster_capacity, "cluster-capacity", f"--kubeconfig={server.kubeconfig}"]
    capacity += [f"--podspec={spec}", f"--max-limit={options.planned}", "--verbose"]
    for _ in range(options.rounds):
        result, text = measured(*capacity)
        if (match := re.search(r"can schedule (\d+) instance", text)) is None:
            raise SystemExit(text)
        yield "cluster-capacity", {**result, "pods": int(match[1])}
        result, text = measured(
            *KUBELOOP, "plan", f"--kubeconfig={server.kubeconfig}", f"--filename={manifest}", "--json"
        )
        (workload,) = json.loads(text)["workloads"]
        yield "kubeloop plan", {**result, "pods": workload["placed"]}


def record(path: Path, nodes: list[JSON], pods: int) -> None:
    """Write a recording of nodes, and of pods that users create later."""
    clock = DayClock()
    writer = RecordingWriter.create(path, Header(server="generated"), clock=clock)
    for resource, objects in (("nodes", nodes), ("pods", [])):
        writer.start_list(resource)
        for item in objects:
            writer.put(resource, {"apiVersion": "v1", "kind": "Node", **item})
        writer.end_list(resource)
    for number in range(pods):
        clock.seconds = 1.0 + number * 0.01
        body = pod(f"new-{number}")
        body["metadata"]["uid"] = body["metadata"]["name"]
        writer.put("pods", body)
    clock.seconds += 60.0
    writer.close()


@contextlib.contextmanager
def running(log: Path, *command: object, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*map(str, command)], stdout=output, stderr=output, env=os.environ | environment, cwd=log.parent
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def simulator(options: argparse.Namespace, folder: Path, server: RealApiServer, nodes: list[JSON]) -> JSON:
    """Replay the pods with kube-scheduler-simulator on an API server without pods. Its requests have no credentials:
    kubectl proxy adds them."""
    (port, web), events = free_ports(2), folder / "record.jsonl"
    objects = [pod(f"new-{number}") for number in range(options.planned)]
    events.write_text("".join(json.dumps({"event": "Add", "resource": body}) + "\n" for body in objects))
    url = f"http://127.0.0.1:{port}"
    settings = {
        "apiVersion": "kube-scheduler-simulator-config/v1alpha1", "kind": "SimulatorConfiguration", "port": web,
        "etcdURL": server.etcd_url, "kubeApiServerUrl": url, "replayEnabled": True, "recordFilePath": str(events),
    }  # fmt: skip
    (folder / "config.yaml").write_text(json.dumps(settings))
    scheduler_settings = {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(folder / "kubeconfig.yaml"), "qps": 1000, "burst": 1000},
    }  # fmt: skip
    (folder / "scheduler.yaml").write_text(json.dumps(scheduler_settings))
    kubeconfig = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
    }  # fmt: skip
    (folder / "kubeconfig.yaml").write_text(json.dumps(kubeconfig))
    proxy = ("kubectl", f"--kubeconfig={server.kubeconfig}", "proxy", f"--port={port}")
    scheduler = (f"{options.simulator}/scheduler", f"--config={folder / 'scheduler.yaml'}", f"--master={url}")
    with running(folder / "proxy.log", *proxy):
        time.sleep(1.0)
        with (
            running(folder / "scheduler.log", *scheduler, KUBECONFIG=str(folder / "kubeconfig.yaml")) as first,
            running(folder / "simulator.log", f"{options.simulator}/simulator") as second,
        ):
            began, bound = time.perf_counter(), 0
            while bound < options.planned and time.perf_counter() - began < READY_SECONDS:
                time.sleep(1.0)
                query = f"/api/v1/namespaces/{NAMESPACE}/pods?fieldSelector=spec.nodeName!="
                bound = len(server.request("GET", query)["items"])
                if first.poll() is not None or second.poll() is not None:
                    logs = (folder / f"{name}.log" for name in ("scheduler", "simulator"))
                    raise SystemExit("\n".join(log.read_text()[-2000:] for log in logs))
            seconds = time.perf_counter() - began
            cpu = cpu_seconds(first.pid) + cpu_seconds(second.pid)
            memory = peak_memory_mib(first.pid) + peak_memory_mib(second.pid)
            return {**figures(seconds, cpu, memory), "pods": bound}


def simkube(options: argparse.Namespace, server: RealApiServer) -> JSON:
    """Run a trace with SimKube's driver: what its controller would create for it, and the driver itself."""
    name, (port,) = "peer", free_ports(1)
    crds = options.simkube / "k8s/raw/simkube.io_simulations.yml"
    subprocess.run(["kubectl", f"--kubeconfig={server.kubeconfig}", "create", "-f", crds], check=True)
    driver = {"image": "none", "namespace": NAMESPACE, "port": port, "tracePath": f"file://{options.trace}"}
    simulation = {
        "apiVersion": "simkube.io/v1", "kind": "Simulation", "metadata": {"name": name},
        "spec": {"driver": driver, "speed": options.speed, "lifecycleParams": {}},
    }  # fmt: skip
    time.sleep(3.0)  # until the definition is served
    server.request("POST", "/apis/simkube.io/v1/simulations", simulation)
    lease = {"metadata": {"name": "sk-lease"}, "spec": {"holderIdentity": name}}
    server.request("POST", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases", lease)
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
    webhook = {
        "name": "mutatepods.simkube.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "failurePolicy": "Fail", "rules": [{**rule, "resources": ["pods", "pods/status"], "scope": "Namespaced"}],
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/", "caBundle": base64.b64encode(server.ca.read_bytes()).decode()
        },
        "matchConditions": [
            {"name": "virtual", "expression": "object.metadata.namespace.startsWith('virtual-')"}
        ],
    }  # fmt: skip
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    server.request("POST", path, {"metadata": {"name": name}, "webhooks": [webhook]})
    for number in range(options.nodes):
        make_node(server, f"node-{number}", labels={"type": "virtual"})
    certificate, key = server.authority.sign("simkube", user="simkube", server=True)
    components = [
        server.start_component(component, "--leader-elect=false", "--kube-api-qps=1000", "--kube-api-burst=1000")
        for component in ("kube-controller-manager", "kube-scheduler")
    ]
    command = [options.simkube / ".build/release/sk-driver", f"--sim-name={name}", f"--controller-ns={NAMESPACE}"]
    command += [f"--admission-webhook-port={port}", f"--cert-path={certificate}", f"--key-path={key}"]
    command += [f"--trace-path=file://{options.trace}"]
    os.environ |= {"KUBECONFIG": str(server.kubeconfig), "DRIVER_NAME": f"sk-{name}-driver"}
    with fake_kubelet(server, heartbeats=True):
        began = {pid: cpu_seconds(pid) for pid in (*server.pids(), *(process.pid for process in components))}
        result, text = measured(*command)
        others = sum(cpu_seconds(pid) - before for pid, before in began.items())
    if "All objects deleted!" not in text:
        raise SystemExit(text[-3000:])
    pods = text.count("first time seeing pod")
    return {**result, "controlPlaneCpuSeconds": round(others, 1), "pods": pods}


def record_trace(path: Path, trace: Path, nodes: list[JSON]) -> None:
    """Write a trace of SimKube as a recording. Its objects have no UIDs."""
    clock, read = DayClock(), read_simkube_trace(trace)
    writer = RecordingWriter.create(path, Header(server=str(trace)), clock=clock)
    resources = sorted({"pods", *(change.resource for change in read.changes())})
    for resource, objects in (("nodes", nodes), *((resource, []) for resource in resources)):
        writer.start_list(resource)
        for item in objects:
            writer.put(resource, {"apiVersion": "v1", "kind": "Node", **item})
        writer.end_list(resource)
    for change in read.changes():
        assert change.object is not None
        clock.seconds = 1.0 + change.seconds
        if change.type == "DELETED":
            writer.delete(change.resource, change.object)
        else:
            metadata = {"uid": f"{change.resource}/{change.key}", **change.object["metadata"]}
            writer.put(change.resource, {**change.object, "metadata": metadata})
    clock.seconds += 60.0
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster-capacity", type=Path)
    parser.add_argument("--simulator", type=Path)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=5_000, help="running pods, for the plans")
    parser.add_argument("--planned", type=int, default=1_000, help="pods that are planned or replayed")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--simkube", type=Path)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--speed", type=float, default=1.0, help="of SimKube: divides the pauses between events")
    options = parser.parse_args()
    if (reason := why_missing("etcd", "kube-apiserver")) is not None:
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.cluster_capacity:
            with real_apiserver(folder / "plans", SERVER_FLAGS) as server:
                uvloop.run(create_cluster(str(server.kubeconfig), options.nodes, options.pods))
                for name, result in plans(options, folder, server):
                    print(json.dumps({name: result}), flush=True)
        if options.simulator:
            with real_apiserver(folder / "replays", SERVER_FLAGS) as server:
                nodes = uvloop.run(create_cluster(str(server.kubeconfig), options.nodes, 0))
                print(json.dumps({"kube-scheduler-simulator": simulator(options, folder, server, nodes)}), flush=True)
                record(folder / "day.kubeloop", nodes, options.planned)
                result, text = measured(*KUBELOOP, "replay", folder / "day.kubeloop", "--json")
                bound = json.loads(text)["runs"][-1]["bound"]
                print(json.dumps({"kubeloop replay": {**result, "pods": bound}}), flush=True)
        if options.simkube:
            with real_apiserver(folder / "simkube", SERVER_FLAGS) as server:
                print(json.dumps({"SimKube": simkube(options, server)}), flush=True)
                items = server.request("GET", "/api/v1/nodes")["items"]
            record_trace(folder / "trace.kubeloop", options.trace, items)
            result, text = measured(*KUBELOOP, "replay", folder / "trace.kubeloop", "--json")
            (_, run) = json.loads(text)["runs"]
            print(json.dumps({"kubeloop replay": {**result, "pods": run["bound"]}}), flush=True)


if __name__ == "__main__":
    main()
