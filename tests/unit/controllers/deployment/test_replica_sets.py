"""Revisions of a Deployment's ReplicaSets."""

from __future__ import annotations

import pytest

from kubeloop.controllers.deployment.replica_sets import REVISION, max_revision
from kubeloop.kube.objects.api_types import ObjectMeta, ReplicaSet


@pytest.mark.parametrize(
    ("revisions", "highest"),
    [([], 0), (["-3"], 0), (["-3", "-1"], 0), (["-3", "2"], 2), (["x", "3", "1"], 3)],
)
def test_max_revision_ignores_revisions_below_zero(revisions, highest):
    replica_sets = [ReplicaSet(metadata=ObjectMeta(annotations={REVISION: revision})) for revision in revisions]
    assert max_revision(replica_sets) == highest
