"""ReplicaSets and ReplicationControllers: the same controller over two resources.

A ReplicationController is read as the older API version of a ReplicaSet that it is; the two have their own queues,
names and metrics. Source: pkg/controller/replication/conversion.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kubeloop.kube.objects.api_types import LabelSelector, ReplicaSet, ReplicaSetSpec, ReplicationController
from kubeloop.kube.objects.resources import REPLICA_SETS, REPLICATION_CONTROLLERS, Resource


class ControllerVariant(msgspec.Struct, frozen=True):
    """name: of the controller, its queue and its metrics. read: an object of the resource as a ReplicaSet.
    tells_terminating: whether the API has status.terminatingReplicas for it."""

    name: str
    resource: Resource[Any]
    read: Callable[[Any], ReplicaSet]
    has_terminating_replicas: bool

    @property
    def kind(self) -> str:
        return self.resource.kind


def as_replica_set(rc: ReplicationController) -> ReplicaSet:
    """A ReplicationController in the words of a ReplicaSet; kind and apiVersion stay its own."""
    spec = rc.spec
    return ReplicaSet(
        api_version=rc.api_version or REPLICATION_CONTROLLERS.api_version,
        kind=rc.kind or REPLICATION_CONTROLLERS.kind,
        metadata=rc.metadata,
        spec=ReplicaSetSpec(
            replicas=spec.replicas,
            min_ready_seconds=spec.min_ready_seconds,
            # an RC without a selector has none: unlike an empty one, it matches nothing
            selector=LabelSelector(match_labels=spec.selector) if spec.selector else None,
            template=spec.template,
        ),
        status=rc.status,
    )


def _itself(rs: ReplicaSet) -> ReplicaSet:
    return rs


REPLICA_SET = ControllerVariant("replicaset", REPLICA_SETS, _itself, has_terminating_replicas=True)
REPLICATION_CONTROLLER = ControllerVariant(
    "replicationmanager", REPLICATION_CONTROLLERS, as_replica_set, has_terminating_replicas=False
)
