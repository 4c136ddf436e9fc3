"""StatefulSets for tests, and Pods of theirs on a fake API server that become ready or fail."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.resources import PODS, STATEFUL_SETS
from support.apiserver.fake_apiserver import FakeApiServer

JSON = dict[str, Any]


def stateful_set(
    name: str = "web",
    replicas: int = 3,
    *,
    image: str = "app:1",
    claims: tuple[str, ...] = (),
    pod: JSON | None = None,
    **spec: Any,
) -> JSON:
    """Return a StatefulSet. claims: names of its volume claim templates. pod: further fields of the Pod's spec."""
    labels = {"app": name}
    resources = {"requests": {"storage": "1Gi"}}
    templates = [
        {"metadata": {"name": claim}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}}
        for claim in claims
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": image}], **(pod or {})},
            },
            "volumeClaimTemplates": templates,
            **spec,
        },
    }


class StatefulSetClient:
    """A user of the StatefulSet "web" in the namespace "ns", who also acts as kubelet of its Pods."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server

    def create(self, **arguments: Any) -> None:
        self.server.api.create(STATEFUL_SETS.path("ns"), stateful_set(**arguments))

    def change(self, **spec: Any) -> None:
        self.server.api.succeed("PATCH", STATEFUL_SETS.path("ns", "web"), {"spec": spec})

    def set_image(self, image: str) -> None:
        self.change(template={"spec": {"containers": [{"name": "main", "image": image}]}})

    @property
    def status(self) -> JSON:
        sts = self.server.store.get(STATEFUL_SETS, "ns", "web")
        assert sts is not None
        return sts["status"]

    def pod(self, name: str) -> JSON:
        pod = self.server.store.get(PODS, "ns", name)
        assert pod is not None, name
        return pod

    @property
    def pods(self) -> list[str]:
        return sorted(self.server.names(PODS))

    @property
    def images(self) -> dict[str, str]:
        """Images by Pod."""
        pods = sorted(self.server.objects(PODS), key=lambda pod: pod["metadata"]["name"])
        return {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in pods}

    def run(self, *names: str, phase: str = "Running", ready: str = "True") -> None:
        """Set phase and readiness of Pods; of all Pods if no name is passed."""
        for name in names or self.pods:
            condition = {"type": "Ready", "status": ready, "lastTransitionTime": rfc3339(self.server.clock.now())}
            status = {"phase": phase, "conditions": [condition]}
            path = PODS.path("ns", name, "status")
            self.server.api.succeed("PATCH", path, {"status": status})

    @property
    def events(self) -> list[str]:
        """Reason and message of the recorded events."""
        return [f"{event.reason}: {event.message}" for event in self.server.context.events.events]
