"""PodTopologyLabels: zone and region of a pod's node as labels of the pod.

Source: plugin/pkg/admission/podtopologylabels of Kubernetes v1.36 (KEP-4742).
"""

from __future__ import annotations

from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES

_COPIED = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def add_topology_labels(store: ObjectStore, metadata: JSON, node_name: str) -> None:
    """Copy the topology labels of a node, if it exists, into the metadata of a pod or a Binding, in place."""
    node_labels = (store.get(NODES, "", node_name) or {}).get("metadata", {}).get("labels", {})
    if labels := {key: node_labels[key] for key in _COPIED if key in node_labels}:
        metadata["labels"] = {**metadata.get("labels", {}), **labels}
