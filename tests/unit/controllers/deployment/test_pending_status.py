"""Postponed status of a Deployment."""

from __future__ import annotations

from msgspec.structs import replace

from kubeloop.controllers.deployment.pending_status import PendingStatus
from kubeloop.controllers.deployment.replica_sets import REVISION
from kubeloop.kube.objects.api_types import Deployment, DeploymentStatus, ObjectMeta

STORED = Deployment(metadata=ObjectMeta(name="web", uid="u1", annotations={REVISION: "1", "team": "a"}))
CHANGED = replace(
    STORED,
    metadata=replace(STORED.metadata, annotations={REVISION: "2", "team": "a"}),
    status=DeploymentStatus(replicas=3),
)


def test_pending_status_applies_to_unchanged_fields():
    pending = PendingStatus.of(STORED, CHANGED)
    newer = replace(STORED, metadata=replace(STORED.metadata, annotations={REVISION: "1", "team": "b"}))
    applied = pending.applied_to(newer)
    assert applied.status == CHANGED.status
    assert applied.metadata.annotations == {REVISION: "2", "team": "b"}


def test_pending_status_is_void_after_foreign_write():
    pending = PendingStatus.of(STORED, CHANGED)
    recreated = replace(STORED, metadata=replace(STORED.metadata, uid="u2"))
    scaled = replace(STORED, status=DeploymentStatus(replicas=1))
    assert pending.applied_to(recreated) is recreated
    assert pending.applied_to(scaled) is scaled
