"""Ephemeral volume controller: claims of generic ephemeral volumes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.api.runner import ControllerRunner, new_controller
from kubeloop.controllers.ephemeral.ephemeral_volume_controller import EphemeralVolumeController
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from support.objects.persistent_volumes import persistent_volume_claim

pytestmark = pytest.mark.virtual_time
SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@pytest.fixture
async def controller(fake_apiserver, recorded_events, start) -> ControllerRunner:
    context = structs.replace(fake_apiserver.context, events=recorded_events)
    controller = new_controller(EphemeralVolumeController, context)
    await start(fake_apiserver.informers, controller)
    return controller


def create_pod(server: Any) -> Any:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}
    body = {
        "metadata": {"name": "web"},
        "spec": {
            "containers": [{"name": "main", "image": "app:1"}],
            "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}],
        },
    }
    return server.api.create(PODS.path("ns"), body)


async def test_claim_is_owned_by_the_pod_and_created_again(fake_apiserver, controller):
    pod = create_pod(fake_apiserver)
    await asyncio.sleep(1)
    claim = fake_apiserver.store.get(PERSISTENT_VOLUME_CLAIMS, "ns", "web-scratch")
    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", pod["metadata"]["uid"], True)
    assert claim["metadata"]["labels"] == {"a": "b"}
    fake_apiserver.store.delete(PERSISTENT_VOLUME_CLAIMS, "ns", "web-scratch")
    await asyncio.sleep(1)
    assert fake_apiserver.names(PERSISTENT_VOLUME_CLAIMS) == ["web-scratch"]


async def test_claim_of_another_owner_is_reported(fake_apiserver, controller, recorded_events):
    fake_apiserver.api.create(PERSISTENT_VOLUME_CLAIMS.path("ns"), persistent_volume_claim({"name": "web-scratch"}))
    await asyncio.sleep(1)
    create_pod(fake_apiserver)
    await asyncio.sleep(1)
    assert {event.reason for event in recorded_events.events} == {"FailedBinding"}
    message = "ephemeral volume scratch: PVC ns/web-scratch was not created for pod ns/web (pod is not owner)"
    assert recorded_events.events[0].message == message


async def test_failed_creation_of_a_claim_is_reported(fake_apiserver, controller, recorded_events):
    def reject(method: str, path: str) -> errors.StatusError | None:
        denied = method == "POST" and path.endswith("/persistentvolumeclaims")
        return errors.forbidden(PERSISTENT_VOLUME_CLAIMS, "web-scratch", "no quota") if denied else None

    fake_apiserver.transport.reject = reject
    create_pod(fake_apiserver)
    await asyncio.sleep(1)
    problem = 'persistentvolumeclaims "web-scratch" is forbidden: no quota'
    assert recorded_events.events[0].message == f"ephemeral volume scratch: create PVC web-scratch: {problem}"


async def test_pod_in_deletion_gets_no_claim(fake_apiserver, controller):
    create_pod(fake_apiserver)
    await asyncio.sleep(1)
    path = PODS.path("ns", "web")
    fake_apiserver.api.succeed("PATCH", path, {"metadata": {"finalizers": ["example.com/f"]}})
    fake_apiserver.api.succeed("DELETE", path)
    await asyncio.sleep(1)
    fake_apiserver.store.delete(PERSISTENT_VOLUME_CLAIMS, "ns", "web-scratch")
    await asyncio.sleep(60)
    assert fake_apiserver.names(PERSISTENT_VOLUME_CLAIMS) == []


async def test_other_claims_of_the_pod_hide_no_ephemeral_volume(fake_apiserver, controller):
    ephemeral = {"volumeClaimTemplate": {"spec": SPEC}}
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "ephemeral": ephemeral},
        {"name": "logs", "persistentVolumeClaim": {"claimName": "logs"}},
        {"name": "cache", "ephemeral": ephemeral},
    ]
    spec = {"containers": [{"name": "main", "image": "app:1"}], "volumes": volumes}
    fake_apiserver.api.create(PODS.path("ns"), {"metadata": {"name": "web"}, "spec": spec})
    await asyncio.sleep(1)
    assert fake_apiserver.names(PERSISTENT_VOLUME_CLAIMS) == ["web-cache", "web-scratch"]
