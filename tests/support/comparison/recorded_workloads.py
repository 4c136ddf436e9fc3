"""Workloads that kube-controller-manager and kube-scheduler run while a real API server is recorded.

Each workload has a namespace and a pool of nodes of its own, so that the placements of one do not depend on those of
another. Nodes differ in size: the scores of two nodes are rarely equal.
"""

from __future__ import annotations

import contextlib
import threading
import time
import urllib.error
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from support.comparison.fake_kubelet import LostNodes, make_node
from support.comparison.real_apiserver import RealApiServer

JSON = dict[str, Any]
POOL: Final = "example.com/pool"
HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
DRIVER: Final = "zonal.example.com"
TIMEOUT_SECONDS: Final = 240.0
_GROUPS: Final = {
    "Deployment": "apis/apps/v1", "StatefulSet": "apis/apps/v1", "DaemonSet": "apis/apps/v1",
    "Job": "apis/batch/v1", "CronJob": "apis/batch/v1", "PodDisruptionBudget": "apis/policy/v1", "Pod": "api/v1",
}  # fmt: skip
_STRATEGIC = "application/strategic-merge-patch+json"


class User:
    """Requests of the user of one workload, in its namespace and pool."""

    def __init__(self, server: RealApiServer, lost_nodes: LostNodes, workload: str) -> None:
        self.server = server
        self.lost_nodes = lost_nodes
        self.workload = workload

    def node(self, number: int) -> str:
        return f"{self.workload}-{number}"

    def on(self, number: int) -> JSON:
        """Return the nodeSelector of one node."""
        return {"nodeSelector": {HOST: self.node(number)}}

    def add_node(self, number: int, *, cpu: int, zone: str = "") -> None:
        labels = {POOL: self.workload, ZONE: zone or f"zone-{'abc'[number % 3]}"}
        size = {"cpu": str(cpu), "memory": f"{cpu * 3 + number}Gi", "pods": "30"}
        make_node(self.server, self.node(number), labels=labels, size=size)
        driver = {"name": DRIVER, "nodeID": self.node(number), "topologyKeys": [ZONE], "allocatable": {"count": 2}}
        body = {"metadata": {"name": self.node(number)}, "spec": {"drivers": [driver]}}
        self.server.request("POST", "/apis/storage.k8s.io/v1/csinodes", body)

    def patch_node(self, number: int, patch: JSON) -> None:
        self.server.request("PATCH", f"/api/v1/nodes/{self.node(number)}", patch, content_type=_STRATEGIC)

    def path(self, kind: str, name: str = "") -> str:
        plural = f"{kind.lower()}s"
        return f"/{_GROUPS[kind]}/namespaces/{self.workload}/{plural}{'/' if name else ''}{name}"

    def create(self, kind: str, name: str, spec: JSON, **metadata: Any) -> None:
        self.server.request("POST", self.path(kind), {"metadata": {"name": name, **metadata}, "spec": spec})

    def patch(self, kind: str, name: str, spec: JSON) -> None:
        self.server.request("PATCH", self.path(kind, name), {"spec": spec}, content_type=_STRATEGIC)

    def scale(self, name: str, replicas: int) -> None:
        self.patch("Deployment", name, {"replicas": replicas})

    def new_image(self, kind: str, name: str) -> None:
        self.patch(kind, name, {"template": {"spec": {"containers": [{"name": "c", "image": "app:2"}]}}})

    def delete(self, kind: str, name: str) -> None:
        self.server.request("DELETE", self.path(kind, name), {"propagationPolicy": "Background"})

    def pod_spec(self, cpu: str = "1", image: str = "app:1", **spec: Any) -> JSON:
        """Return the spec of a pod for a node of the pool."""
        container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
        selector = {POOL: self.workload, **spec.pop("nodeSelector", {})}
        return {"containers": [container], "nodeSelector": selector, "terminationGracePeriodSeconds": 1, **spec}

    def app(self, name: str, replicas: int, pod: JSON, **spec: Any) -> JSON:
        """Return the spec of a Deployment, StatefulSet or DaemonSet."""
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": pod}
        size = {"replicas": replicas} if replicas else {}
        return {**size, "selector": {"matchLabels": labels}, "template": template, **spec}

    def pods(self) -> list[JSON]:
        return self.server.request("GET", self.path("Pod"))["items"]

    def wait(self, name: str = "", *, image: str = "", **phases: int) -> None:
        """Wait until the pods of an app (of all) have these phases, without those that are being deleted."""

        def counted() -> Counter[str]:
            return Counter(
                pod["status"]["phase"]
                for pod in self.pods()
                if "deletionTimestamp" not in pod["metadata"]
                and (not name or pod["metadata"].get("labels", {}).get("app") == name)
                and (not image or pod["spec"]["containers"][0]["image"] == image)
            )

        self.wait_until(lambda: counted() == Counter(phases), f"{name} {image} {phases}, not {counted()}")

    def wait_until(self, condition: Callable[[], bool], description: str) -> None:
        end = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            assert time.monotonic() < end, f"{self.workload}: {description}"
            time.sleep(0.4)

    def wait_rollout(self, kind: str, name: str, replicas: int) -> None:
        """Wait until all pods have the second image, and no other pod is left."""
        self.wait(name, image="app:2", Running=replicas)
        self.wait_until(lambda: len(self.pods()) == replicas, f"rollout of {kind} {name}")
        time.sleep(1.0)


# --- the workloads ----------------------------------------------------------------------------------------------------


def rollout_apart(user: User) -> None:
    """A rolling update of pods of which each needs a node of its own; one more waits for a new node."""
    term = {"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": HOST}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    strategy = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    user.create("Deployment", "apart", user.app("apart", 4, user.pod_spec(affinity=apart), strategy=strategy))
    user.wait("apart", Running=4)
    user.new_image("Deployment", "apart")
    user.wait_rollout("Deployment", "apart", 4)
    user.scale("apart", 5)
    user.wait("apart", Running=4, Pending=1)
    time.sleep(2.0)
    user.add_node(4, cpu=6)
    user.wait("apart", Running=5)


def rollout_recreate(user: User) -> None:
    """The strategy Recreate, then a larger number of replicas."""
    user.create("Deployment", "web", user.app("web", 7, user.pod_spec(), strategy={"type": "Recreate"}))
    user.wait("web", Running=7)
    user.new_image("Deployment", "web")
    user.wait_rollout("Deployment", "web", 7)
    user.scale("web", 11)
    user.wait("web", Running=11)


def rollout_surge(user: User) -> None:
    """A rolling update that creates all new pods first."""
    strategy = {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}
    user.create("Deployment", "web", user.app("web", 5, user.pod_spec(), strategy=strategy))
    user.wait("web", Running=5)
    user.new_image("Deployment", "web")
    user.wait_rollout("Deployment", "web", 5)


def jobs(user: User) -> None:
    """Jobs with pods one after the other, with an index, and with failures."""
    ends, fails = (
        {"metadata": {}, "spec": user.pod_spec(image=f"job:exits-{code}", restartPolicy="Never")} for code in (0, 1)
    )
    user.create("Job", "one-by-one", {"completions": 5, "parallelism": 1, "template": ends})
    user.wait("", Succeeded=5)
    indexed = {"completions": 6, "parallelism": 6, "completionMode": "Indexed"}
    user.create("Job", "indexed", {**indexed, "template": ends})
    user.wait("", Succeeded=11)
    user.create("Job", "failing", {"backoffLimit": 1, "template": fails})
    user.wait("", Succeeded=11, Failed=2)


def cron_job(user: User) -> None:
    """A CronJob at two full minutes."""
    template = {"metadata": {}, "spec": user.pod_spec(image="job:exits-0", restartPolicy="Never")}
    job = {"spec": {"completions": 2, "parallelism": 2, "template": template}}
    user.create("CronJob", "minutely", {"schedule": "* * * * *", "jobTemplate": job})
    user.wait("", Succeeded=4)
    user.patch("CronJob", "minutely", {"suspend": True})


def preemption(user: User) -> None:
    """A pod with a high priority takes the place of those with the lowest, which wait until it is gone."""
    for name, node, priority in (("low", 0, "low"), ("middle", 1, "middle")):
        pod = user.pod_spec(priorityClassName=priority, **user.on(node))
        user.create("Deployment", name, user.app(name, 4, pod))
        user.wait(name, Running=4)
    user.create("Deployment", "high", user.app("high", 1, user.pod_spec("2", priorityClassName="high")))
    user.wait("high", Running=1)
    user.wait("low", Running=2, Pending=2)
    time.sleep(2.0)
    user.scale("high", 0)
    user.wait("low", Running=4)


def node_loss(user: User) -> None:
    """A node is lost: its pods are replaced after the seconds of their toleration. It returns."""
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}
        for key in ("unreachable", "not-ready")
    ]
    user.create("Deployment", "web", user.app("web", 6, user.pod_spec(tolerations=tolerations)))
    user.wait("web", Running=6)
    user.lost_nodes.lose(user.node(0))
    user.wait_until(lambda: any("deletionTimestamp" in pod["metadata"] for pod in user.pods()), "evictions")
    user.wait("web", Running=6)
    user.lost_nodes.restore(user.node(0))
    user.wait_until(lambda: len(user.pods()) == 6, "end of the evicted pods")
    # with the taint, new pods are evicted again: for up to five seconds, and in a replay for one
    user.wait_until(
        lambda: not user.server.request("GET", f"/api/v1/nodes/{user.node(0)}")["spec"].get("taints"), "taints"
    )
    user.scale("web", 9)
    user.wait("web", Running=9)


def zonal_volumes(user: User) -> None:
    """A StatefulSet with provisioned volumes of a zone; a pod moves to another node of the zone of its volume."""
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "zonal",
    }
    pod = user.pod_spec(volumes=[])
    claims = [{"metadata": {"name": "data"}, "spec": claim}]
    user.create("StatefulSet", "db", user.app("db", 3, pod, serviceName="db", volumeClaimTemplates=claims))
    user.wait("db", Running=3)
    user.new_image("StatefulSet", "db")
    user.wait_rollout("StatefulSet", "db", 3)
    (node,) = (pod["spec"]["nodeName"] for pod in user.pods() if pod["metadata"]["name"] == "db-1")
    number = int(node.rpartition("-")[2])
    user.patch_node(number, {"spec": {"unschedulable": True}})
    user.delete("Pod", "db-1")
    user.wait_until(lambda: len(user.pods()) == 3, "db-1 is created again")
    user.wait("db", Running=3)
    user.patch_node(number, {"spec": {"unschedulable": False}})


def volume_limits(user: User) -> None:
    """Pods with a volume each, until the nodes have as many as they can attach; one waits."""
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "zonal",
    }
    volume = {"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    user.create("Deployment", "cache", user.app("cache", 4, user.pod_spec(volumes=[volume])))
    user.wait("cache", Running=4)
    user.scale("cache", 5)
    user.wait("cache", Running=4, Pending=1)
    time.sleep(2.0)


def local_volumes(user: User) -> None:
    """A StatefulSet with local volumes of three sizes on three nodes."""
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "2Gi"}},
        "storageClassName": "local",
    }
    claims = [{"metadata": {"name": "data"}, "spec": claim}]
    spec = user.app(
        "db", 3, user.pod_spec(), serviceName="db", volumeClaimTemplates=claims, podManagementPolicy="Parallel"
    )
    user.create("StatefulSet", "db", spec)
    user.wait("db", Running=3)
    user.delete("Pod", "db-0")
    user.wait_until(lambda: len(user.pods()) == 3, "db-0 is created again")
    user.wait("db", Running=3)


def spreading(user: User) -> None:
    """Pods that are spread over zones, and over hosts if possible."""
    selector = {"labelSelector": {"matchLabels": {"app": "web"}}}
    constraints = [
        {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **selector},
        {"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", **selector},
    ]
    user.create("Deployment", "web", user.app("web", 9, user.pod_spec("500m", topologySpreadConstraints=constraints)))
    user.wait("web", Running=9)
    user.scale("web", 16)
    user.wait("web", Running=16)


def affinity(user: User) -> None:
    """Pods in the zone of another, with preferred nodes."""
    user.create("Pod", "leader", user.pod_spec(**user.on(1)), labels={"app": "leader"})
    user.wait("leader", Running=1)
    term = {"labelSelector": {"matchLabels": {"app": "leader"}}, "topologyKey": ZONE}
    preferred = {"key": HOST, "operator": "In", "values": [user.node(4)]}
    rules = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 20, "preference": {"matchExpressions": [preferred]}}
            ]
        },
    }
    user.create("Deployment", "follower", user.app("follower", 8, user.pod_spec("250m", affinity=rules)))
    user.wait("follower", Running=8)


def daemon_set(user: User) -> None:
    """A DaemonSet on all nodes, one of which is added later; then an update."""
    user.create("DaemonSet", "agent", user.app("agent", 0, user.pod_spec()))
    user.wait("agent", Running=3)
    user.add_node(3, cpu=5)
    user.wait("agent", Running=4)
    user.new_image("DaemonSet", "agent")
    user.wait_rollout("DaemonSet", "agent", 4)


def drain(user: User) -> None:
    """A node is drained against a budget of one pod."""
    user.create("PodDisruptionBudget", "web", {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}})
    user.create("Deployment", "web", user.app("web", 6, user.pod_spec()))
    user.wait("web", Running=6)
    user.patch_node(0, {"spec": {"unschedulable": True}})
    for pod in user.pods():
        if pod["spec"]["nodeName"] == user.node(0):
            user.wait_until(lambda name=pod["metadata"]["name"]: _evict(user, name), "eviction")
    user.wait_until(lambda: user.node(0) not in {pod["spec"].get("nodeName") for pod in user.pods()}, "drained")
    user.wait("web", Running=6)


def _evict(user: User, name: str) -> bool:
    with contextlib.suppress(urllib.error.HTTPError):  # 429: the budget
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        user.server.request("POST", f"{user.path('Pod', name)}/eviction", body)
        return True
    return False


def taint(user: User) -> None:
    """A user taints a node with NoExecute: the pods of a Deployment move, a pod that tolerates it for a while later."""
    user.create("Deployment", "web", user.app("web", 5, user.pod_spec()))
    user.wait("web", Running=5)
    toleration = {"key": "repair", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 4}
    user.create("Pod", "patient", user.pod_spec(tolerations=[toleration], **user.on(0)), labels={"app": "patient"})
    user.wait("patient", Running=1)
    user.patch_node(0, {"spec": {"taints": [{"key": "repair", "effect": "NoExecute"}]}})
    user.wait_until(lambda: user.node(0) not in {pod["spec"].get("nodeName") for pod in user.pods()}, "evicted")
    user.wait("web", Running=5)


def waiting_for_room(user: User) -> None:
    """Bare pods that wait until others are deleted, the one with the higher priority first."""
    for number in range(2):
        pod = user.pod_spec("3", priorityClassName="high", **user.on(number))
        user.create("Pod", f"first-{number}", pod, labels={"app": "first"})
    user.wait("first", Running=2)
    for priority in ("low", "middle"):
        pod = user.pod_spec("3", priorityClassName=priority)
        user.create("Pod", f"second-{priority}", pod, labels={"app": "second"})
    user.wait("second", Pending=2)
    time.sleep(3.0)
    for number, phases in ((1, {"Running": 1, "Pending": 1}), (0, {"Running": 2})):
        user.delete("Pod", f"first-{number}")
        user.wait("second", **phases)


def uncordon(user: User) -> None:
    """Equal pods wait while nodes are cordoned, some of them since several attempts. The nodes return one by one."""
    cordon(user, 1, 2)
    user.create("Deployment", "web", user.app("web", 9, user.pod_spec()))
    user.wait("web", Running=4, Pending=5)
    time.sleep(2.0)
    user.scale("web", 14)
    user.wait("web", Running=4, Pending=10)
    time.sleep(2.0)
    for number, phases in ((1, {"Running": 10, "Pending": 4}), (2, {"Running": 14})):
        user.patch_node(number, {"spec": {"unschedulable": False}})
        user.wait("web", **phases)
        time.sleep(2.0)


def cordon(user: User, *numbers: int) -> None:
    """Cordon nodes, and wait for their taints."""
    for number in numbers:
        user.patch_node(number, {"spec": {"unschedulable": True}})
        path = f"/api/v1/nodes/{user.node(number)}"
        user.wait_until(lambda path=path: bool(user.server.request("GET", path)["spec"].get("taints")), "taint")


def room_by_deletions(user: User) -> None:
    """Two Deployments with pods of equal priority wait; pods of a third are deleted one by one."""
    user.create("Deployment", "first", user.app("first", 5, user.pod_spec()))
    user.wait("first", Running=5)
    for name in ("second", "third"):
        user.create("Deployment", name, user.app(name, 3, user.pod_spec()))
        user.wait(name, Pending=3)
        time.sleep(1.0)
    for left in (4, 3, 2, 1):
        user.scale("first", left)
        user.wait("", Running=5, Pending=left + 1)
        time.sleep(1.0)


WORKLOADS: Final[Mapping[str, tuple[Callable[[User], None], tuple[int, ...]]]] = {
    "node-loss": (node_loss, (9, 7, 12)),  # takes longest
    "rollout-apart": (rollout_apart, (4, 6, 9, 13)),
    "rollout-recreate": (rollout_recreate, (5, 9, 14)),
    "rollout-surge": (rollout_surge, (6, 9, 14)),
    "jobs": (jobs, (5, 8, 13)),
    "cron-job": (cron_job, (4, 7)),
    "preemption": (preemption, (4, 4)),
    "zonal-volumes": (zonal_volumes, (4, 6, 9, 5, 8, 12)),
    "volume-limits": (volume_limits, (6, 9)),
    "local-volumes": (local_volumes, (4, 6, 9)),
    "spreading": (spreading, (4, 6, 9, 5, 8, 12)),
    "affinity": (affinity, (4, 6, 9, 5, 8, 12)),
    "daemon-set": (daemon_set, (3, 4, 6)),
    "drain": (drain, (5, 8, 13)),
    "taint": (taint, (5, 8, 13)),
    "waiting-for-room": (waiting_for_room, (4, 5)),
    "uncordon": (uncordon, (4, 6, 9)),
    "room-by-deletions": (room_by_deletions, (5,)),
}
"""By name: what its users do, and the CPUs of the nodes of its pool."""


# --- the cluster ------------------------------------------------------------------------------------------------------


def prepare_cluster(server: RealApiServer) -> None:
    """Create what the workloads need: their namespaces and nodes, classes, local volumes."""
    storage = "/apis/storage.k8s.io/v1"
    server.request("POST", f"{storage}/csidrivers", {"metadata": {"name": DRIVER}, "spec": {"attachRequired": False}})
    for name, provisioner in (("zonal", DRIVER), ("local", "kubernetes.io/no-provisioner")):
        body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        server.request("POST", f"{storage}/storageclasses", body)
    for name, value in (("low", 10), ("middle", 100), ("high", 1000)):
        server.request(
            "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value}
        )
    for workload, (_, sizes) in WORKLOADS.items():
        server.request("POST", "/api/v1/namespaces", {"metadata": {"name": workload}})
        user = User(server, LostNodes(), workload)
        for number, cpu in enumerate(sizes):
            user.add_node(number, cpu=cpu)
    for number in range(3):
        source = {"local": {"path": "/data"}, "capacity": {"storage": f"{2 << number}Gi"}}
        _create_volume(server, f"local-{number}", "local", source, HOST, f"local-volumes-{number}")


def _create_volume(server: RealApiServer, name: str, storage_class: str, spec: JSON, key: str, value: str) -> None:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    spec = {**spec, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}, "storageClassName": storage_class}
    metadata = {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER} if "csi" in spec else {}}
    spec |= {"accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete" if "csi" in spec else "Retain"}
    server.request("POST", "/api/v1/persistentvolumes", {"metadata": metadata, "spec": spec})


@contextlib.contextmanager
def volume_provisioner(server: RealApiServer) -> Iterator[None]:
    """Create volumes for the claims of the class "zonal" in the zones of their selected nodes, as a CSI driver does."""
    stopped = threading.Event()
    provisioned: set[str] = set()

    def provision() -> None:
        while not stopped.wait(0.1):
            for claim in server.request("GET", "/api/v1/persistentvolumeclaims")["items"]:
                metadata = claim["metadata"]
                node = metadata.get("annotations", {}).get("volume.kubernetes.io/selected-node")
                if node is None or claim["spec"]["storageClassName"] != "zonal" or metadata["uid"] in provisioned:
                    continue
                provisioned.add(metadata["uid"])
                zone = server.request("GET", f"/api/v1/nodes/{node}")["metadata"]["labels"][ZONE]
                claim_ref = {name: metadata[name] for name in ("name", "namespace", "uid")}
                spec = {
                    "csi": {"driver": DRIVER, "volumeHandle": metadata["uid"]},
                    "capacity": claim["spec"]["resources"]["requests"],
                    "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **claim_ref},
                }
                _create_volume(server, f"pvc-{metadata['uid']}", "zonal", spec, ZONE, zone)

    with ThreadPoolExecutor(1) as executor:
        running = executor.submit(provision)
        try:
            yield
        finally:
            stopped.set()
        running.result()


def run_workloads(server: RealApiServer, lost_nodes: LostNodes) -> None:
    """Run all workloads at the same time, until each is done. They begin one second after each other."""
    with ThreadPoolExecutor(len(WORKLOADS)) as executor:
        runs = []
        for name, (act, _) in WORKLOADS.items():
            runs.append(executor.submit(act, User(server, lost_nodes, name)))
            time.sleep(1.0)
    errors = [error for run in runs if (error := run.exception()) is not None]
    if errors:
        raise BaseExceptionGroup("workloads", errors)
