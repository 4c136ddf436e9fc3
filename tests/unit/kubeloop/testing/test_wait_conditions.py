"""What `wait_for` understands, how options are read, and the blocking form of a coroutine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeloop.kube.errors import UserError
from kubeloop.testing import memory_cluster, virtual_time
from kubeloop.testing.operations import WaitTimeout
from kubeloop.testing.options import ClusterOptions, Options, cluster_options
from kubeloop.testing.portal import Portal
from kubeloop.testing.virtual_time import VirtualClock
from kubeloop.testing.wait_conditions import parse_condition

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one", "generation": 2},
    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    "status": {
        "phase": "Running",
        "observedGeneration": 2,
        "conditions": [
            {"type": "Ready", "status": "True", "observedGeneration": 2},
            {"type": "Old", "status": "True", "observedGeneration": 1},
            {"type": "PodScheduled", "status": "False"},
        ],
    },
}


@pytest.mark.parametrize(
    ("condition", "of_the_pod", "of_none"),
    [
        pytest.param("Ready", True, False, id="a condition"),
        pytest.param("condition=ready", True, False, id="as kubectl writes it, in any case"),
        pytest.param("Ready=False", False, False, id="another status"),
        pytest.param("PodScheduled=False", True, False, id="a false one"),
        pytest.param("Old", False, False, id="of an older generation"),
        pytest.param("create", True, False, id="there"),
        pytest.param("delete", False, True, id="gone"),
        pytest.param("complete", True, False, id="a pod is complete when it is ready"),
        pytest.param("{.status.phase}=Running", True, False, id="a field"),
        pytest.param("jsonpath='{.status.phase}'=Pending", False, False, id="a field that differs"),
        pytest.param("{.spec.containers[0].image}=app:1", True, False, id="a field in a list"),
        pytest.param("{.status.podIP}", False, False, id="a field that is not there"),
        pytest.param(lambda pod: pod["status"]["phase"] == "Running", True, False, id="a function"),
        pytest.param(lambda pod: pod["status"]["podIP"], False, False, id="a function that finds no field"),
    ],
)
def test_a_condition_holds_or_not(condition: Any, of_the_pod: bool, of_none: bool):
    holds, _ = parse_condition(condition)
    assert holds(POD) is of_the_pod
    assert holds(None) is of_none


@pytest.mark.parametrize("text", ["", "is it ready?", "{.spec.containers[*].name}=a"])
def test_what_is_no_condition_is_refused(text: str):
    with pytest.raises(UserError):
        parse_condition(text)


def test_options_and_their_keywords_are_the_same():
    assert set(Options.__annotations__) == set(ClusterOptions.__struct_fields__)


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        pytest.param({"node": 3}, "a cluster has no option 'node'", id="unknown"),
        pytest.param({"nodes": "3"}, "nodes", id="not a number"),
        pytest.param({"nodes": -1}, "at least 0", id="too few"),
        pytest.param({"scheduler_config": "nowhere.yaml"}, "cannot read nowhere.yaml", id="no such file"),
    ],
)
def test_wrong_options_are_refused(wishes: Any, said: str):
    with pytest.raises(UserError, match=said):
        cluster_options(wishes)


def test_a_mark_changes_what_the_ini_file_says():
    defaults = cluster_options({"nodes": 5, "node_cpu": "2"})
    changed = cluster_options({"nodes": 1, "faults": {"error": 0.5, "seed": 3}}, defaults=defaults)
    assert (changed.nodes, changed.node_cpu, changed.faults) == (1, "2", "error=0.5,seed=3")


def test_stages_of_a_file_decide_on_the_pods_of_a_cluster(tmp_path: Path):
    stages = tmp_path / "stages.yaml"
    stages.write_text("""
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-succeeds}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions: [{key: .status.phase, operator: NotIn, values: [Succeeded]}]
  next:
    statusTemplate: |
      phase: Succeeded
""")

    async def story() -> None:
        async with memory_cluster(clock=VirtualClock(), nodes=1, stages=stages) as cluster:
            await cluster.apply(
                {key: POD[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "one"}}
            )
            await cluster.wait_for("pod/one", "{.status.phase}=Succeeded")

    virtual_time.run(story())


def test_a_wait_that_fails_says_what_there_is_and_why():
    async def story() -> str:
        async with memory_cluster(clock=VirtualClock(), nodes=2) as cluster:
            spec = POD["spec"] | {"nodeSelector": {"disk": "ssd"}}
            await cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec})
            with pytest.raises(WaitTimeout) as raised:
                await cluster.wait_for("po/one", "Ready", timeout=5)
            with pytest.raises(WaitTimeout, match="there is no pod two"):
                await cluster.wait_for("pods/two", "Ready", timeout=1)
            with pytest.raises(UserError, match="no resource 'widget'"):
                await cluster.wait_for("widget/one", "Ready")
            return str(raised.value)

    told = virtual_time.run(story())
    assert told.startswith("pod/one in default: not Ready after 5 s")
    assert "phase Pending" in told
    assert "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector" in told
    assert "event Warning FailedScheduling pod/one" in told


def test_without_a_scheduler_a_pending_pod_says_so():
    async def story() -> str:
        async with memory_cluster(clock=VirtualClock(), nodes=1, controllers="*,-scheduler") as cluster:
            await cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": POD["spec"]})
            with pytest.raises(WaitTimeout) as raised:
                await cluster.wait_for("pod/one", "Ready", timeout=5)
            return str(raised.value)

    assert "there is no scheduler" in virtual_time.run(story())


def test_a_portal_gives_results_raises_errors_and_ends():
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    async def failing() -> None:
        raise ZeroDivisionError

    portal = Portal()
    assert portal.wait(double(4)) == 8
    assert asyncio.run(portal.wait_async(double(5))) == 10
    with pytest.raises(ZeroDivisionError):
        portal.wait(failing())
    forever = portal.start(asyncio.sleep(3600))
    portal.close()
    assert forever.cancelled()
    portal.close()
