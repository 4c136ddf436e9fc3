"""Conversion of ReplicationControllers to ReplicaSets."""

from __future__ import annotations

from kubeloop.controllers.replicaset.replication_controllers import as_replica_set
from kubeloop.controllers.runtime.owners.owner_references import controller_index_key
from kubeloop.controllers.runtime.pods.pod_template import pod_from_template
from kubeloop.kube.objects.api_types import ReplicationController, convert


def test_replication_controller_converts_and_keeps_its_kind():
    rc = convert(
        ReplicationController,
        {
            "kind": "ReplicationController",
            "apiVersion": "v1",
            "metadata": {"name": "rc", "namespace": "ns", "uid": "u9"},
            "spec": {"replicas": 2, "selector": {"a": "1"}, "template": {"metadata": {"labels": {"a": "1"}}}},
            "status": {"replicas": 1},
        },
    )
    rs = as_replica_set(rc)
    assert (rs.kind, rs.api_version, rs.spec.replicas, rs.status.replicas) == ("ReplicationController", "v1", 2, 1)
    assert rs.spec.selector is not None
    assert rs.spec.selector.match_labels == {"a": "1"}
    assert controller_index_key(rs) == "ns/ReplicationController/rc/u9"
    assert pod_from_template(rs, rs.spec.template)["metadata"]["ownerReferences"][0]["apiVersion"] == "v1"
