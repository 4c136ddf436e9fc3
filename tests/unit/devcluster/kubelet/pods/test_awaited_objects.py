"""Pods that wait for ConfigMaps, Secrets and ResourceClaims, without a kubelet."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.kubelet.pods.awaited_objects import AwaitedObjects
from kubeloop.devcluster.kubelet.pods.kubelet_events import KubeletEvents
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.objects.resources import CONFIG_MAPS
from support.simulation.simulated_pods import new_simulation, simulated_pod

JSON = dict[str, Any]
MOUNT = {"volumeMounts": [{"name": "settings"}]}
VOLUMES = [{"name": "settings", "configMap": {"name": "site"}}]


def new_awaited(changes: list[Change] | None = None) -> tuple[AwaitedObjects, ObjectStore]:
    """Return awaited objects and their store. changes: receives those of the objects."""
    simulation = new_simulation()
    receive = [].append if changes is None else changes.append
    return AwaitedObjects(simulation.store, KubeletEvents(simulation), receive), simulation.store


def config_map(name: str = "site", namespace: str = "default") -> JSON:
    return {"kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace, "uid": name}}


def mounting_pod() -> SimulatedPod:
    return simulated_pod(volumes=VOLUMES, containers=[{"name": "web", **MOUNT}])


def test_pod_waits_for_the_object_of_its_volume_only():
    (awaited, _), pod = new_awaited(), mounting_pod()
    assert awaited.wait_for_volumes(pod)
    assert list(awaited.take_waiting(config_map("other"))) == []
    assert list(awaited.take_waiting(config_map(namespace="other"))) == []
    assert list(awaited.take_waiting(config_map())) == [pod]
    assert list(awaited.take_waiting(config_map())) == []


def test_forgotten_pod_does_not_wait():
    (awaited, _), pod = new_awaited(), mounting_pod()
    awaited.wait_for_volumes(pod)
    awaited.forget(pod.uid)
    assert list(awaited.take_waiting(config_map())) == []


def test_changes_are_received_from_the_first_wait_until_close():
    changes: list[Change] = []
    awaited, store = new_awaited(changes)
    store.create(CONFIG_MAPS, config_map("before"))
    awaited.wait_for_volumes(mounting_pod())
    store.create(CONFIG_MAPS, config_map())
    awaited.close()
    store.create(CONFIG_MAPS, config_map("after"))
    assert [change.now.object["metadata"]["name"] for change in changes] == ["site"]


def test_configuration_error_of_the_spec_alone_waits_for_nothing():
    awaited, _ = new_awaited()
    secret = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}}
    context = {"securityContext": {"runAsNonRoot": True, "runAsUser": 0}}
    pod = simulated_pod(containers=[{"name": "web", "env": [secret]}, {"name": "root", **context}, {"name": "log"}])
    web, root, log = pod.runs
    assert awaited.configuration_error(pod, log) == ""
    assert "non-root" in awaited.configuration_error(pod, root)
    assert pod.missing == set()
    assert awaited.configuration_error(pod, web) == 'secret "keys" not found'
    assert pod.missing == {("Secret", "keys")}


def test_pod_waits_for_the_names_of_its_claims():
    awaited, _ = new_awaited()
    pod = simulated_pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}])
    assert awaited.wait_for_claim(pod)
    assert not awaited.has_claim_names(pod)
    pod.object["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "gpu-1"}]}
    assert awaited.has_claim_names(pod)
    pod.missing.clear()
    assert not awaited.has_claim_names(pod)


def test_pod_does_not_wait_if_the_settings_say_so():
    (awaited, _), settings = new_awaited(), NodeSettings(awaits_objects=False)
    containers = [{"name": "web", "envFrom": [{"secretRef": {"name": "none"}}], **MOUNT}]
    pod = simulated_pod(settings=settings, volumes=VOLUMES, containers=containers)
    assert not awaited.wait_for_volumes(pod)
    assert awaited.configuration_error(pod, pod.runs[0]) == ""
