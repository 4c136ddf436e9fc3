"""Shared state of the simulation: quiet writes, deletion of pods, timestamps, events."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import EVENTS, PODS
from support.simulation.set_clock import SetClock

JSON = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> SetClock:
    return SetClock(NOW)


@pytest.fixture
def simulation(clock: SetClock) -> Simulation:
    return Simulation(ObjectStore(seconds=lambda: 0.0), NodeSettings(), clock=clock, rng=random.Random(1))


def create_pod(simulation: Simulation, **metadata: Any) -> JSON:
    pod: JSON = {"kind": "Pod", "apiVersion": "v1", "spec": {}, "status": {}}
    return simulation.store.create(
        PODS, {**pod, "metadata": {"name": "web", "namespace": "default", "uid": "u1", **metadata}}
    )


def test_wall_time_follows_the_clock(simulation, clock):
    assert simulation.wall() == "2026-01-01T00:00:00Z"
    clock.moment = NOW + timedelta(seconds=0.9)
    assert simulation.wall() == "2026-01-01T00:00:00Z"
    clock.moment = NOW + timedelta(seconds=1)
    assert simulation.wall() == "2026-01-01T00:00:01Z"


def test_quiet_is_set_during_quiet_update_only(simulation):
    pod = create_pod(simulation)
    observed = []
    simulation.store.subscribe(PODS, lambda _change: observed.append(simulation.quiet))
    pod = simulation.update(PODS, {**pod, "status": {"phase": "Running"}}, quiet=True)
    simulation.update(PODS, {**pod, "status": {"phase": "Failed"}})
    assert observed == [True, False]
    assert simulation.quiet is False


def test_current_pod_is_none_for_deleted_or_replaced_pod(simulation):
    pod = create_pod(simulation)
    assert simulation.current_pod(pod) is not None
    assert simulation.current_pod({**pod, "metadata": {**pod["metadata"], "uid": "other"}}) is None
    simulation.store.delete(PODS, "default", "web")
    assert simulation.current_pod(pod) is None


def test_remove_pod_deletes_pod_without_finalizers(simulation):
    assert simulation.remove_pod(create_pod(simulation))
    assert simulation.store.get(PODS, "default", "web") is None


def test_remove_pod_with_finalizers_sets_grace_period_to_zero(simulation):
    pod = create_pod(simulation, finalizers=["example.com/hold"])
    assert not simulation.remove_pod(pod)
    current = simulation.current_pod(pod)
    assert current["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"
    assert current["metadata"]["deletionGracePeriodSeconds"] == 0
    assert not simulation.remove_pod(current)
    assert simulation.current_pod(pod)["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"]


def test_disabled_events_are_not_recorded(clock):
    simulation = Simulation(
        ObjectStore(seconds=lambda: 0.0), NodeSettings(events=False), clock=clock, rng=random.Random(1)
    )
    simulation.event(create_pod(simulation), "Normal", "Started", "text")
    assert not simulation.records_events
    assert simulation.store.list(EVENTS) == []
