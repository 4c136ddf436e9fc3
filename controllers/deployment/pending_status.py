"""Status and revision of a Deployment whose write was postponed."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from kubeloop.controllers.deployment.replica_sets import REVISION, with_revision
from kubeloop.kube.objects.api_types import Deployment, DeploymentStatus


class PendingStatus(NamedTuple):
    """Status and revision of a Deployment whose write was postponed. replaced: those on the API server at that time."""

    deployment_uid: str
    replaced: tuple[DeploymentStatus, str | None]
    status: DeploymentStatus
    revision: str | None

    @classmethod
    def of(cls, stored: Deployment, changed: Deployment) -> PendingStatus:
        """Return the pending write of `changed`. stored: the Deployment as last seen on the API server."""
        revision = changed.metadata.annotations.get(REVISION)
        return cls(stored.metadata.uid, _written_fields(stored), changed.status, revision)

    def applied_to(self, deployment: Deployment) -> Deployment:
        """Return the Deployment as if the write had succeeded; unchanged if another client has written since."""
        if deployment.metadata.uid != self.deployment_uid or _written_fields(deployment) != self.replaced:
            return deployment
        if self.revision is not None:
            deployment = with_revision(deployment, self.revision)
        return replace(deployment, status=self.status)


def _written_fields(deployment: Deployment) -> tuple[DeploymentStatus, str | None]:
    return deployment.status, deployment.metadata.annotations.get(REVISION)
