"""The API server of a run, and its users, who meet no faults."""

from __future__ import annotations

import asyncio
import bisect
import random
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kubeloop.devcluster.server.apiserver import ApiServer, ServingSettings
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.storage.store import Change
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
from kubeloop.testing.virtual_time import VirtualClock
from support.apiserver.api_requests import InProcessApi
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


class Cluster:
    """The API server with its simulated nodes, as a user sees it.

    story: lines about all that happens. violations: of invariants. replaced: names of the objects that users created
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
        self.clock = VirtualClock()
        self.seed = seed
        self.rng = random.Random(seed)
        self._rng = random.Random(f"cluster/{seed}/{repetition}")
        settings = ServingSettings(serves_metrics=serves_metrics, feature_gates=gates)
        self.server = ApiServer(clock=self.clock, rng=random.Random(self._rng.random()), token=None, settings=settings)
        self.store = self.server.store
        self.user = InProcessApi(self.server)
        self.story: list[str] = []
        self.violations: list[str] = []
        self.replaced: set[str] = set()
        self.owners_of_removed: set[str] = set()
        self._revisions: list[tuple[float, int]] = []
        for resource in WATCHED:
            self.store.subscribe(resource, self._note_revision)

    @asynccontextmanager
    async def running(self, nodes: Mapping[str, Any]) -> AsyncIterator[None]:
        """Run API server and nodes for the length of the context. nodes: fields of NodeSettings."""
        settings = NodeSettings(**{**_NODES, **nodes})
        rng = random.Random(self._rng.random())
        async with running_cluster(self.server, settings, [], token=None, clock=self.clock, rng=rng):
            yield

    def tell(self, line: str) -> None:
        self.story.append(f"{asyncio.get_running_loop().time():9.3f} s  {line}")

    def violate(self, problem: str) -> None:
        """Record a violation instead of raising, because a controller would catch the error."""
        self.tell(f"VIOLATION: {problem}")
        self.violations.append(problem)

    def revision_at(self, seconds: float) -> int:
        """Return the newest revision at this time of the loop; at the earliest that of the first change."""
        at = bisect.bisect_right(self._revisions, (seconds, sys.maxsize))
        return self._revisions[max(0, at - 1)][1]

    def _note_revision(self, change: Change) -> None:
        self._revisions.append((change.seconds, change.revision))

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
            self.user.succeed("DELETE", path, options)

    def replace(self, resource: Resource[Any], obj: JSON) -> None:
        """Delete an object at once, and create one of the same name with another UID, without an owner or a node."""
        namespace = obj["metadata"].get("namespace", "")
        self.remove(resource, obj)
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
        self.user("POST", resource.path(namespace=namespace), body)
        self.replaced.add(objects.name_of(obj))

    def remove(self, resource: Resource[Any], obj: JSON) -> None:
        """Delete an object at once: without grace period and finalizers."""
        path = resource.path(namespace=obj["metadata"].get("namespace", ""), name=objects.name_of(obj))
        if obj["metadata"].get("finalizers"):
            self.user("PATCH", path, {"metadata": {"finalizers": None}})
        self.user("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        self.owners_of_removed.add(objects.controller_of(obj).get("uid", ""))


RESOURCES = {resource.plural: resource for resource in BY_GROUP_RESOURCE.values()}
"""Resources by their plural name."""

_BY_KIND = {(resource.api_version, resource.kind): resource for resource in BY_GROUP_RESOURCE.values()}


def _path_of(manifest: JSON) -> str:
    resource = _BY_KIND[manifest["apiVersion"], manifest["kind"]]
    return resource.path(namespace=manifest["metadata"].get("namespace", ""), name=manifest["metadata"]["name"])
