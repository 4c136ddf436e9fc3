"""Protection of objects in use: when the finalizer is added, and when it is removed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.api.runner import new_controller
from kubeloop.controllers.api.watches import For
from kubeloop.controllers.protection.protection_controller import ProtectionController, needs_write, protects
from kubeloop.kube.objects.api_types import ObjectMeta, convert
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim
from support.comparison import replay_server
from support.simulation.set_clock import SetClock

FINALIZER = "example.com/protection"
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("metadata", "adds_finalizer", "expected"),
    [
        pytest.param({}, True, True, id="finalizer missing"),
        pytest.param({}, False, False, id="the API server adds the finalizer"),
        pytest.param({"finalizers": ["example.com/f"]}, True, True, id="other finalizer"),
        pytest.param({"finalizers": ["example.com/f", FINALIZER]}, True, False, id="protected"),
        pytest.param({**DELETED, "finalizers": [FINALIZER]}, True, True, id="in deletion"),
        pytest.param({**DELETED, "finalizers": [FINALIZER]}, False, True, id="in deletion, of the API server"),
        pytest.param({**DELETED, "finalizers": ["example.com/f"]}, True, False, id="in deletion, released"),
    ],
)
def test_needs_write(metadata: dict[str, Any], adds_finalizer: bool, expected: bool):
    assert needs_write(convert(ObjectMeta, metadata), FINALIZER, adds_finalizer=adds_finalizer) is expected


class Protection(ProtectionController):
    """Protects claims; `used` ones stay."""

    name = "test"
    resource, finalizer = PERSISTENT_VOLUME_CLAIMS, FINALIZER
    watches = (For(PERSISTENT_VOLUME_CLAIMS, predicates=[protects(FINALIZER)]),)
    used = False

    async def is_used(self, obj: PersistentVolumeClaim) -> bool:
        return self.used


@pytest.mark.parametrize(
    ("metadata", "used", "written"),
    [
        pytest.param(None, False, [], id="no object"),
        pytest.param({}, False, [["example.com/protection"]], id="added"),
        pytest.param({"finalizers": ["x"]}, False, [["x", "example.com/protection"]], id="added to others"),
        pytest.param({"finalizers": [FINALIZER]}, False, [], id="protected"),
        pytest.param({**DELETED, "finalizers": [FINALIZER, "x"]}, False, [["x"]], id="removed"),
        pytest.param({**DELETED, "finalizers": [FINALIZER]}, True, [], id="in use"),
    ],
)
async def test_finalizer_is_written(metadata: dict[str, Any] | None, used: bool, written: list[list[str]]):
    written_finalizers: list[list[str]] = []

    class Client:
        async def patch(self, resource: Any, name: str, body: Any, *_: Any, **__: Any) -> PersistentVolumeClaim:
            written_finalizers.append(body["metadata"]["finalizers"])
            return PersistentVolumeClaim()

    queue, api = replay_server.RecordingQueue(), replay_server.ReplayServer({"state": {}})
    context = replay_server.replay_context(api, SetClock(datetime(2026, 1, 1, tzinfo=UTC)), queue)
    controller = new_controller(Protection, structs.replace(context, client=Client()))
    controller.controller.used = used
    if metadata is not None:
        body = {"metadata": {"name": "data", "namespace": "ns", "uid": "u", **metadata}}
        context.informers.informer(PERSISTENT_VOLUME_CLAIMS).apply("ADDED", convert(PersistentVolumeClaim, body), 0)
    assert await controller.reconcile("ns/data") is None
    assert written_finalizers == written
    assert [call["key"] for call in queue.calls] == (["ns/data"] if written or used else [])
