"""Manual clock, pods as the informer delivers them, and an exporter that records traces."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from kubeloop.kube.objects import api_types
from kubeloop.tracing.provider import RecordingSettings, Tracing
from kubeloop.tracing.recording.top_owner_lookup import controller_is_top_owner
from support.traces.span_tree import check_spans

START = datetime(2026, 1, 1, 12, 0, 0, 400_000, tzinfo=UTC)


class ManualClock:
    def __init__(self) -> None:
        self.ns = int(START.timestamp() * 1000) * 1_000_000

    def time_ns(self) -> int:
        return self.ns

    def now(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.ns // 1000)

    def pass_ms(self, milliseconds: float) -> None:
        self.ns += round(milliseconds * 1e6)


class RecordingExporter:
    def __init__(self) -> None:
        self.traces = []
        self.keys = []
        self.is_shut_down = False

    def export(self, trace, key="") -> None:
        check_spans(trace)
        self.traces.append(trace)
        self.keys.append(key)

    def delivered(self):
        delivered, self.keys = self.keys, []
        return delivered

    def shut_down(self, within_seconds) -> None:
        self.is_shut_down = True


def make_pod(
    name="web-5f-abcde",
    *,
    uid="",
    traceparent="",
    annotations=None,
    node="",
    owner="ReplicaSet",
    created="",
    phase="Pending",
    conditions=None,
    deleted="",
    scheduler="default-scheduler",
    group="",
):
    """Return a Pod; `conditions`: transition time by type of conditions that are true."""
    owners = [{"kind": owner, "name": "web-5f", "uid": "rs-uid", "controller": True}] if owner else []
    return api_types.convert(
        api_types.Pod,
        {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": uid or f"uid of {name}",
                "labels": {"pod-template-hash": "5f"},
                "annotations": annotations or ({"tracing.k8s.io/traceparent": traceparent} if traceparent else {}),
                **({"deletionTimestamp": deleted} if deleted else {}),
                "ownerReferences": owners,
                "creationTimestamp": created or "2026-01-01T12:00:00Z",
            },
            "spec": {
                "nodeName": node,
                "schedulerName": scheduler,
                **({"schedulingGroup": {"podGroupName": group}} if group else {}),
            },
            "status": {
                "phase": phase,
                "conditions": [
                    {"type": type_, "status": "True", "lastTransitionTime": since}
                    for type_, since in (conditions or {}).items()
                ],
            },
        },
    )


@pytest.fixture(scope="session")
def pod():
    return make_pod


@pytest.fixture
def manual_clock():
    return ManualClock()


@pytest.fixture(scope="session")
def make_clock():
    return ManualClock


@pytest.fixture
def exporter():
    return RecordingExporter()


@pytest.fixture(scope="session")
def make_exporter():
    return RecordingExporter


@pytest.fixture(scope="session")
def make_tracing():
    def make(clock, sink=None, **options):
        environ, seed, journal = options.pop("environ", {}), options.pop("seed", 7), options.pop("journal", None)
        return Tracing(
            clock=clock,
            rng=random.Random(seed),
            environ=environ,
            exporter=sink or RecordingExporter(),
            find_top_owner=options.pop("find_top_owner", controller_is_top_owner),
            open_journal=(lambda: journal) if journal is not None else None,
            settings=RecordingSettings(**options),
        )

    return make


@pytest.fixture
def tracing(make_tracing, manual_clock, exporter):
    return make_tracing(manual_clock, exporter)
