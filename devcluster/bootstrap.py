"""What exists before the first request: namespaces, system priority classes, the API server's own Service, ..."""

from __future__ import annotations

import random
import uuid
from typing import Any

from kubeloop.devcluster.managed import Writer, track_create
from kubeloop.devcluster.registry import served
from kubeloop.devcluster.storage import Store
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.resources import CONFIG_MAPS, NAMESPACES, PRIORITY_CLASSES, SERVICES, Resource

JSON = dict[str, Any]

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def bootstrap(store: Store, clock: Clock, rng: random.Random, address: str) -> None:
    """Create what is missing of it. address: that of the Service of the API server itself."""

    def create(resource: Resource[Any], name: str, content: JSON, namespace: str = "", **metadata: Any) -> None:
        if store.get(resource, namespace, name) is not None:
            return
        own: JSON = {"name": name}
        if namespace:
            own["namespace"] = namespace
        own["uid"] = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        own["creationTimestamp"] = rfc3339(clock.now())
        obj: JSON = {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": {**own, **metadata},
            **content,
        }
        sent = {name: value for name, value in obj.items() if name not in ("spec", "status")} if not namespace else obj
        sent = {**sent, "metadata": dict(obj["metadata"])}
        track_create(served(resource), sent, Writer("kube-apiserver"), lambda: rfc3339(clock.now()))
        obj["metadata"] = sent["metadata"]
        store.create(resource, obj)

    for name in SYSTEM_NAMESPACES:
        labels = {"kubernetes.io/metadata.name": name}
        content: JSON = {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        create(NAMESPACES, name, content, labels=labels)
    for name, value, description in (
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if "
            "necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ):
        content = {"value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority"}
        create(PRIORITY_CLASSES, name, content, generation=1)
    # since when the tokens of Secrets are tracked that are older than TokenRequest
    since = {"data": {"since": clock.now().strftime("%Y-%m-%d")}}
    create(CONFIG_MAPS, "kube-apiserver-legacy-service-account-token-tracking", since, "kube-system")
    service = {
        "spec": {
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}],
            "clusterIP": address,
            "clusterIPs": [address],
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
        },
        "status": {"loadBalancer": {}},
    }
    labels = {"component": "apiserver", "provider": "kubernetes"}
    create(SERVICES, "kubernetes", service, "default", labels=labels)
