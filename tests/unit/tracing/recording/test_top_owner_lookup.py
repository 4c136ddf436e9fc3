"""Topmost owners of pods of Jobs."""

from __future__ import annotations

import pytest

from kubeloop.kube.objects.api_types import OwnerReference
from kubeloop.tracing.recording.top_owner_lookup import TopOwnerLookup, controller_is_top_owner
from support.traces.pod_traces import finished


@pytest.mark.parametrize("known_after", ["at once", "the end of the trace"])
async def test_pod_of_another_creators_job_has_the_top_owner(make_tracing, manual_clock, pod, exporter, known_after):
    top_owners = {"web-5f": ("CronJob", "web")} if known_after == "at once" else {}
    tracing = make_tracing(manual_clock, exporter, find_top_owner=lambda namespace, job: top_owners.get(job.name))
    tracing.pods.observed(pod(owner="Job"))
    tracing.pods.observed(pod(owner="Job", node="n1"))
    top_owners["web-5f"] = ("CronJob", "web")
    trace = await finished(tracing, exporter)
    names = [trace.root.attributes[f"k8s.{kind}.name"] for kind in ("job", "cronjob")]
    assert names == ["web-5f", "web"]
    (record,) = tracing.recent.records()
    assert record.owners == ["cronjob/web", "job/web-5f"]


async def test_job_without_an_owner_is_the_top_owner(tracing, pod, exporter):
    tracing.pods.observed(pod(owner="Job"))
    tracing.pods.observed(pod(owner="Job", node="n1"))
    trace = await finished(tracing, exporter)
    assert "kubeloop.owner.kind" not in trace.root.attributes
    (record,) = tracing.recent.records()
    assert record.owners == ["job/web-5f"]


def test_owner_that_is_known_later_is_resolved_once(make_tracing, manual_clock, pod):
    tracing = make_tracing(manual_clock)
    tracing.pods.observed(pod("a", owner="ReplicaSet"))
    (record,) = tracing.open_pods.all()
    top_owners: list[tuple[str, str] | None] = [None, ("CronJob", "nightly")]
    lookup = TopOwnerLookup(lambda namespace, job: top_owners.pop(0))
    lookup.add(record, OwnerReference(kind="Job", name="nightly-1", uid="u"))
    assert record.top_owner_kind == ""
    lookup.resolve()
    assert (record.top_owner_kind, record.top_owner_name) == ("CronJob", "nightly")
    lookup.resolve()
    assert top_owners == []


def test_default_top_owner_is_the_controller():
    assert controller_is_top_owner("shop", OwnerReference(kind="Job", name="a", uid="u")) == ("Job", "a")
