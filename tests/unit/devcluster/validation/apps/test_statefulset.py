"""Validation of StatefulSets."""

from __future__ import annotations

from kubeloop.kube.objects.resources import STATEFUL_SETS
from support.validation_causes import update_causes, workload


def test_most_stateful_set_fields_are_immutable() -> None:
    old = workload(serviceName="s")
    assert update_causes(STATEFUL_SETS, old, workload(serviceName="s", replicas=3)) == []
    assert update_causes(STATEFUL_SETS, old, workload(serviceName="t")) == [
        "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
        "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' "
        "are forbidden"
    ]
