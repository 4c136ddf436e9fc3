"""Writes of a Deployment's sync."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.controllers.deployment.deployment_writer import DeploymentWriter, annotation_changes
from kubeloop.controllers.deployment.replica_sets import DESIRED_REPLICAS, MAX_REPLICAS
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.controllers.runtime.writes.status_delay import StatusDelay
from kubeloop.kube.objects.api_types import Deployment, ReplicaSet, convert
from kubeloop.tracing.recording.reconcile_recorder import Reconcile
from support.comparison import replay_server
from support.simulation.set_clock import SetClock
from support.traces.disabled_recorders import DisabledReconcileRecorder

SIZES = {DESIRED_REPLICAS: "3", MAX_REPLICAS: "3"}


def writer_of(rs: dict[str, Any]) -> tuple[DeploymentWriter, list[Any]]:
    """Return the writer of a Deployment of 3 replicas that owns `rs`, and the list of its API calls."""
    deployment = {
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "uid": "web-uid"},
        "spec": {"replicas": 3, "strategy": {"type": "Recreate"}},
    }
    api = replay_server.ReplayServer({"state": {"deployments": [deployment], "replicasets": [rs]}})
    queue = replay_server.RecordingQueue()
    context = replay_server.replay_context(api, SetClock(datetime(2026, 1, 1, tzinfo=UTC)), queue)
    writer = DeploymentWriter(
        convert(Deployment, deployment),
        context,
        ConsistencyStore({}),
        StatusDelay(queue, 0.0),
        DisabledReconcileRecorder().reconcile("deployment", "default/web"),
    )
    return writer, api.calls


def replica_set(replicas: int, annotations: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": "web-1", "namespace": "default", "uid": "rs", "resourceVersion": "2"}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {**metadata, "annotations": annotations},
        "spec": {"replicas": replicas},
    }


@pytest.mark.parametrize(
    ("replicas", "annotations", "forced", "writes", "scaled"),
    [
        pytest.param(1, {}, False, 1, True, id="another size"),
        pytest.param(3, {}, False, 0, False, id="same size"),
        pytest.param(3, {}, True, 1, False, id="forced: old annotations"),
        pytest.param(3, SIZES, True, 0, False, id="forced: same annotations"),
    ],
)
async def test_scale_replica_set_writes_changes_only(replicas, annotations, forced, writes, scaled, monkeypatch):
    body = replica_set(replicas, annotations)
    writer, calls = writer_of(body)
    triggered: list[tuple[str, str]] = []
    monkeypatch.setattr(Reconcile, "will_trigger", lambda _, *key: triggered.append(key))
    changed, updated = await writer.scale_replica_set(convert(ReplicaSet, body), 3, forced=forced)
    assert (changed, len(calls)) == (scaled, writes)
    assert triggered == ([("replicaset", "default/web-1")] if scaled else [])
    assert updated.spec.replicas == 3


async def test_unsent_annotations_go_with_next_patch():
    body = replica_set(1, {})
    writer, calls = writer_of(body)
    rs = convert(ReplicaSet, body)
    writer.annotate_with_next_write(rs, {"team": "a"})
    assert calls == []
    await writer.scale_replica_set(rs, 3)
    assert calls[0]["object"]["metadata"]["annotations"] == {"team": "a", **SIZES}


def test_annotation_changes_removes_and_sets():
    assert annotation_changes({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4"}) == {"b": "4", "c": None}
