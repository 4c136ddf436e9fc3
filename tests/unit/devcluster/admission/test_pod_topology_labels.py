"""PodTopologyLabels: labels of the node on its pods."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.plugin_settings import WITHOUT_ACCOUNTS, PluginSettings
from kubeloop.devcluster.admission.pod_topology_labels import add_topology_labels
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import NODES
from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
ZONE = {"topology.kubernetes.io/zone": "z"}
SPEC = {"containers": [{"name": "c", "image": "i"}]}
NODE_TARGET = {"kind": "Node", "name": "n"}


def new_api(**settings: Any) -> InProcessApi:
    api = InProcessApi(settings=ServingSettings(**settings))
    api.create("/api/v1/nodes", {"metadata": {"name": "n", "labels": {**ZONE, "other": "x"}}})
    return api


def labels_of_bound_pod(api: InProcessApi, target: JSON, path: str = "pods/p/binding") -> JSON:
    api.create(PODS, {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": SPEC})
    api.create(f"/api/v1/namespaces/default/{path}", {"metadata": {"name": "p"}, "target": target})
    labels: JSON = api.succeed("GET", f"{PODS}/p")["metadata"]["labels"]
    return labels


async def test_pod_that_is_created_on_a_node_gets_its_labels():
    metadata = {"name": "p", "labels": {"topology.kubernetes.io/zone": "own"}}
    pod = new_api().create(PODS, {"metadata": metadata, "spec": {**SPEC, "nodeName": "n"}})
    assert pod["metadata"]["labels"] == ZONE


def test_metadata_keeps_its_other_labels():
    store = ObjectStore(seconds=lambda: 0.0)
    store.create(NODES, {"metadata": {"name": "n", "labels": ZONE}})
    metadata: JSON = {"labels": {"a": "b"}}
    add_topology_labels(store, metadata, "n")
    assert metadata["labels"] == {"a": "b", **ZONE}


async def test_pod_of_a_missing_node_keeps_its_labels():
    pod = new_api().create(PODS, {"metadata": {"name": "p"}, "spec": {**SPEC, "nodeName": "missing"}})
    assert "labels" not in pod["metadata"]


async def test_bound_pod_gets_the_labels_of_its_node():
    assert labels_of_bound_pod(new_api(), NODE_TARGET) == {"a": "b", **ZONE}


@pytest.mark.parametrize(
    ("target", "path"),
    [
        pytest.param({"name": "n"}, "pods/p/binding", id="target without kind"),
        pytest.param(NODE_TARGET, "bindings", id="bindings is another resource"),
    ],
)
async def test_other_bindings_copy_no_labels(target: JSON, path: str):
    assert labels_of_bound_pod(new_api(), target, path) == {"a": "b"}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"feature_gates": FeatureGates({"PodTopologyLabelsAdmission": False})}, id="gate"),
        pytest.param({"admission": PluginSettings(WITHOUT_ACCOUNTS - {"PodTopologyLabels"})}, id="plugin"),
    ],
)
async def test_disabled_plugin_copies_no_labels(settings: JSON):
    assert labels_of_bound_pod(new_api(**settings), NODE_TARGET) == {"a": "b"}
