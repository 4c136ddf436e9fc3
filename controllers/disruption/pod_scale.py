"""Replicas of the controllers of Pods, from the informers' stores or the subresource `scale`.

Source: getExpectedScale and its finders in pkg/controller/disruption/disruption.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.resources.served_resources import ServedResources
from kubeloop.informers.shared_informer import SharedInformer
from kubeloop.kube.errors import NotFound
from kubeloop.kube.objects.api_types import OwnerReference, Pod
from kubeloop.kube.objects.object_fields import controller_of, replicas_of
from kubeloop.kube.objects.resources import DEPLOYMENTS, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS, Resource

_WORKLOADS: dict[tuple[str, str], Resource[Any]] = {
    ("apps", "ReplicaSet"): REPLICA_SETS,
    ("extensions", "ReplicaSet"): REPLICA_SETS,
    ("apps", "StatefulSet"): STATEFUL_SETS,
    ("apps", "Deployment"): DEPLOYMENTS,
    ("extensions", "Deployment"): DEPLOYMENTS,
    ("", "ReplicationController"): REPLICATION_CONTROLLERS,
}


class UnknownPodCount(ReconcileError):
    """The replicas of a pod's controller are unknown; the text is Kubernetes'."""


class PodScale:
    """Finds the controllers of Pods, and adds up their replicas."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._served = ServedResources(context.client)
        self._informers: dict[Resource[Any], SharedInformer[Any]] = {
            resource: context.informers.informer(resource)
            for resource in (REPLICA_SETS, STATEFUL_SETS, DEPLOYMENTS, REPLICATION_CONTROLLERS)
        }

    async def wait_synced(self) -> None:
        """Wait for the first lists of the workloads."""
        for informer in self._informers.values():
            await informer.wait_synced()

    async def expected(self, pods: Iterable[Pod]) -> tuple[int, list[str]]:
        """Return the sum of the replicas of the pods' controllers, and the names of pods without controller.

        Raises UnknownPodCount, and the errors of requests.
        """
        scales: dict[str, int] = {}
        unmanaged: list[str] = []
        for pod in pods:
            reference = controller_of(pod.metadata)
            if reference is None:
                unmanaged.append(pod.metadata.name)
            elif reference.uid not in scales:
                scale = self._workload_scale(reference, pod.metadata.namespace)
                if scale is None:
                    scale = await self._subresource_scale(reference, pod.metadata.namespace)
                if scale is None:
                    raise UnknownPodCount(f'found no controllers for pod "{pod.metadata.name}"')
                scales[scale[0]] = scale[1]
        return sum(scales.values()), unmanaged

    def _workload_scale(self, reference: OwnerReference, namespace: str) -> tuple[str, int] | None:
        """Return UID and replicas of the cached controller; for a ReplicaSet those of its Deployment, if any."""
        resource = _WORKLOADS.get((reference.api_version.rpartition("/")[0], reference.kind))
        if resource is None:
            return None
        owner: Any = self._informers[resource].store.get(f"{namespace}/{reference.name}")
        if owner is None or owner.metadata.uid != reference.uid:
            return None
        above = controller_of(owner.metadata) if resource is REPLICA_SETS else None
        if above is not None and above.kind == "Deployment":
            return self._workload_scale(above, namespace)
        return owner.metadata.uid, replicas_of(owner)

    async def _subresource_scale(self, reference: OwnerReference, namespace: str) -> tuple[str, int] | None:
        """Return UID and replicas of a controller of any kind. Raises UnknownPodCount if it cannot be scaled."""
        resource = await self._served.find(lambda served: served.find(reference.api_version, reference.kind))
        if resource is None:
            raise UnknownPodCount(f'no matches for kind "{reference.kind}" in version "{reference.api_version}"')
        if "scale" not in resource.subresources:
            raise UnknownPodCount(f"{resource.group_resource} does not implement the scale subresource")
        try:
            scale = await self._client.get_raw(resource, reference.name, namespace, subresource="scale")
        except NotFound:
            return None
        uid: str = scale["metadata"].get("uid", "")
        return (uid, (scale.get("spec") or {}).get("replicas", 0)) if uid == reference.uid else None
