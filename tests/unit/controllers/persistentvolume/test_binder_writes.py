"""Writes and events of the persistent volume binder."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.persistentvolume.binder_writes import BinderWrites
from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.resources import PERSISTENT_VOLUMES
from kubeloop.kube.objects.storage_types import PersistentVolume

pytestmark = pytest.mark.virtual_time


def volume(apiserver: Any) -> PersistentVolume:
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv", "uid": "1"}}
    return convert(PersistentVolume, apiserver.store.create(PERSISTENT_VOLUMES, body))


def phase_and_message(apiserver: Any) -> tuple[str, str | None]:
    (stored,) = apiserver.store.list(PERSISTENT_VOLUMES)
    return stored["status"]["phase"], stored["status"].get("message")


async def test_phase_of_a_volume_is_written_if_it_differs(fake_apiserver):
    writes = BinderWrites(fake_apiserver.context)
    failed = await writes.write_phase(volume(fake_apiserver), "Failed", "no plugin")
    assert phase_and_message(fake_apiserver) == ("Failed", "no plugin")
    assert await writes.write_phase(failed, "Failed") is failed
    await writes.write_phase(failed, "Released")
    assert phase_and_message(fake_apiserver) == ("Released", None)


async def test_repeated_event_is_recorded_once(fake_apiserver):
    writes, pv = BinderWrites(fake_apiserver.context), volume(fake_apiserver)
    for message in ("one", "one", "two", "one"):
        writes.record_event(pv, "Warning", "VolumeMismatch", message)
    assert [event.message for event in fake_apiserver.context.events.events] == ["one", "two", "one"]
    writes.forget_events(pv)
    writes.record_event(pv, "Warning", "VolumeMismatch", "one")
    assert len(fake_apiserver.context.events.events) == 4
