"""A scenario of Deployments, nodes and priorities on a real API server, for any control plane.

`run_scenario` sends the same requests each time and waits after each step until the objects no longer change.
`ClusterState` contains the objects without random parts (suffixes of pod names, the choice between equal nodes) and
without times, UIDs and resource versions. Control planes that behave alike reach the same states.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from support.comparison.fake_kubelet import make_node
from support.comparison.real_apiserver import RealApiServer
from support.objects.token_volumes import masked_token_volumes

JSON = dict[str, Any]
ClusterState = dict[str, Any]
NAMESPACE = "shop"
ZONE = "topology.kubernetes.io/zone"
_QUIET_SECONDS, _TIMEOUT_SECONDS = 1.5, 60.0
_SUFFIX = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?![a-z0-9-])")
_SCALING_STEPS = re.compile(r"(Scaled (?:up|down) replica set (?:web|half))-[a-z0-9]+ from \d+ to \d+")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TRACE_ANNOTATIONS = ("tracing.k8s.io/traceparent", "kubeloop.dev/pod-trace")  # of pods, only by kubeloop, documented


class ScenarioClient:
    """Requests of a user of one cluster.

    zones: the zone of each node. ignored_reasons: of events that a step may cause or not.
    """

    def __init__(self, server: RealApiServer) -> None:
        self._server = server
        self.zones: dict[str, str] = {}
        self.ignored_reasons: set[str] = set()

    def create(self, path: str, body: JSON) -> JSON:
        return self._server.request("POST", path, body)

    def patch(self, path: str, body: JSON, patch_type: str = "merge-patch") -> JSON:
        return self._server.request("PATCH", path, body, content_type=f"application/{patch_type}+json")

    def make_node(self, name: str, **options: Any) -> None:
        """Create a node with the options of `fake_kubelet.make_node`."""
        make_node(self._server, name, **options)

    def get(self, path: str) -> JSON:
        return masked_token_volumes(self._server.request("GET", path))

    def delete(self, path: str, propagation: str = "Background") -> None:
        self._server.request("DELETE", path, {"propagationPolicy": propagation})

    def items(self, path: str) -> list[JSON]:
        return self.get(path)["items"]

    def wait_until(self, condition: Callable[[], bool], description: str) -> None:
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > _TIMEOUT_SECONDS:
                raise AssertionError(f"not within {_TIMEOUT_SECONDS:g} s: {description}")
            time.sleep(0.1)

    def settled_state(self, namespace: str = NAMESPACE) -> ClusterState:
        """Wait until nothing but events changes, and return the state with the events."""
        state, since = self.state(namespace), time.monotonic()
        began = since
        while time.monotonic() - since < _QUIET_SECONDS:
            time.sleep(0.15)
            now = self.state(namespace)
            if now != state:
                state, since = now, time.monotonic()
            if since - began > _TIMEOUT_SECONDS:
                raise AssertionError("the state keeps changing: " + json.dumps(now, indent=1)[:4000])
        return state | {"events": self.events(namespace)}

    def state(self, namespace: str) -> ClusterState:
        apps, core = f"/apis/apps/v1/namespaces/{namespace}", f"/api/v1/namespaces/{namespace}"
        objects_by_kind = {
            "deployments": self.items(f"{apps}/deployments"),
            "replicasets": self.items(f"{apps}/replicasets"),
            "daemonsets": self.items(f"{apps}/daemonsets"),
            "statefulsets": self.items(f"{apps}/statefulsets"),
            "controllerrevisions": self.items(f"{apps}/controllerrevisions"),
            "replicationcontrollers": self.items(f"{core}/replicationcontrollers"),
            "persistentvolumeclaims": self.items(f"{core}/persistentvolumeclaims"),
        }
        state: ClusterState = {
            kind: {obj["metadata"]["name"]: comparable_object(obj) for obj in objects}
            for kind, objects in objects_by_kind.items()
        }
        zones: dict[str, Counter[str]] = {}
        for item in self.items(f"{core}/pods"):
            zone, pod = self._comparable_pod(item)
            zones.setdefault(json.dumps(pod, sort_keys=True), Counter())[zone] += 1
        # which of several equal zones gets the most pods is random
        state["pods"] = {pod: sorted(counts.values()) for pod, counts in sorted(zones.items())}
        return state

    def events(self, namespace: str) -> list[str]:
        """Return object, type, reason and message of the events, without duplicates."""
        texts = set()
        for event in self.items(f"/api/v1/namespaces/{namespace}/events"):
            if event["reason"] in self.ignored_reasons:
                continue
            regarding = event["involvedObject"]
            text = f"{regarding['kind']}/{regarding['name']} {event['type']} {event['reason']}: {event['message']}"
            texts.add(_without_nodes(_without_suffixes(_without_scaling_steps(text))))
        return sorted(texts)

    def _comparable_pod(self, pod: JSON) -> tuple[str, JSON]:
        """Return the zone of the pod, or "", and the pod without random parts."""
        result = comparable_object(pod)
        node = result["spec"].pop("nodeName", "")
        result["bound"] = bool(node)
        result["metadata"]["name"] = _without_suffixes(result["metadata"]["name"])
        result["metadata"].get("labels", {}).pop(ZONE, None)  # copied from the node by an admission plugin
        annotations = result["metadata"].pop("annotations", {})
        annotations = {key: value for key, value in annotations.items() if key not in _TRACE_ANNOTATIONS}
        if annotations:
            result["metadata"]["annotations"] = annotations
        result["status"].pop("nominatedNodeName", None)
        for condition in result["status"].get("conditions", []):
            condition["message"] = _without_nodes(condition.get("message", ""))
        return self.zones.get(node, ""), result


def comparable_object(obj: JSON) -> JSON:
    """Return an object without times, UIDs and resource versions."""
    metadata = {
        key: value
        for key, value in obj["metadata"].items()
        if key not in ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "managedFields", "selfLink")
    }
    for owner in metadata.get("ownerReferences", []):
        owner.pop("uid")
    status = json.loads(json.dumps(obj.get("status", {})))
    if "observedGeneration" in status:  # the number of scaling steps of a rollout depends on the speed of kubelets
        status["observedGeneration"] = metadata.pop("generation") - status["observedGeneration"]
    for condition in status.get("conditions", []):
        for key in ("lastTransitionTime", "lastUpdateTime", "lastProbeTime"):
            condition.pop(key, None)
        condition["message"] = _without_suffixes(condition.get("message", ""))
    status.get("conditions", []).sort(key=lambda condition: condition["type"])
    revision = {key: obj[key] for key in ("data", "revision") if key in obj}
    return {"metadata": metadata, "spec": json.loads(json.dumps(obj.get("spec", {}))), "status": status, **revision}


def _without_suffixes(text: str) -> str:
    return _UID.sub("UID", _SUFFIX.sub("-*", text))


def _without_scaling_steps(text: str) -> str:
    """Remove replica counts and prefixes that depend on the number of scaling steps of a rolling update.

    The number of steps depends on the speed of kubelets. From the tenth event about an object on, events are combined,
    so the remaining events depend on it, too.
    """
    text = text.replace("(combined from similar events): ", "")
    return _SCALING_STEPS.sub(r"\1", text)


def _without_nodes(text: str) -> str:
    return re.sub(r"\bnode-\d+\b", "node-*", text)


def deployment(name: str, replicas: int, **spec: Any) -> JSON:
    """Return a Deployment whose pods request 100m. `pod` and `container` add fields to the pod template."""
    labels = {"app": name}
    container = {"name": "main", "image": f"registry.example/{name}:1", "resources": {"requests": {"cpu": "100m"}}}
    container |= spec.pop("container", {})
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **spec.pop("pod", {})},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels, "annotations": {"team": "blue"}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **spec},
    }


DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


Step = Callable[[ScenarioClient], None]


def run_scenario(server: RealApiServer, steps: Iterable[Step] | None = None) -> Iterator[tuple[str, ClusterState]]:
    """Run all or some steps; yield the name of each step and the state after it."""
    client = ScenarioClient(server)
    _create_nodes(client)
    for step in STEPS if steps is None else steps:
        step(client)
        state = client.settled_state()
        if step is not placement:  # during a rollout, the choice of nodes depends on timing
            state["pods"] = {pod: [sum(counts)] for pod, counts in state["pods"].items()}
        yield step.__name__, state


def _create_nodes(client: ScenarioClient) -> None:
    for number in range(9):
        zone = f"zone-{number % 3}"
        name = f"node-{number}"
        client.zones[name] = zone
        client.make_node(name, labels={ZONE: zone, "kubernetes.io/os": "linux", "disk": "ssd" if number < 2 else "hdd"})
    for number in (10, 11):
        name = f"node-{number}"
        client.zones[name] = "zone-gpu"
        taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
        client.make_node(name, labels={"accelerator": "gpu"}, taints=[taint])
    for name, value in (("low", 10), ("high", 1000)):
        body = {"metadata": {"name": name}, "value": value, "description": "of the scenario"}
        client.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    client.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})


def _set_image(client: ScenarioClient, name: str, tag: str) -> None:
    containers = [{"name": "main", "image": f"registry.example/{name}:{tag}"}]
    body = {"spec": {"template": {"spec": {"containers": containers}}}}
    client.patch(f"{DEPLOYMENTS}/{name}", body, "strategic-merge-patch")


def _scale(client: ScenarioClient, name: str, replicas: int) -> None:
    client.patch(f"{DEPLOYMENTS}/{name}", {"spec": {"replicas": replicas}})


def _wait_complete(client: ScenarioClient, name: str) -> None:
    def is_complete() -> bool:
        deployment = client.get(f"{DEPLOYMENTS}/{name}")
        desired, status = deployment["spec"]["replicas"], deployment.get("status", {})
        if status.get("observedGeneration") != deployment["metadata"]["generation"]:
            return False
        return all(status.get(key, 0) == desired for key in ("replicas", "updatedReplicas", "availableReplicas"))

    client.wait_until(is_complete, f"{name} is complete")


def placement(client: ScenarioClient) -> None:
    """Topology spread, affinity and anti-affinity, node selectors, tolerations."""
    client.create(DEPLOYMENTS, deployment("web", 8))
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    client.create(
        DEPLOYMENTS,
        deployment(
            "spread",
            7,
            pod={"topologySpreadConstraints": [spread | {"labelSelector": {"matchLabels": {"app": "spread"}}}]},
        ),
    )
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    client.create(DEPLOYMENTS, deployment("apart", 5, pod={"affinity": affinity}))
    together = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "ssd"}}}
    client.create(DEPLOYMENTS, deployment("ssd", 2, pod={"nodeSelector": {"disk": "ssd"}}))
    _wait_complete(client, "ssd")
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [together]}}
    client.create(DEPLOYMENTS, deployment("near-ssd", 3, pod={"affinity": affinity}))
    toleration = {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
    gpu = {"nodeSelector": {"accelerator": "gpu"}, "tolerations": [toleration]}
    client.create(DEPLOYMENTS, deployment("gpu", 2, pod=gpu))
    for name in ("web", "spread", "apart", "near-ssd", "gpu"):
        _wait_complete(client, name)


def unschedulable(client: ScenarioClient) -> None:
    """Unschedulable pods report a reason, and a Deployment without progress reports its deadline."""
    huge = {"resources": {"requests": {"cpu": "100", "memory": "1Ti"}}}
    client.create(DEPLOYMENTS, deployment("huge", 1, container=huge, progressDeadlineSeconds=2))
    client.create(DEPLOYMENTS, deployment("mars", 2, pod={"nodeSelector": {ZONE: "mars"}}))
    claim = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]}
    client.create(DEPLOYMENTS, deployment("unclaimed", 1, pod=claim))
    client.create(DEPLOYMENTS, deployment("gated", 1, pod={"schedulingGates": [{"name": "example.com/wait"}]}))
    client.create(DEPLOYMENTS, deployment("unknown-scheduler", 1, pod={"schedulerName": "missing"}))
    ports = {"ports": [{"containerPort": 80, "hostPort": 8080}]}
    client.create(DEPLOYMENTS, deployment("ports", 10, container=ports))  # nine nodes
    client.wait_until(
        lambda: any(
            condition["reason"] == "ProgressDeadlineExceeded"
            for condition in client.get(f"{DEPLOYMENTS}/huge").get("status", {}).get("conditions", [])
        ),
        "huge exceeds its deadline",
    )


def schedulable_again(client: ScenarioClient) -> None:
    """Pending pods are scheduled once their obstacle is removed."""
    pods = [pod for pod in client.items(PODS) if pod["metadata"]["labels"]["app"] == "gated"]
    for pod in pods:
        client.patch(f"{PODS}/{pod['metadata']['name']}", {"spec": {"schedulingGates": []}})
    _scale(client, "ports", 9)  # first, so that its pending pod is not retried while the others terminate
    _wait_complete(client, "ports")
    for name in ("huge", "mars", "unclaimed", "unknown-scheduler", "ports"):
        client.delete(f"{DEPLOYMENTS}/{name}")
    _wait_complete(client, "gated")
    client.wait_until(
        lambda: not any(pod["metadata"]["labels"]["app"] == "ports" for pod in client.items(PODS)), "ports are gone"
    )


def rollouts(client: ScenarioClient) -> None:
    for tag in ("2", "3"):
        _set_image(client, "web", tag)
        _wait_complete(client, "web")
    client.settled_state()
    _set_image(client, "web", "1")  # as `kubectl rollout undo --to-revision=1`
    _wait_complete(client, "web")


def paused(client: ScenarioClient) -> None:
    client.patch(f"{DEPLOYMENTS}/web", {"spec": {"paused": True}})
    _set_image(client, "web", "4")
    _scale(client, "web", 10)
    client.wait_until(lambda: client.get(f"{DEPLOYMENTS}/web")["status"].get("availableReplicas") == 10, "web has ten")


def resumed(client: ScenarioClient) -> None:
    client.patch(f"{DEPLOYMENTS}/web", {"spec": {"paused": False}})
    _wait_complete(client, "web")
    for replicas in (3, 12, 0, 4):
        _scale(client, "web", replicas)
        _wait_complete(client, "web")


def recreated(client: ScenarioClient) -> None:
    client.create(DEPLOYMENTS, deployment("once", 3, strategy={"type": "Recreate"}, revisionHistoryLimit=1))
    _wait_complete(client, "once")
    for tag in ("2", "3", "4"):
        _set_image(client, "once", tag)
        _wait_complete(client, "once")


def stuck_and_scaled(client: ScenarioClient) -> None:
    """A stuck rollout is scaled proportionally."""
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}
    client.create(DEPLOYMENTS, deployment("half", 10, strategy=rolling, minReadySeconds=1))
    _wait_complete(client, "half")
    _set_image(client, "half", "broken")
    client.settled_state()
    _scale(client, "half", 17)


def unstuck(client: ScenarioClient) -> None:
    _set_image(client, "half", "slow")
    _wait_complete(client, "half")


def pods_refused(client: ScenarioClient) -> None:
    """A LimitRange refuses pods: the Deployment reports ReplicaFailure."""
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"count/replicationcontrollers": "1"}}}
    client.create(f"/api/v1/namespaces/{NAMESPACE}/resourcequotas", quota)
    invalid = {"metadata": {"name": "limits"}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "2"}}]}}
    client.create(f"/api/v1/namespaces/{NAMESPACE}/limitranges", invalid)
    limits = {"resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}}
    client.create(DEPLOYMENTS, deployment("refused", 2, container=limits))
    client.wait_until(
        lambda: any(
            condition["type"] == "ReplicaFailure"
            for condition in client.get(f"{DEPLOYMENTS}/refused").get("status", {}).get("conditions", [])
        ),
        "refused has the condition ReplicaFailure",
    )


def refused_deleted(client: ScenarioClient) -> None:
    client.delete(f"{DEPLOYMENTS}/refused")
    client.delete(f"/api/v1/namespaces/{NAMESPACE}/limitranges/limits")


def replication_controller(client: ScenarioClient) -> None:
    template = deployment("rc", 1)["spec"]["template"]
    body = {"metadata": {"name": "rc"}, "spec": {"replicas": 3, "selector": {"app": "rc"}, "template": template}}
    orphan = {"metadata": {"name": "orphan", "labels": {"app": "rc"}}, "spec": template["spec"]}
    client.create(PODS, orphan)
    path = f"/api/v1/namespaces/{NAMESPACE}/replicationcontrollers"
    client.create(path, body)
    client.wait_until(lambda: client.get(f"{path}/rc").get("status", {}).get("availableReplicas") == 3, "rc has three")


def volumes(client: ScenarioClient) -> None:
    """A local volume on one node, bound when the first pod uses its claim."""
    wait = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    client.create("/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": "local"}, **wait})
    on_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-4"]}
    volume = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
    }
    client.create("/api/v1/persistentvolumes", {"metadata": {"name": "disk"}, "spec": volume})
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    claims = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
    client.create(claims, {"metadata": {"name": "data"}, "spec": claim})
    mounting = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    client.create(DEPLOYMENTS, deployment("stateful", 1, pod=mounting))
    _wait_complete(client, "stateful")


def preemption(client: ScenarioClient) -> None:
    """Pods of low priority fill every node; pods of high priority preempt some of them, which become pending."""
    filling = {"resources": {"requests": {"cpu": "2600m"}}}
    for path in (DEPLOYMENTS, f"/api/v1/namespaces/{NAMESPACE}/replicationcontrollers"):
        for obj in client.items(path):
            client.delete(f"{path}/{obj['metadata']['name']}")
    client.wait_until(lambda: not client.items(PODS), "all pods are gone")
    client.create(DEPLOYMENTS, deployment("filler", 9, container=filling, pod={"priorityClassName": "low"}))
    _wait_complete(client, "filler")
    client.create(DEPLOYMENTS, deployment("urgent", 1, container=filling, pod={"priorityClassName": "high"}))
    _wait_complete(client, "urgent")
    # one by one: of several pods, one may be retried while its victim still terminates
    for replicas in (2, 3):
        _scale(client, "urgent", replicas)
        _wait_complete(client, "urgent")


STEPS: tuple[Step, ...] = (
    placement,
    unschedulable,
    schedulable_again,
    rollouts,
    paused,
    resumed,
    recreated,
    stuck_and_scaled,
    unstuck,
    pods_refused,
    refused_deleted,
    replication_controller,
    volumes,
    preemption,
)
