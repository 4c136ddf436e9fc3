"""API server of the benchmark `observe`: a large cluster, and the writes of its control plane and kubelets.

    python benchmarks/observe_server.py --nodes 5000 --pods 150000 --rate 100

The server is the development cluster's, over TLS. Pods, Events and nodes are written to its store directly, with the
fields, sizes and order that kube-controller-manager, kube-scheduler and kubelets give them, so that the load costs as
little as possible beside the process under test. Prints one line of JSON when the cluster is complete; the load runs
from the first line of stdin until its end, and is then reported as one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import heapq
import json
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from kubeloop.devcluster.server.apiserver import ApiServer, ServingSettings
from kubeloop.devcluster.server.http import HttpServer
from kubeloop.devcluster.server.listener import listen, listening_socket
from kubeloop.devcluster.server.tls import create_certificate
from kubeloop.devcluster.simulation.node_objects import NodeSettings, healthy_conditions, node_object
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.clock import SystemClock, rfc3339, rfc3339_micro
from kubeloop.kube.objects.resources import DEPLOYMENTS, EVENTS, NODES, PODS, REPLICA_SETS
from kubeloop.kube.uids import new_uid
from kubeloop.process.development_cluster.kubeconfig_file import write_kubeconfig

JSON = dict[str, Any]
PODS_PER_OWNER = 25
IMAGE = "registry.example.com/shop/checkout:v1.4.2"
DELETED_AFTER_SECONDS = 0.4  # a terminating pod
NODE_STATUS_SECONDS = 300.0
COMPACTION_SECONDS = 30.0  # memory: watches keep all changes of this time


def managed_fields(manager: str, subresource: str = "") -> JSON:
    """Return an entry of the size that a pod has on a real API server."""
    fields: JSON = {
        "f:spec": {"f:containers": {f'k:{{"name":"c{number}"}}': {".": {}, "f:image": {}} for number in range(8)}}
    }
    entry = {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z"}
    return {
        **entry,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **({"subresource": subresource} if subresource else {}),
    }


MANAGED_FIELDS = [managed_fields("kube-controller-manager"), managed_fields("kubelet", "status")]
PROBE = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 1}
SPEC: JSON = {
    "containers": [
        {
            "name": "app",
            "image": IMAGE,
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "env": [{"name": f"SETTING_{number}", "value": "some value"} for number in range(12)],
            "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "256Mi"}},
            "volumeMounts": [
                {
                    "name": "kube-api-access-abcde",
                    "readOnly": True,
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                }
            ],
            "readinessProbe": PROBE,
            "livenessProbe": PROBE,
            "terminationMessagePath": "/dev/termination-log",
            "imagePullPolicy": "IfNotPresent",
        }
    ],
    "volumes": [
        {
            "name": "kube-api-access-abcde",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                ],
                "defaultMode": 420,
            },
        }
    ],
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "tolerations": [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ],
    "priority": 0,
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}


class Cluster:
    """Objects of the cluster, and their writes."""

    def __init__(self, store: ObjectStore, nodes: int) -> None:
        self._store = store
        self._rng = random.Random(1)
        self._nodes = [f"node-{number:05}" for number in range(nodes)]
        self._number = 0
        self._owner: tuple[str, JSON] = ("", {})
        self._labels: JSON = {}
        self.running: deque[str] = deque()  # keys of running pods, oldest first
        self.events: deque[str] = deque()  # keys of Events, oldest first
        self.writes = 0

    # --- objects ---------------------------------------------------------------------------------------------------

    def new_pod(self) -> JSON:
        """Return a pod as the ReplicaSet controller creates it; each ReplicaSet has PODS_PER_OWNER."""
        if self._number % PODS_PER_OWNER == 0:
            self._new_owner()
        self._number += 1
        namespace, owner = self._owner
        name = f"{owner['name']}-{self._number:07}"
        metadata = {
            "name": name,
            "generateName": f"{owner['name']}-",
            "namespace": namespace,
            "uid": new_uid(self._rng),
            "creationTimestamp": self._now(),
            "labels": self._labels,
            "ownerReferences": [owner],
            "managedFields": MANAGED_FIELDS,
        }
        status = {"phase": "Pending", "qosClass": "Burstable"}
        return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": SPEC, "status": status}

    def _new_owner(self) -> None:
        number = self._number // PODS_PER_OWNER
        namespace, deployment, pod_hash = f"team-{number % 100:03}", f"checkout-{number:05}", f"{number:09x}"
        template = {"metadata": {}, "spec": SPEC}
        owner: JSON = {}
        for resource, name in ((DEPLOYMENTS, deployment), (REPLICA_SETS, f"{deployment}-{pod_hash}")):
            metadata = {"name": name, "namespace": namespace, "uid": new_uid(self._rng), "ownerReferences": [owner]}
            if not owner:
                del metadata["ownerReferences"]
            kind = {"kind": resource.kind, "apiVersion": resource.api_version}
            spec = {"replicas": PODS_PER_OWNER, "selector": {"matchLabels": {"app": deployment}}, "template": template}
            self._store.create(resource, {**kind, "metadata": metadata, "spec": spec, "status": {}})
            owner = {**kind, "name": name, "uid": metadata["uid"], "controller": True, "blockOwnerDeletion": True}
        self._owner = namespace, owner
        self._labels = {"app": deployment, "tier": "backend", "pod-template-hash": pod_hash}

    def status(self, **true_since: str) -> JSON:
        """Return a status with these conditions; a running pod has Ready and ContainersReady, or neither."""
        conditions = []
        for type_ in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"):
            since = true_since.get(type_)
            condition = {"type": type_, "status": "True" if since else "False", "lastProbeTime": None}
            if not since and type_ in ("Ready", "ContainersReady"):
                condition |= {"reason": "ContainersNotReady", "message": "containers with unready status: [app]"}
            conditions.append({**condition, "lastTransitionTime": since or true_since["PodScheduled"]})
        started = true_since.get("Started")
        container: JSON = {"name": "app", "image": IMAGE, "imageID": "", "restartCount": 0, "lastState": {}}
        if started:
            digest = f"{self._rng.getrandbits(256):064x}"
            container |= {"state": {"running": {"startedAt": started}}, "started": True}
            container |= {"containerID": f"containerd://{digest}", "imageID": f"{IMAGE}@sha256:{digest}"}
        else:
            container |= {"state": {"waiting": {"reason": "ContainerCreating"}}, "started": False}
        container["ready"] = "Ready" in true_since
        status: JSON = {"phase": "Running" if started else "Pending", "conditions": conditions, "hostIP": "10.1.2.3"}
        status |= {"startTime": true_since["PodScheduled"], "containerStatuses": [container], "qosClass": "Burstable"}
        if started:
            address = f"10.{self._rng.getrandbits(8)}.{self._rng.getrandbits(8)}.{self._rng.getrandbits(8)}"
            status |= {"podIP": address, "podIPs": [{"ip": address}]}
        return status

    @staticmethod
    def _now() -> str:
        return rfc3339(datetime.now(UTC))

    # --- first contents --------------------------------------------------------------------------------------------

    def fill(self, pods: int, events: int) -> None:
        """Create the nodes, running pods, and Events of the last hour."""
        settings = NodeSettings(count=len(self._nodes))
        for number, name in enumerate(self._nodes):
            node = node_object(settings, number, now=self._now(), uid=new_uid(self._rng))
            node["metadata"]["name"] = name
            names = [f"registry.example.com/{name}/{number:064x}" for number in range(50)]
            node["status"] = {"conditions": healthy_conditions(self._now())}
            node["status"]["images"] = [{"names": [name], "sizeBytes": 123456789} for name in names]
            self._store.create(NODES, node)
        since = rfc3339(datetime.fromtimestamp(time.time() - 86_400, UTC))
        all_true = dict.fromkeys(
            ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled", "Started"), since
        )
        for _ in range(pods):
            pod = self.new_pod()
            pod["metadata"]["creationTimestamp"] = since
            pod["spec"] = {**SPEC, "nodeName": self._rng.choice(self._nodes)}
            pod["status"] = self.status(**all_true)
            self._store.create(PODS, pod)
            self.running.append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
            if len(self.events) < events:
                self.event(pod, "Started", "Started container app", "kubelet", container=True)

    # --- writes of components --------------------------------------------------------------------------------------

    def event(self, pod: JSON, reason: str, message: str, component: str, *, container: bool = False) -> None:
        metadata = pod["metadata"]
        involved = {"kind": "Pod", "apiVersion": "v1", "resourceVersion": metadata.get("resourceVersion", "")}
        involved |= {name: metadata[name] for name in ("name", "namespace", "uid")}
        if container:
            involved["fieldPath"] = "spec.containers{app}"
        now = datetime.now(UTC)
        name = f"{metadata['name']}.{time.time_ns():x}{len(self.events) % 16:x}"
        from_scheduler = component == "default-scheduler"
        times: JSON = {"firstTimestamp": None, "lastTimestamp": None, "eventTime": rfc3339_micro(now)}
        if not from_scheduler:
            times = {"firstTimestamp": rfc3339(now), "lastTimestamp": rfc3339(now), "eventTime": None, "count": 1}
        body = {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "uid": new_uid(self._rng),
                "creationTimestamp": rfc3339(now),
                "managedFields": MANAGED_FIELDS[:1],
            },
            "involvedObject": involved,
            "reason": reason,
            "message": message,
            "source": {} if from_scheduler else {"component": component, "host": pod["spec"].get("nodeName", "")},
            "type": "Normal",
            "reportingComponent": component,
            "reportingInstance": "host-1",
            **times,
        }
        self._store.create(EVENTS, body)
        self.events.append(f"{metadata['namespace']}/{name}")
        self.writes += 1

    def write(self, pod: JSON, **changes: Any) -> JSON:
        """Update a pod: its metadata, spec or status."""
        self.writes += 1
        return self._store.update(PODS, {**pod, **changes})

    def expire_event(self) -> None:
        namespace, name = self.events.popleft().split("/")
        self._store.delete(EVENTS, namespace, name)
        self.writes += 1

    def report_node(self, number: int) -> None:
        """Write the status of a node, as its kubelet does when nothing has changed."""
        node = self._store.get(NODES, "", self._nodes[number % len(self._nodes)])
        assert node is not None
        conditions = [{**condition, "lastHeartbeatTime": self._now()} for condition in node["status"]["conditions"]]
        self._store.update(NODES, {**node, "status": {**node["status"], "conditions": conditions}})
        self.writes += 1

    def start_pod(self, later: Callable[[float, Callable[[], None]], None]) -> None:
        """Create a pod and let it start in a few seconds."""
        pod = self._store.create(PODS, self.new_pod())
        self.writes += 1
        scheduled = self._now()
        rng = self._rng

        def bind() -> None:
            nonlocal pod
            node = rng.choice(self._nodes)
            condition = {
                "type": "PodScheduled",
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": scheduled,
            }
            status = {**pod["status"], "conditions": [condition]}
            pod = self.write(pod, spec={**pod["spec"], "nodeName": node}, status=status)
            self.event(
                pod, "Scheduled", f"Successfully assigned {pod['metadata']['name']} to {node}", "default-scheduler"
            )
            later(0.02 + rng.random() * 0.1, admit)

        def admit() -> None:
            nonlocal pod
            pod = self.write(pod, status=self.status(PodScheduled=scheduled, Initialized=scheduled))
            later(0.3 + rng.random() * 0.5, pull)

        def pull() -> None:
            self.event(pod, "Pulling", f'Pulling image "{IMAGE}"', "kubelet", container=True)
            later(0.5 + rng.random(), run)

        def run() -> None:
            nonlocal pod
            took = "1.2s (1.2s including waiting). Image size: 123456789 bytes."
            self.event(pod, "Pulled", f'Successfully pulled image "{IMAGE}" in {took}', "kubelet", container=True)
            self.event(pod, "Created", "Created container: app", "kubelet", container=True)
            self.event(pod, "Started", "Started container app", "kubelet", container=True)
            now = self._now()
            true = {
                "PodScheduled": scheduled,
                "Initialized": scheduled,
                "PodReadyToStartContainers": now,
                "Started": now,
            }
            pod = self.write(pod, status=self.status(**true))
            later(1.0, lambda: get_ready(true))

        def get_ready(true: dict[str, str]) -> None:
            now = self._now()
            ready = self.write(pod, status=self.status(**true, Ready=now, ContainersReady=now))
            self.running.append(f"{ready['metadata']['namespace']}/{ready['metadata']['name']}")

        later(0.01, bind)

    def stop_pod(self, later: Callable[[float, Callable[[], None]], None]) -> None:
        """Delete the pod that has run for the longest time."""
        namespace, name = self.running.popleft().split("/")
        pod = self._store.get(PODS, namespace, name)
        assert pod is not None
        metadata = {**pod["metadata"], "deletionTimestamp": self._now(), "deletionGracePeriodSeconds": 30}
        pod = self.write(pod, metadata=metadata)
        self.event(pod, "Killing", "Stopping container app", "kubelet", container=True)

        def terminated() -> None:
            terminated = {"exitCode": 0, "reason": "Completed", "finishedAt": self._now()}
            container = {**pod["status"]["containerStatuses"][0], "ready": False, "state": {"terminated": terminated}}
            self.write(pod, status={**pod["status"], "containerStatuses": [container]})
            self._store.delete(PODS, namespace, name)
            self.writes += 1

        later(DELETED_AFTER_SECONDS, terminated)


async def load(cluster: Cluster, rate: float, ended: asyncio.Event) -> JSON:
    """Start and stop pods at a rate per second until `ended`. Returns what was written."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    timers: list[tuple[float, int, Callable[[], None]]] = []
    sequence = started = reports = 0
    first_writes, cpu_before = cluster.writes, time.process_time()
    worst_delay = 0.0
    expire = len(cluster.events) > 0

    def later(seconds: float, act: Callable[[], None]) -> None:
        nonlocal sequence
        sequence += 1
        heapq.heappush(timers, (loop.time() + seconds, sequence, act))

    while not ended.is_set():
        now = loop.time()
        steps = 0
        while timers and timers[0][0] <= now and steps < 200:
            due, _, act = heapq.heappop(timers)
            worst_delay = max(worst_delay, now - due)
            act()
            steps += 1
        for _ in range(min(20, int((now - began) * rate) - started)):
            events_before = len(cluster.events)
            cluster.start_pod(later)
            if cluster.running:
                cluster.stop_pod(later)
            started += 1
            while expire and len(cluster.events) > events_before - 5 and len(cluster.events) > 1000:
                cluster.expire_event()
        while reports < (now - began) * len(cluster._nodes) / NODE_STATUS_SECONDS:
            cluster.report_node(reports)
            reports += 1
        await asyncio.sleep(0.002)
    seconds = loop.time() - began
    return {
        "seconds": round(seconds, 1),
        "podStartsPerSecond": round(started / seconds, 1),
        "writesPerSecond": round((cluster.writes - first_writes + started) / seconds),
        "serverCpuPercentOfACore": round(100 * (time.process_time() - cpu_before) / seconds, 1),
        "worstDelayOfAWriteMilliseconds": round(worst_delay * 1000),
    }


async def serve(options: argparse.Namespace) -> None:
    clock = SystemClock()
    certificate = create_certificate(clock)
    settings = ServingSettings(compaction_seconds=COMPACTION_SECONDS, root_ca=certificate.authority.certificate_pem)
    api = ApiServer(clock=clock, rng=random.Random(1), token="benchmark", settings=settings)
    cluster = Cluster(api.store, options.nodes)
    began = time.perf_counter()
    gc.disable()
    cluster.fill(options.pods, options.events)
    gc.freeze()
    gc.enable()
    filled_seconds = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder, closing(listening_socket(0)) as listener:
        path = Path(folder) / "kubeconfig"
        port = listener.getsockname()[1]
        url = f"https://127.0.0.1:{port}"
        write_kubeconfig(path, server=url, token="benchmark", certificate_pem=certificate.authority.certificate_pem)
        async with HttpServer(api, compress=api.compresses_responses) as http, asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(api.run(), name="api-server"),
                group.create_task(listen(listener, http, certificate.context), name="listener"),
            ]
            reader = asyncio.StreamReader()
            await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
            print(json.dumps({"kubeconfig": str(path), "fillSeconds": round(filled_seconds, 1)}), flush=True)
            await reader.readline()
            ended = asyncio.Event()
            loading = group.create_task(load(cluster, options.rate, ended), name="load")
            await reader.readline()
            ended.set()
            print(json.dumps(await loading), flush=True)
            await reader.read()
            for task in tasks:
                task.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--rate", type=float, default=100.0, help="pod starts per second; as many pods are deleted")
    parser.add_argument("--events", type=int, default=100_000, help="Events that exist before the load")
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
