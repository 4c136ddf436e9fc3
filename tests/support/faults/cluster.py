"""The API server of a run, and its users, who meet no faults."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.resources import (
    BY_GROUP_RESOURCE,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)
from kubeloop.process.development_cluster.cluster_assembly import running_cluster
from kubeloop.testing.faults.cluster import RecordedCluster
from support.apiserver.api_requests import InProcessApi, request
from support.faults import objects
from support.faults.objects import JSON, NAMESPACE

WATCHED = (PODS, NODES, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, JOBS, PERSISTENT_VOLUME_CLAIMS)
_APPLY = "application/apply-patch+yaml"
_NODES: Mapping[str, Any] = {
    "count": 2,
    "start_delay_seconds": 1.0,
    "start_delay_spread_seconds": 0.5,
    "stop_delay_seconds": 1.0,
    "events": False,
    # heartbeats cost most of the time of a quiet cluster
    "lease_renew_seconds": 100_000.0,
    "status_report_seconds": 100_000.0,
}


class Cluster(RecordedCluster):
    """The API server with its simulated nodes, as a user sees it.

    replaced: names of the objects that users created
    in place of others, without an owner. owners_of_removed: UIDs of the controllers of objects that users removed.
    seed: of the user's choices. rng: of those in the current step.
    """

    def __init__(
        self,
        seed: str,
        repetition: int = 0,
        *,
        serves_metrics: bool = False,
        gates: FeatureGates = DEFAULT_FEATURE_GATES,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self._rng = random.Random(f"cluster/{seed}/{repetition}")
        super().__init__(self._rng, ServingSettings(serves_metrics=serves_metrics, feature_gates=gates))
        self.user = InProcessApi(self.server)
        self.replaced: set[str] = set()
        self.owners_of_removed: set[str] = set()
        self.record_revisions(*WATCHED)

    @asynccontextmanager
    async def running(self, nodes: Mapping[str, Any]) -> AsyncIterator[None]:
        """Run API server and nodes for the length of the context. nodes: fields of NodeSettings."""
        settings = NodeSettings(**{**_NODES, **nodes})
        rng = random.Random(self._rng.random())
        async with running_cluster(self.server, settings, [], token=None, clock=self.clock, rng=rng):
            yield

    # --- reads -------------------------------------------------------------------------------------------------------

    def all(self, resource: Resource[Any], select: Callable[[JSON], bool] | None = None) -> list[JSON]:
        found = self.store.list(resource)
        return found if select is None else [obj for obj in found if select(obj)]

    def get(self, resource: Resource[Any], name: str, namespace: str = NAMESPACE) -> JSON | None:
        return self.store.get(resource, namespace, name)

    def owned(self, resource: Resource[Any], owner: JSON) -> list[JSON]:
        """Return the objects that `owner` controls."""
        uid = objects.uid_of(owner)
        return self.all(resource, lambda obj: objects.controller_of(obj).get("uid") == uid)

    def pods_of(self, app: str) -> list[JSON]:
        return self.all(PODS, lambda pod: objects.matches({"app": app}, pod))

    # --- actions of users --------------------------------------------------------------------------------------------

    def apply(self, manifest: JSON) -> JSON:
        """Apply a manifest, as kubectl apply --server-side does."""
        result: JSON = self.user.succeed(
            "PATCH", f"{_path_of(manifest)}?fieldManager=user&force=true", manifest, content_type=_APPLY
        )
        return result

    def patch(
        self, resource: Resource[Any], name: str, changes: JSON, *, namespace: str = NAMESPACE, subresource: str = ""
    ) -> None:
        """Apply a merge patch, unless the object does not exist."""
        path = resource.path(namespace=namespace if resource.namespaced else "", name=name)
        if self.get(resource, name, namespace) is not None:
            self.user.succeed("PATCH", f"{path}/{subresource}" if subresource else path, changes)

    def delete(
        self,
        resource: Resource[Any],
        name: str,
        *,
        namespace: str = NAMESPACE,
        policy: str = "",
        grace: int | None = None,
    ) -> None:
        """Delete an object, unless it does not exist."""
        options: JSON = {"propagationPolicy": policy} if policy else {}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if self.get(resource, name, namespace) is not None:
            path = resource.path(namespace=namespace if resource.namespaced else "", name=name)
            self.perform(request("DELETE", path, options))

    def replace(self, resource: Resource[Any], obj: JSON) -> None:
        """Delete an object at once, and create one of the same name with another UID, without an owner or a node."""
        namespace = obj["metadata"].get("namespace", "")
        kept = {
            key: value
            for key, value in obj["metadata"].items()
            if key in ("name", "namespace", "labels", "annotations")
        }
        spec = {
            key: value
            for key, value in obj.get("spec", {}).items()
            if key not in ("nodeName", "clusterIP", "clusterIPs", "volumeName")
        }
        body = {key: value for key, value in obj.items() if key != "status"} | {"metadata": kept}
        if "spec" in obj:
            body["spec"] = spec
        self.perform(*self._removal(resource, obj), request("POST", resource.path(namespace=namespace), body))
        self.replaced.add(objects.name_of(obj))

    def lacks_claim(self, pod: JSON) -> bool:
        """Return True if the claim of an ephemeral volume cannot be created, because a user has replaced it."""
        names = {f"{objects.name_of(pod)}-{volume['name']}" for volume in pod["spec"].get("volumes", ())}
        replaced = (self.get(PERSISTENT_VOLUME_CLAIMS, name) for name in names & self.replaced)
        return any(claim is not None and not objects.controller_of(claim) for claim in replaced)

    def remove(self, resource: Resource[Any], obj: JSON) -> None:
        """Delete an object at once: without grace period and finalizers."""
        self.perform(*self._removal(resource, obj))

    def _removal(self, resource: Resource[Any], obj: JSON) -> list[ApiRequest]:
        """Return the requests that delete an object at once, and note its controller."""
        self.owners_of_removed.add(objects.controller_of(obj).get("uid", ""))
        path = resource.path(namespace=obj["metadata"].get("namespace", ""), name=objects.name_of(obj))
        deletion = request("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        if obj["metadata"].get("finalizers"):
            return [request("PATCH", path, {"metadata": {"finalizers": None}}), deletion]
        return [deletion]


RESOURCES = {resource.plural: resource for resource in BY_GROUP_RESOURCE.values()}
"""Resources by their plural name."""

_BY_KIND = {(resource.api_version, resource.kind): resource for resource in BY_GROUP_RESOURCE.values()}


def _path_of(manifest: JSON) -> str:
    resource = _BY_KIND[manifest["apiVersion"], manifest["kind"]]
    return resource.path(namespace=manifest["metadata"].get("namespace", ""), name=manifest["metadata"]["name"])
