"""A scenario of StatefulSets: creation, updates, scaling, rollback and adoption, with claims and their owners."""

from __future__ import annotations

from typing import Any

from support.comparison.scenario import NAMESPACE, PODS, ScenarioClient

JSON = dict[str, Any]
STATEFUL_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets"


def stateful_set(name: str, replicas: int, *, claims: tuple[str, ...] = (), **spec: Any) -> JSON:
    labels = {"app": name}
    container = {"name": "main", "image": f"registry.example/{name}:1"}
    resources = {"requests": {"storage": "1Gi"}}
    claim_spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": resources}
    return {
        "metadata": {"name": name, "annotations": {"team": "blue"}},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
            },
            "volumeClaimTemplates": [{"metadata": {"name": claim}, "spec": claim_spec} for claim in claims],
            **spec,
        },
    }


def change(client: ScenarioClient, name: str, **spec: Any) -> None:
    client.patch(f"{STATEFUL_SETS}/{name}", {"spec": spec})


def set_image(client: ScenarioClient, name: str, tag: str) -> None:
    containers = [{"name": "main", "image": f"registry.example/{name}:{tag}"}]
    body = {"spec": {"template": {"spec": {"containers": containers}}}}
    client.patch(f"{STATEFUL_SETS}/{name}", body, "strategic-merge-patch")


def wait_ready(client: ScenarioClient, name: str, *, updated: int | None = None) -> None:
    """Wait until all Pods are ready, and `updated` of them (default: all) have the update revision."""

    def is_ready() -> bool:
        sts = client.get(f"{STATEFUL_SETS}/{name}")
        desired, status = sts["spec"]["replicas"], sts["status"]
        if status.get("observedGeneration") != sts["metadata"]["generation"]:
            return False
        counts = (status["replicas"], status.get("readyReplicas", 0), status["availableReplicas"])
        wanted = desired if updated is None else updated
        return counts == (desired,) * 3 and status.get("updatedReplicas", 0) == wanted

    client.wait_until(is_ready, f"{name} is ready")


def create(client: ScenarioClient) -> None:
    """Ordered with claims, parallel with a start ordinal and a partition, OnDelete."""
    for claim in ("data-db-0", "data-db-1", "data-db-2"):
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/tmp/x"},
            "claimRef": {"namespace": NAMESPACE, "name": claim},
        }
        client.create("/api/v1/persistentvolumes", {"metadata": {"name": claim}, "spec": spec})
    policy = {"whenDeleted": "Retain", "whenScaled": "Delete"}
    limits = {"revisionHistoryLimit": 1, "minReadySeconds": 1}
    db = stateful_set("db", 3, claims=("data",), persistentVolumeClaimRetentionPolicy=policy, **limits)
    # bound already: whether the scheduler sees a claim before it is bound depends on timing
    db["spec"]["template"]["spec"]["nodeName"] = "node-0"
    partition = {"type": "RollingUpdate", "rollingUpdate": {"partition": 3}}
    peers = stateful_set("peers", 4, podManagementPolicy="Parallel", ordinals={"start": 2}, updateStrategy=partition)
    manual = stateful_set("manual", 2, updateStrategy={"type": "OnDelete"})
    for body in (db, peers, manual):
        client.create(STATEFUL_SETS, body)
    for name in ("db", "peers", "manual"):
        wait_ready(client, name)


def update(client: ScenarioClient) -> None:
    for name in ("db", "peers", "manual"):
        set_image(client, name, "2")
    client.delete(f"{PODS}/manual-1")
    wait_ready(client, "db")
    wait_ready(client, "peers", updated=1)
    wait_ready(client, "manual", updated=1)


def scale(client: ScenarioClient) -> None:
    change(client, "db", replicas=1)
    change(client, "peers", replicas=6)
    wait_ready(client, "db")
    wait_ready(client, "peers", updated=3)
    gone = "data-db-1"
    claims = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
    client.wait_until(lambda: gone not in [it["metadata"]["name"] for it in client.items(claims)], f"{gone} is deleted")


def roll_back(client: ScenarioClient) -> None:
    """Roll back to an older revision; a broken revision stays until its Pod is deleted."""
    change(client, "peers", updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    wait_ready(client, "peers")
    set_image(client, "db", "3")
    wait_ready(client, "db")
    set_image(client, "db", "2")
    wait_ready(client, "db")
    change(client, "manual", updateStrategy={"type": "RollingUpdate"})
    wait_ready(client, "manual")
    set_image(client, "manual", "broken")
    client.wait_until(
        lambda: client.get(f"{STATEFUL_SETS}/manual")["status"].get("updatedReplicas") == 1, "one Pod is updated"
    )
    set_image(client, "manual", "2")


def adopt(client: ScenarioClient) -> None:
    """Delete a StatefulSet without its Pods and create it again; release a Pod; finish a Pod."""
    client.delete(f"{PODS}/manual-1")
    wait_ready(client, "manual")
    client.delete(f"{STATEFUL_SETS}/manual", "Orphan")
    client.wait_until(
        lambda: "manual" not in [it["metadata"]["name"] for it in client.items(STATEFUL_SETS)], "manual is deleted"
    )
    manual = stateful_set("manual", 2)
    manual["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/manual:2"
    client.create(STATEFUL_SETS, manual)
    wait_ready(client, "manual")
    client.patch(f"{PODS}/peers-4", {"metadata": {"labels": {"statefulset.kubernetes.io/pod-name": None}}})
    client.patch(f"{PODS}/db-0/status", {"status": {"phase": "Failed"}})
    wait_ready(client, "peers")
    wait_ready(client, "db")


STATEFUL_SET_STEPS = (create, update, scale, roll_back, adopt)
