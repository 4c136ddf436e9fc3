"""Traces as Chrome trace events."""

from __future__ import annotations

import json

import pytest

from kubeloop.tracing.views.perfetto import to_perfetto
from support.traces.trace_documents import apply_document, document


def test_pods_have_tracks_with_nested_slices(traces_of_rollout):
    perfetto = json.loads(json.dumps(to_perfetto(traces_of_rollout)))
    events = perfetto["traceEvents"]
    assert perfetto["otherData"]["startTimeUnixNano"] == str(
        min(document["spans"][0]["start"] for document in traces_of_rollout)
    )
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(processes.values()) == ["reconcile replicaset", "shop deployment/web"]
    assert sorted(threads.values()) == ["shop/web-5f", "web-5f-a", "web-5f-b"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == sum(len(document["spans"]) for document in traces_of_rollout)
    assert {event["ph"] for event in events} == {"M", "X", "i"}
    assert [event["name"] for event in events if event["ph"] == "i"] == ["rejected"]
    for track in threads:
        stack = []
        ours = [event for event in slices if (event["pid"], event["tid"]) == track]
        assert ours
        for event in ours:
            begin, end = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)
            assert begin >= 0
            while stack and stack[-1] <= begin:
                stack.pop()
            assert not stack or end <= stack[-1], event
            stack.append(end)
    filters = [event for event in slices if event["name"] == "filter"]
    assert {event["args"].get("kubeloop.rejected.NodeAffinity") for event in filters} == {None, 3}
    attempt = next(event for event in slices if event["name"].startswith("scheduling") and "error" in event["args"])
    assert attempt["dur"] == pytest.approx(123.456)


def test_pod_group_has_a_track_of_its_own(traced_group):
    events = to_perfetto(traced_group)["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M" and event["name"].endswith("_name")}
    assert names == {"shop job/web-5f", "train-0", "train-1", "shop pod groups", "train"}
    assert "group attempt 1" in [event["name"] for event in events]


def test_no_traces_give_no_events():
    assert to_perfetto([])["traceEvents"] == []


@pytest.mark.parametrize("namespace", ["shop", ""])
def test_names_of_processes_have_no_space_around_them(namespace):
    documents = [apply_document(namespace=namespace), document(k8s__namespace__name=namespace)]
    events = to_perfetto(documents)["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] in ("process_name", "thread_name")]
    pods = "pods without an owner"
    assert sorted(names) == sorted(
        ["apply", "apply of 1 object", f"{namespace} {pods}" if namespace else pods, "web-1"]
    )
