"""Pods, workloads and nodes that `kubeloop top` reads from a process, with scripted responses."""

from __future__ import annotations

import pytest

from kubeloop.cli import endpoint_client
from kubeloop.cli.top.source import TopSource
from kubeloop.kube.user_error import UserError
from support.traces.trace_documents import rendered

POD = {
    "containers": [
        {"name": "migrate", "state": "terminated", "ready": False, "restarts": 0, "reason": "Completed"},
        {"name": "app", "state": "waiting", "ready": False, "restarts": 7, "reason": "CrashLoopBackOff: \x1b[31m"},
    ],
    "conditions": [
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "NotReady"}
    ],
    "events": [{"time": "2026-01-01T12:34:56Z", "reason": "BackOff", "message": "restarting failed container"}],
    "eventsProblem": "",
}


@pytest.fixture
def responses(monkeypatch):
    """Responses by path: a value, or a function of the query."""
    responses = {}

    def get_json(path, query, **options):
        response = responses[path]
        return response(query) if callable(response) else response

    monkeypatch.setattr(endpoint_client, "get_json", get_json)
    return responses


def test_description_has_containers_conditions_and_events(responses):
    responses["/debug/objects/pod"] = POD
    text = rendered(TopSource(None, "").describe("shop", "web-1"), 80)
    assert "CrashLoopBackOff: ^[[31m" in text
    assert "NotReady" in text
    assert "12:34:56" in text
    responses["/debug/objects/pod"] = POD | {"eventsProblem": "forbidden"}
    assert "no events: forbidden" in rendered(TopSource(None, "").describe("shop", "web-1"), 80)


def test_log_of_one_container_does_not_hide_that_of_another(responses):
    def log(query):
        if query["container"] == "app":
            raise UserError("container app is waiting to start", hint="")
        return {"log": "migrated\n"}

    responses |= {"/debug/objects/pod": POD, "/debug/objects/logs": log}
    lines = rendered(TopSource(None, "").log("shop", "web-1"), 80).splitlines()
    assert [line.strip() for line in lines if line.strip()] == [
        "migrate:", "migrated", "app:", "container app is waiting to start",
    ]  # fmt: skip


def test_poll_reads_pods_and_requested_nodes(responses):
    response = {"cursor": "a-1", "reset": True, "more": False, "lines": [], "removed": [], "nowUs": 5, "pods": 0}
    responses |= {"/debug/traces/lines": response, "/debug/objects/nodes": [{"name": "n1"}]}
    source = TopSource(None, "shop")
    assert source.poll(with_nodes=False) == ([], [], 5)
    assert source.poll(with_nodes=True) == ([], [{"name": "n1"}], 5)
    with source._polling:
        assert source.poll(with_nodes=True) is None
