"""Rollback of a Deployment by the deprecated annotation: which revision, and with what event.

Pure functions. Source: pkg/controller/deployment/rollback.go.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubeloop.controllers.deployment.replica_sets import (
    ROLLBACK_TO,
    last_revision,
    revision_of,
    rolled_back_annotations,
)
from kubeloop.controllers.runtime.integers import InvalidInteger, int_or_none
from kubeloop.controllers.runtime.revisions.pod_template_hash import equal_ignore_hash, without_hash_label
from kubeloop.kube.objects.api_types import Deployment, JSONValue, ReplicaSet


class Rollback(msgspec.Struct, frozen=True):
    """Result of a rollback: the event, and the ReplicaSet whose template is restored, None if there is none."""

    reason: str
    message: str
    replica_set: ReplicaSet | None = None


def rollback_revision(deployment: Deployment) -> int | None:
    """Return the revision in the deprecated rollback annotation (0: the previous one); None without a valid one."""
    revision = deployment.metadata.annotations.get(ROLLBACK_TO)
    return None if revision is None else int_or_none(revision)


def plan_rollback(deployment: Deployment, all_rss: Sequence[ReplicaSet]) -> Rollback:
    """Return the rollback to the requested revision; to the previous one if it is 0."""
    revision = rollback_revision(deployment) or last_revision(all_rss)
    if revision == 0:
        return Rollback("DeploymentRollbackRevisionNotFound", "Unable to find last revision.")
    rs = next((rs for rs in all_rss if _has_revision(rs, revision)), None)
    if rs is None:
        return Rollback("DeploymentRollbackRevisionNotFound", "Unable to find the revision to rollback to.")
    name = deployment.metadata.name
    if equal_ignore_hash(deployment.spec.template, rs.spec.template):
        message = f'The rollback revision contains the same template as current deployment "{name}"'
        return Rollback("DeploymentRollbackTemplateUnchanged", message)
    return Rollback("DeploymentRollback", f'Rolled back deployment "{name}" to revision {revision}', rs)


def _has_revision(rs: ReplicaSet, revision: int) -> bool:
    try:
        return revision_of(rs) == revision
    except InvalidInteger:
        return False


def rollback_patch(deployment: Deployment, rs: ReplicaSet | None, resource_version: str) -> list[JSONValue]:
    """Return the JSON patch that restores template and annotations of `rs`, if any, and removes the rollback
    annotation.

    A merge patch would merge two templates instead of replacing one with the other.
    """
    annotations = deployment.metadata.annotations
    operations: list[JSONValue] = []
    if resource_version:
        operations.append({"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version})
    if rs is not None:
        annotations = rolled_back_annotations(annotations, rs.metadata.annotations)
        template = without_hash_label(rs.spec.template)
        operations.append({"op": "replace", "path": "/spec/template", "value": template})
    annotations = {name: value for name, value in annotations.items() if name != ROLLBACK_TO}
    operations.append({"op": "add", "path": "/metadata/annotations", "value": annotations})
    return operations
