"""Steps of `support.comparison.scenario` with DaemonSets."""

from __future__ import annotations

from collections.abc import Callable

from support.comparison.scenario import JSON, NAMESPACE, PODS, ScenarioClient, Step
from support.simulation.daemon_set_simulation import node_of

DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
REVISIONS = f"/apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions"
_NODES = "/api/v1/nodes"


def _daemon_set(name: str, *, pod: JSON | None = None, **spec: object) -> JSON:
    labels = {"app": name}
    container = {"name": "main", "image": f"registry.example/{name}:1"}
    template = {
        "metadata": {"labels": labels, "annotations": {"a": "<b> & c"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **(pod or {})},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "labels": labels, "annotations": {"team": "blue"}},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


def _patch(client: ScenarioClient, name: str, *, tag: str = "", **spec: object) -> None:
    if tag:
        spec["template"] = {"spec": {"containers": [{"name": "main", "image": f"registry.example/{name}:{tag}"}]}}
    client.patch(f"{DAEMON_SETS}/{name}", {"spec": spec}, "strategic-merge-patch")


def _wait(client: ScenarioClient, name: str, description: str, condition: Callable[[JSON], bool]) -> None:
    """Wait until the status fulfils the condition for the current generation."""

    def is_fulfilled() -> bool:
        obj = client.get(f"{DAEMON_SETS}/{name}")
        status = obj.get("status", {})
        return status.get("observedGeneration") == obj["metadata"]["generation"] and condition(status)

    client.wait_until(is_fulfilled, f"{name} {description}")


def _wait_complete(client: ScenarioClient, name: str, nodes: int) -> None:
    fields = ("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberAvailable")
    _wait(client, name, f"runs on {nodes} nodes", lambda status: all(status.get(key) == nodes for key in fields))


def _pod_on(client: ScenarioClient, name: str, node: str) -> JSON:
    (pod,) = (pod for pod in client.items(PODS) if pod["metadata"]["labels"]["app"] == name and node_of(pod) == node)
    return pod


def created(client: ScenarioClient) -> None:
    """Taints, node selectors, tolerations, affinity and host network."""
    client.create(DAEMON_SETS, _daemon_set("agent"))
    client.create(DAEMON_SETS, _daemon_set("disks", pod={"nodeSelector": {"disk": "ssd"}}))
    toleration = {"key": "dedicated", "operator": "Exists"}
    expression = {"key": "accelerator", "operator": "In", "values": ["gpu"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    gpu = {"tolerations": [toleration], "affinity": affinity, "hostNetwork": True}
    client.create(DAEMON_SETS, _daemon_set("gpu", pod=gpu))
    for name, nodes in (("agent", 9), ("disks", 2), ("gpu", 2)):
        _wait_complete(client, name, nodes)


def updated(client: ScenarioClient) -> None:
    _patch(client, "agent", tag="2", updateStrategy={"rollingUpdate": {"maxUnavailable": "30%"}})
    _wait_complete(client, "agent", 9)


def rolled_back(client: ScenarioClient) -> None:
    """The revision with the former template gets a new number."""
    _patch(client, "agent", tag="1")
    _wait_complete(client, "agent", 9)


def surged(client: ScenarioClient) -> None:
    limits = {"maxSurge": 3, "maxUnavailable": 0}
    _patch(client, "agent", tag="3", updateStrategy={"rollingUpdate": limits}, minReadySeconds=1)
    _wait_complete(client, "agent", 9)


def replaced_on_delete(client: ScenarioClient) -> None:
    _patch(client, "agent", tag="4", updateStrategy={"type": "OnDelete", "rollingUpdate": None})
    _wait(client, "agent", "is observed", lambda status: "updatedNumberScheduled" not in status)
    client.delete(f"{PODS}/{_pod_on(client, 'agent', 'node-3')['metadata']['name']}")
    _wait(client, "agent", "has one new pod", lambda status: status.get("updatedNumberScheduled") == 1)
    _wait(client, "agent", "is available", lambda status: status.get("numberAvailable") == 9)


def history_limited(client: ScenarioClient) -> None:
    """Old revisions are deleted, but not that of pods."""
    _patch(client, "agent", revisionHistoryLimit=1)
    client.wait_until(
        lambda: sum(item["metadata"]["name"].startswith("agent-") for item in client.items(REVISIONS)) == 2,
        "agent has two revisions",
    )


def nodes_changed(client: ScenarioClient) -> None:
    """A node loses its label, one gets a taint, and one is added.

    Pods are created when the DaemonSet controller sees that the new node has no taint, and the scheduler may see that
    later.
    """
    client.ignored_reasons.add("FailedScheduling")
    client.patch(f"{_NODES}/node-1", {"spec": {"taints": [{"key": "busy", "effect": "NoSchedule"}]}})
    client.patch(f"{_NODES}/node-0", {"metadata": {"labels": {"disk": "hdd"}}})
    client.make_node("node-12", labels={"disk": "ssd"}, taints=[{"key": "new", "effect": "NoSchedule"}])
    client.patch(f"{_NODES}/node-12", {"spec": {"taints": None}})  # pods are created when it has capacity
    _wait(client, "agent", "is misscheduled", lambda status: status.get("numberMisscheduled") == 1)
    _wait(client, "disks", "has moved", lambda status: status.get("numberAvailable") == 1)
    _wait(client, "agent", "runs on nine nodes", lambda status: status.get("numberAvailable") == 9)


def pods_ended(client: ScenarioClient) -> None:
    """A failed and a succeeded pod are replaced."""
    for name, node, phase in (("agent", "node-4", "Failed"), ("gpu", "node-10", "Succeeded")):
        pod = _pod_on(client, name, node)["metadata"]
        client.patch(f"{PODS}/{pod['name']}/status", {"status": {"phase": phase, "conditions": []}})
        client.wait_until(
            lambda uid=pod["uid"]: all(item["metadata"]["uid"] != uid for item in client.items(PODS)),
            f"{pod['name']} is deleted",
        )
    _wait(client, "agent", "is available", lambda status: status.get("numberAvailable") == 9)
    _wait(client, "gpu", "is available", lambda status: status.get("numberAvailable") == 2)


def adopted(client: ScenarioClient) -> None:
    """A DaemonSet of the same name adopts the pods and revisions of a deleted one."""
    client.delete(f"{DAEMON_SETS}/gpu", "Orphan")
    client.wait_until(
        lambda: all(item["metadata"]["name"] != "gpu" for item in client.items(DAEMON_SETS)), "gpu is deleted"
    )
    body = _daemon_set("gpu", pod={"tolerations": [{"key": "dedicated", "operator": "Exists"}]})
    body["spec"]["updateStrategy"] = {"type": "OnDelete"}
    body["spec"]["template"]["spec"]["nodeSelector"] = {"accelerator": "gpu"}
    client.create(DAEMON_SETS, body)
    _wait(client, "gpu", "is available", lambda status: status.get("numberAvailable") == 2)


DAEMON_SET_STEPS: tuple[Step, ...] = (
    created,
    updated,
    rolled_back,
    surged,
    replaced_on_delete,
    history_limited,
    nodes_changed,
    pods_ended,
    adopted,
)
