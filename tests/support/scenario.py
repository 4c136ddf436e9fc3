"""One scenario of Deployments, nodes and priorities, played on a real API server by whoever controls it.

`play` makes the same requests each time and waits for rest after each; `Scene` is what is then there, without what is
chance (suffixes of pods, which of several equal nodes) or of the moment (times, uids, revisions of the store). Two
control planes that behave alike come to the same scenes.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from support.fake_kubelet import make_node
from support.real_apiserver import RealApiServer

JSON = dict[str, Any]
ClusterState = dict[str, Any]
NAMESPACE = "shop"
ZONE = "topology.kubernetes.io/zone"
_REST_SECONDS, _TOO_LONG_SECONDS = 1.5, 60.0
_SUFFIX = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?![a-z0-9-])")
_STEPS = re.compile(r"(Scaled (?:up|down) replica set (?:web|half))-[a-z0-9]+ from \d+ to \d+")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TRACE_ANNOTATIONS = ("tracing.k8s.io/traceparent", "kubeloop.io/pod-trace")  # ours alone, and documented


class ScenarioClient:
    """What a user of one cluster does, and sees."""

    def __init__(self, server: RealApiServer) -> None:
        self._server = server
        self.zones: dict[str, str] = {}

    def create(self, path: str, body: JSON) -> JSON:
        return self._server.request("POST", path, body)

    def patch(self, path: str, body: JSON, kind: str = "merge-patch") -> JSON:
        return self._server.request("PATCH", path, body, kind=f"application/{kind}+json")

    def get(self, path: str) -> JSON:
        return self._server.request("GET", path)

    def delete(self, path: str, propagation: str = "Background") -> None:
        self._server.request("DELETE", path, {"propagationPolicy": propagation})

    def items(self, path: str) -> list[JSON]:
        return self.get(path)["items"]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > _TOO_LONG_SECONDS:
                raise AssertionError(f"not within {_TOO_LONG_SECONDS:g} s: {what}")
            time.sleep(0.1)

    def rest(self, namespace: str = NAMESPACE) -> ClusterState:
        """Wait until nothing changes any more but events, and return what there is."""
        scene, since = self.scene(namespace), time.monotonic()
        began = since
        while time.monotonic() - since < _REST_SECONDS:
            time.sleep(0.15)
            now = self.scene(namespace)
            if now != scene:
                scene, since = now, time.monotonic()
            if since - began > _TOO_LONG_SECONDS:
                raise AssertionError("no rest: " + json.dumps(now, indent=1)[:4000])
        return scene | {"events": self.events(namespace)}

    def scene(self, namespace: str) -> ClusterState:
        apps, core = f"/apis/apps/v1/namespaces/{namespace}", f"/api/v1/namespaces/{namespace}"
        kept = {
            "deployments": self.items(f"{apps}/deployments"),
            "replicasets": self.items(f"{apps}/replicasets"),
            "replicationcontrollers": self.items(f"{core}/replicationcontrollers"),
            "persistentvolumeclaims": self.items(f"{core}/persistentvolumeclaims"),
        }
        scene: ClusterState = {
            kind: {each["metadata"]["name"]: plain(each) for each in objects} for kind, objects in kept.items()
        }
        zones: dict[str, Counter[str]] = {}
        for each in self.items(f"{core}/pods"):
            zone, pod = self._pod(each)
            zones.setdefault(json.dumps(pod, sort_keys=True), Counter())[zone] += 1
        # of zones that are equal to a pod it is chance which one gets the most
        scene["pods"] = {pod: sorted(counts.values()) for pod, counts in sorted(zones.items())}
        return scene

    def events(self, namespace: str) -> list[str]:
        """Reason, type, object and words of each event, once."""
        told = set()
        for event in self.items(f"/api/v1/namespaces/{namespace}/events"):
            about = event["involvedObject"]
            words = f"{about['kind']}/{about['name']} {event['type']} {event['reason']}: {event['message']}"
            told.add(_without_nodes(_without_chance(_without_steps(words))))
        return sorted(told)

    def _pod(self, pod: JSON) -> tuple[str, JSON]:
        """The zone it is in, or "", and all else that is not chance."""
        kept = plain(pod)
        node = kept["spec"].pop("nodeName", "")
        kept["bound"] = bool(node)
        kept["metadata"]["name"] = _without_chance(kept["metadata"]["name"])
        kept["metadata"].get("labels", {}).pop(ZONE, None)  # the admission plugin's copy of the node's
        kept["status"].pop("nominatedNodeName", None)
        for condition in kept["status"].get("conditions", []):
            condition["message"] = _without_nodes(condition.get("message", ""))
        return self.zones.get(node, ""), kept


def plain(thing: JSON) -> JSON:
    """An object without times, uids and revisions."""
    metadata = {
        key: value
        for key, value in thing["metadata"].items()
        if key not in ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "managedFields", "selfLink")
    }
    for owner in metadata.get("ownerReferences", []):
        owner.pop("uid")
    annotations = {
        key: value for key, value in metadata.pop("annotations", {}).items() if key not in _TRACE_ANNOTATIONS
    }
    if annotations:
        metadata["annotations"] = annotations
    status = json.loads(json.dumps(thing.get("status", {})))
    if "observedGeneration" in status:  # in how many steps a rollout is scaled depends on the kubelets' speed
        status["observedGeneration"] = metadata.pop("generation") - status["observedGeneration"]
    for condition in status.get("conditions", []):
        for key in ("lastTransitionTime", "lastUpdateTime", "lastProbeTime"):
            condition.pop(key, None)
        condition["message"] = _without_chance(condition.get("message", ""))
    status.get("conditions", []).sort(key=lambda condition: condition["type"])
    return {"metadata": metadata, "spec": json.loads(json.dumps(thing.get("spec", {}))), "status": status}


def _without_chance(text: str) -> str:
    return _UID.sub("UID", _SUFFIX.sub("-*", text))


def _without_steps(words: str) -> str:
    """In how many steps a rolling update goes depends on the speed of kubelets; from the tenth on, an event about the
    same object takes the place of the one before, so which ones are left depends on that as well."""
    words = words.replace("(combined from similar events): ", "")
    return _STEPS.sub(r"\1", words)


def _without_nodes(text: str) -> str:
    return re.sub(r"\bnode-\d+\b", "node-*", text)


def deployment(name: str, replicas: int, **spec: Any) -> JSON:
    """A Deployment of pods of 100m; `pod` is added to the pod's spec, `container` to its container's."""
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


def run_scenario(server: RealApiServer, acts: Iterable[Step] | None = None) -> Iterator[tuple[str, ClusterState]]:
    """The scenario, or some acts of it; after each its name and the scene."""
    player = ScenarioClient(server)
    _stage(player, server)
    for act in STEPS if acts is None else acts:
        act(player)
        scene = player.rest()
        if act is not placement:  # where pods find room in the middle of a rollout is a matter of the moment
            scene["pods"] = {pod: [sum(counts)] for pod, counts in scene["pods"].items()}
        yield act.__name__, scene


def _stage(player: ScenarioClient, server: RealApiServer) -> None:
    for number in range(9):
        zone = f"zone-{number % 3}"
        name = f"node-{number}"
        player.zones[name] = zone
        make_node(
            server, name, labels={ZONE: zone, "kubernetes.io/os": "linux", "disk": "ssd" if number < 2 else "hdd"}
        )
    for number in (10, 11):
        name = f"node-{number}"
        player.zones[name] = "zone-gpu"
        taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
        make_node(server, name, labels={"accelerator": "gpu"}, taints=[taint])
    for name, value in (("low", 10), ("high", 1000)):
        body = {"metadata": {"name": name}, "value": value, "description": "of the scenario"}
        player.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    player.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})


def _image(player: ScenarioClient, name: str, tag: str) -> None:
    containers = [{"name": "main", "image": f"registry.example/{name}:{tag}"}]
    body = {"spec": {"template": {"spec": {"containers": containers}}}}
    player.patch(f"{DEPLOYMENTS}/{name}", body, "strategic-merge-patch")


def _replicas(player: ScenarioClient, name: str, replicas: int) -> None:
    player.patch(f"{DEPLOYMENTS}/{name}", {"spec": {"replicas": replicas}})


def _complete(player: ScenarioClient, name: str) -> None:
    def is_complete() -> bool:
        found = player.get(f"{DEPLOYMENTS}/{name}")
        wanted, status = found["spec"]["replicas"], found.get("status", {})
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return False
        return all(status.get(key, 0) == wanted for key in ("replicas", "updatedReplicas", "availableReplicas"))

    player.until(is_complete, f"{name} is complete")


def placement(player: ScenarioClient) -> None:
    """Spread over zones, away from each other, on tainted nodes, by labels."""
    player.create(DEPLOYMENTS, deployment("web", 8))
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    player.create(
        DEPLOYMENTS,
        deployment(
            "spread",
            7,
            pod={"topologySpreadConstraints": [spread | {"labelSelector": {"matchLabels": {"app": "spread"}}}]},
        ),
    )
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    player.create(DEPLOYMENTS, deployment("apart", 5, pod={"affinity": affinity}))
    together = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "ssd"}}}
    player.create(DEPLOYMENTS, deployment("ssd", 2, pod={"nodeSelector": {"disk": "ssd"}}))
    _complete(player, "ssd")
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [together]}}
    player.create(DEPLOYMENTS, deployment("beside-ssd", 3, pod={"affinity": affinity}))
    toleration = {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
    gpu = {"nodeSelector": {"accelerator": "gpu"}, "tolerations": [toleration]}
    player.create(DEPLOYMENTS, deployment("gpu", 2, pod=gpu))
    for name in ("web", "spread", "apart", "beside-ssd", "gpu"):
        _complete(player, name)


def no_room(player: ScenarioClient) -> None:
    """What fits nowhere says why, and a Deployment that makes no progress says so, too."""
    huge = {"resources": {"requests": {"cpu": "100", "memory": "1Ti"}}}
    player.create(DEPLOYMENTS, deployment("huge", 1, container=huge, progressDeadlineSeconds=2))
    player.create(DEPLOYMENTS, deployment("mars", 2, pod={"nodeSelector": {ZONE: "mars"}}))
    claim = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "nobody-made-it"}}]}
    player.create(DEPLOYMENTS, deployment("unclaimed", 1, pod=claim))
    player.create(DEPLOYMENTS, deployment("gated", 1, pod={"schedulingGates": [{"name": "example.com/wait"}]}))
    player.create(DEPLOYMENTS, deployment("unknown-scheduler", 1, pod={"schedulerName": "nobody"}))
    ports = {"ports": [{"containerPort": 80, "hostPort": 8080}]}
    player.create(DEPLOYMENTS, deployment("ports", 10, container=ports))  # nine nodes
    player.until(
        lambda: any(
            each["reason"] == "ProgressDeadlineExceeded"
            for each in player.get(f"{DEPLOYMENTS}/huge").get("status", {}).get("conditions", [])
        ),
        "huge exceeds its deadline",
    )


def makes_room(player: ScenarioClient) -> None:
    """What was pending goes on when it is given what it lacks."""
    pods = [pod for pod in player.items(PODS) if pod["metadata"]["labels"]["app"] == "gated"]
    for pod in pods:
        player.patch(f"{PODS}/{pod['metadata']['name']}", {"spec": {"schedulingGates": []}})
    _replicas(player, "ports", 9)  # its pending pod goes first; else it would be tried while all are being deleted
    _complete(player, "ports")
    for name in ("huge", "mars", "unclaimed", "unknown-scheduler", "ports"):
        player.delete(f"{DEPLOYMENTS}/{name}")
    _complete(player, "gated")
    player.until(
        lambda: not any(pod["metadata"]["labels"]["app"] == "ports" for pod in player.items(PODS)), "ports are gone"
    )


def rollouts(player: ScenarioClient) -> None:
    for tag in ("2", "3"):
        _image(player, "web", tag)
        _complete(player, "web")
    player.rest()
    _image(player, "web", "1")  # what `kubectl rollout undo --to-revision=1` does
    _complete(player, "web")


def paused(player: ScenarioClient) -> None:
    player.patch(f"{DEPLOYMENTS}/web", {"spec": {"paused": True}})
    _image(player, "web", "4")
    _replicas(player, "web", 10)
    player.until(lambda: player.get(f"{DEPLOYMENTS}/web")["status"].get("availableReplicas") == 10, "web has ten")


def resumed(player: ScenarioClient) -> None:
    player.patch(f"{DEPLOYMENTS}/web", {"spec": {"paused": False}})
    _complete(player, "web")
    for replicas in (3, 12, 0, 4):
        _replicas(player, "web", replicas)
        _complete(player, "web")


def recreated(player: ScenarioClient) -> None:
    player.create(DEPLOYMENTS, deployment("once", 3, strategy={"type": "Recreate"}, revisionHistoryLimit=1))
    _complete(player, "once")
    for tag in ("2", "3", "4"):
        _image(player, "once", tag)
        _complete(player, "once")


def stuck_and_scaled(player: ScenarioClient) -> None:
    """A rollout that cannot go on is scaled: in proportion; then it is undone."""
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}
    player.create(DEPLOYMENTS, deployment("half", 10, strategy=rolling, minReadySeconds=1))
    _complete(player, "half")
    _image(player, "half", "broken")
    player.rest()
    _replicas(player, "half", 17)


def unstuck(player: ScenarioClient) -> None:
    _image(player, "half", "slow")
    _complete(player, "half")


def tight(player: ScenarioClient) -> None:
    """A quota refuses pods: the Deployment says so."""
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"count/replicationcontrollers": "1"}}}
    player.create(f"/api/v1/namespaces/{NAMESPACE}/resourcequotas", quota)
    invalid = {"metadata": {"name": "limits"}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "2"}}]}}
    player.create(f"/api/v1/namespaces/{NAMESPACE}/limitranges", invalid)
    limits = {"resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}}
    player.create(DEPLOYMENTS, deployment("refused", 2, container=limits))
    player.until(
        lambda: any(
            each["type"] == "ReplicaFailure"
            for each in player.get(f"{DEPLOYMENTS}/refused").get("status", {}).get("conditions", [])
        ),
        "refused says so",
    )


def accepted(player: ScenarioClient) -> None:
    player.delete(f"{DEPLOYMENTS}/refused")
    player.delete(f"/api/v1/namespaces/{NAMESPACE}/limitranges/limits")


def replication_controller(player: ScenarioClient) -> None:
    template = deployment("rc", 1)["spec"]["template"]
    body = {"metadata": {"name": "rc"}, "spec": {"replicas": 3, "selector": {"app": "rc"}, "template": template}}
    orphan = {"metadata": {"name": "orphan", "labels": {"app": "rc"}}, "spec": template["spec"]}
    player.create(PODS, orphan)
    path = f"/api/v1/namespaces/{NAMESPACE}/replicationcontrollers"
    player.create(path, body)
    player.until(lambda: player.get(f"{path}/rc").get("status", {}).get("availableReplicas") == 3, "rc has three")


def volumes(player: ScenarioClient) -> None:
    """A local volume on one node, claimed by the first pod that wants it."""
    wait = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    player.create("/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": "local"}, **wait})
    there = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-4"]}
    volume = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [there]}]}},
    }
    player.create("/api/v1/persistentvolumes", {"metadata": {"name": "disk"}, "spec": volume})
    asked = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    claims = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
    player.create(claims, {"metadata": {"name": "data"}, "spec": asked})
    mounted = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    player.create(DEPLOYMENTS, deployment("stateful", 1, pod=mounted))
    _complete(player, "stateful")


def preemption(player: ScenarioClient) -> None:
    """Unimportant pods fill every node; important ones push some out, and those are pending then."""
    filling = {"resources": {"requests": {"cpu": "2600m"}}}
    for path in (DEPLOYMENTS, f"/api/v1/namespaces/{NAMESPACE}/replicationcontrollers"):
        for each in player.items(path):
            player.delete(f"{path}/{each['metadata']['name']}")
    player.until(lambda: not player.items(PODS), "all pods are gone")
    player.create(DEPLOYMENTS, deployment("filler", 9, container=filling, pod={"priorityClassName": "low"}))
    _complete(player, "filler")
    player.create(DEPLOYMENTS, deployment("urgent", 1, container=filling, pod={"priorityClassName": "high"}))
    _complete(player, "urgent")
    # one by one: of several at a time, one may be tried again while its victim still terminates
    for replicas in (2, 3):
        _replicas(player, "urgent", replicas)
        _complete(player, "urgent")


STEPS: tuple[Step, ...] = (
    placement,
    no_room,
    makes_room,
    rollouts,
    paused,
    resumed,
    recreated,
    stuck_and_scaled,
    unstuck,
    tight,
    accepted,
    replication_controller,
    volumes,
    preemption,
)
