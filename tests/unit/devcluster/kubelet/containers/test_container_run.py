"""Containers of a pod that is not started."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.kubelet.containers.container_run import ContainerRun, container_runs, ephemeral_runs

JSON = dict[str, Any]


def pod(**spec: Any) -> JSON:
    return {"spec": {"containers": [{"name": "web", "image": "nginx"}], **spec}}


def test_container_runs_have_roles_and_waiting_reasons():
    inits = [{"name": "migrate"}, {"name": "proxy", "restartPolicy": "Always"}]
    runs = container_runs(pod(initContainers=inits))
    assert [(run.name, run.role, run.reason) for run in runs] == [
        ("migrate", "init", "PodInitializing"),
        ("proxy", "sidecar", "PodInitializing"),
        ("web", "main", "PodInitializing"),
    ]
    assert [run.reason for run in container_runs(pod())] == ["ContainerCreating"]


def test_ephemeral_runs_are_those_that_are_not_known():
    spec = {"ephemeralContainers": [{"name": "first"}, {"name": "second"}]}
    first, second = ephemeral_runs(spec, ())
    assert (first.role, second.role) == ("ephemeral", "ephemeral")
    assert ephemeral_runs(spec, [first]) == [second]
    assert container_runs(pod(**spec))[1:] == [first, second]


def test_end_clears_what_is_due():
    run = ContainerRun("web", "nginx", "main", state="running", ready=True, started=True, exit_at=5.0, killed_at=7.0)
    run.end("2026-01-01T00:00:10Z", 0)
    assert (run.state, run.ready, run.started, run.exit_at) == ("terminated", False, False, None)
    assert run.killed_at == float("inf")
    assert run.has_succeeded
    run.end("2026-01-01T00:00:10Z", 1)
    assert not run.has_succeeded
