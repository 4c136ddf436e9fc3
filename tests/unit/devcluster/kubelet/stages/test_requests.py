"""Requests of stages that wait for an expensive policy."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kubeloop.cel.program import CelProgram, EvaluationResult
from kubeloop.devcluster.kubelet.nodes.simulated_nodes import SimulatedNodes
from kubeloop.devcluster.kubelet.stages.objects import ObjectStages
from kubeloop.devcluster.kubelet.stages.requests import StageRequests
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.kube.clock import SystemClock
from support.apiserver.api_requests import InProcessApi
from support.objects.stages import stage_text

JSON = dict[str, Any]
NAMESPACE = "/api/v1/namespaces/default"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
EXPENSIVE = "lists.range(200).all(x, lists.range(200).all(y, x != y || x == y))"
STEPS = """
  selector: {matchExpressions: [{key: .metadata.labels.done, operator: DoesNotExist}]}
  steps:
  - apply:
      template: |
        apiVersion: v1
        kind: Secret
        metadata: {name: applied}
  - patch: {root: metadata, template: "labels: {done: 'true'}"}
"""


def create_expensive_policy(api: InProcessApi) -> None:
    """Create a policy of Secrets that is too expensive for the event loop."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": EXPENSIVE}]}
    binding = {"policyName": "p", "validationActions": ["Deny"]}
    api.create(f"{POLICIES}ies", {"metadata": {"name": "p"}, "spec": spec})
    api.create(f"{POLICIES}ybindings", {"metadata": {"name": "p"}, "spec": binding})


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the set to which each complete run of an expensive expression adds "loop" or "background"."""
    names: set[str] = set()
    run = CelProgram.run

    def recording_run(program: CelProgram, *arguments: Any) -> EvaluationResult:
        result = run(program, *arguments)
        if not result.error and result.cost > 100_000:
            names.add("loop" if threading.current_thread() is threading.main_thread() else "background")
        return result

    monkeypatch.setattr(CelProgram, "run", recording_run)
    return names


@pytest.mark.parametrize("kind", ["ConfigMap", "Pod"])
async def test_stage_continues_after_an_expensive_policy(
    kind: str, read_stage_texts: Callable[..., Any], threads: set[str]
) -> None:
    api, clock, rng = InProcessApi(), SystemClock(), random.Random(1)
    create_expensive_policy(api)
    requests = StageRequests(api.server.handle_in_process, None)
    stages = read_stage_texts(stage_text(kind=kind, spec=STEPS))
    runner: ObjectStages | SimulatedNodes
    if kind == "Pod":
        settings = NodeSettings(count=1)
        runner = SimulatedNodes(api.server.store, settings, clock=clock, rng=rng, stages=stages, requests=requests)
        spec = {"nodeName": settings.name(0), "containers": [{"name": "c", "image": "i"}]}
        path, obj = f"{NAMESPACE}/pods", {"metadata": {"name": "a"}, "spec": spec}
    else:
        runner = ObjectStages(stages, requests, api.server.store, clock=clock, rng=rng)
        path, obj = f"{NAMESPACE}/configmaps", {"metadata": {"name": "a"}}
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(runner.run())
        api.create(path, obj)
        async with asyncio.timeout(60):
            while "done" not in api.succeed("GET", f"{path}/a")["metadata"].get("labels", {}):
                await asyncio.sleep(0.01)
        running.cancel()
    assert threads == {"background"}
    assert api("GET", f"{NAMESPACE}/secrets/applied")[0] == 200
