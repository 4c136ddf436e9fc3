"""ReplicaSets and ReplicationControllers as two variants of the same controller.

A ReplicationController is converted to a ReplicaSet. The variants have separate queues, names and metrics. Source:
pkg/controller/replication/conversion.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kubeloop.kube.objects.api_types import LabelSelector, ReplicaSet, ReplicaSetSpec, ReplicationController
from kubeloop.kube.objects.resources import REPLICA_SETS, REPLICATION_CONTROLLERS, Resource


class ControllerVariant(msgspec.Struct, frozen=True):
    """One of the two resources that the ReplicaSet controller reconciles.

    name: of the controller, its queue and its metrics. to_replica_set: converts an object of `resource`.
    has_terminating_replicas: the API has status.terminatingReplicas for the resource.
    """

    name: str
    resource: Resource[Any]
    to_replica_set: Callable[[Any], ReplicaSet]
    has_terminating_replicas: bool

    @property
    def kind(self) -> str:
        return self.resource.kind


def as_replica_set(rc: ReplicationController) -> ReplicaSet:
    """Convert a ReplicationController to a ReplicaSet; kind and apiVersion stay those of a ReplicationController."""
    spec = rc.spec
    return ReplicaSet(
        api_version=rc.api_version or REPLICATION_CONTROLLERS.api_version,
        kind=rc.kind or REPLICATION_CONTROLLERS.kind,
        metadata=rc.metadata,
        spec=ReplicaSetSpec(
            replicas=spec.replicas,
            min_ready_seconds=spec.min_ready_seconds,
            # without a selector it has none, which (unlike an empty selector) matches nothing
            selector=LabelSelector(match_labels=spec.selector) if spec.selector else None,
            template=spec.template,
        ),
        status=rc.status,
    )


def _identity(rs: ReplicaSet) -> ReplicaSet:
    return rs


REPLICA_SET = ControllerVariant("replicaset", REPLICA_SETS, _identity, has_terminating_replicas=True)
REPLICATION_CONTROLLER = ControllerVariant(
    "replicationmanager", REPLICATION_CONTROLLERS, as_replica_set, has_terminating_replicas=False
)
