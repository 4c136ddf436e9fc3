"""Claim protection: a deleted claim stays while a scheduled Pod uses it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.api.runner import new_controller
from kubeloop.controllers.pvcprotection.claim_protection_controller import (
    FINALIZER,
    ClaimProtectionController,
    uses_claim,
)
from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from support.apiserver.faulty_transport import WatchFault
from support.objects.persistent_volumes import persistent_volume_claim

pytestmark = pytest.mark.virtual_time


def pod(*, node: str = "n", ephemeral: bool = False, **metadata: Any) -> Pod:
    claim = {"persistentVolumeClaim": {"claimName": "web-data"}}
    volume = {"name": "data", **({"ephemeral": {"volumeClaimTemplate": {}}} if ephemeral else claim)}
    head = {"name": "web", "namespace": "ns", **metadata}
    return convert(Pod, {"metadata": head, "spec": {"nodeName": node, "volumes": [volume]}})


STOPPED = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        pytest.param(pod(), True, id="scheduled"),
        pytest.param(pod(node=""), False, id="not scheduled"),
        pytest.param(pod(**STOPPED), True, id="stopped, with a claim of its own"),
        pytest.param(pod(ephemeral=True, **STOPPED), False, id="stopped, with an ephemeral claim"),
    ],
)
def test_uses_claim(user, expected):
    assert uses_claim(user, "ns/web-data") is expected


async def test_claim_of_a_pod_that_only_the_cache_lacks_is_not_released(fake_apiserver, start):
    await start(fake_apiserver.informers, new_controller(ClaimProtectionController, fake_apiserver.context))
    fake_apiserver.transport.watch_faults.append(WatchFault("silence", resource="pods"))
    fake_apiserver.transport.break_watches("pods")
    await asyncio.sleep(2)
    fake_apiserver.api.create(PERSISTENT_VOLUME_CLAIMS.path("ns"), persistent_volume_claim({"name": "data"}))
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    spec = {"nodeName": "n", "containers": [{"name": "main", "image": "app:1"}], "volumes": [volume]}
    fake_apiserver.api.create(PODS.path("ns"), {"metadata": {"name": "web"}, "spec": spec})
    fake_apiserver.delete(PERSISTENT_VOLUME_CLAIMS, "data")
    await asyncio.sleep(5)
    assert fake_apiserver.names(PERSISTENT_VOLUME_CLAIMS) == ["data"]
    fake_apiserver.transport.break_watches("pods")
    await asyncio.sleep(5)
    fake_apiserver.store.delete(PODS, "ns", "web")
    await asyncio.sleep(5)
    assert fake_apiserver.names(PERSISTENT_VOLUME_CLAIMS) == []


async def test_finalizer_is_added_and_removed_after_the_deletion(fake_apiserver, start):
    await start(fake_apiserver.informers, new_controller(ClaimProtectionController, fake_apiserver.context))
    body = persistent_volume_claim({"name": "data"})
    fake_apiserver.api.create(PERSISTENT_VOLUME_CLAIMS.path("ns"), body)
    claim = fake_apiserver.store.get(PERSISTENT_VOLUME_CLAIMS, "ns", "data")
    metadata = {name: value for name, value in claim["metadata"].items() if name != "finalizers"}
    fake_apiserver.store.update(PERSISTENT_VOLUME_CLAIMS, {**claim, "metadata": metadata})
    await asyncio.sleep(1)
    assert fake_apiserver.store.get(PERSISTENT_VOLUME_CLAIMS, "ns", "data")["metadata"]["finalizers"] == [FINALIZER]
    await fake_apiserver.client.delete(PERSISTENT_VOLUME_CLAIMS, "data", "ns")
    await asyncio.sleep(1)
    assert fake_apiserver.names(PERSISTENT_VOLUME_CLAIMS) == []
