"""Failed waits, and KWOK stages, on a cluster in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.testing import memory_cluster, virtual_time
from kubeloop.testing.operations import ServerWarning, WaitFailed, WaitTimeout
from kubeloop.testing.virtual_time import VirtualClock
from support.objects.manifests import OBSERVED_POD

POD = OBSERVED_POD


def test_stages_simulate_the_pods_of_a_cluster(tmp_path: Path):
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

    async def scenario() -> None:
        async with memory_cluster(clock=VirtualClock(), nodes=1, stages=stages) as cluster:
            await cluster.apply(
                {key: POD[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "one"}}
            )
            await cluster.wait_for("pod/one", "{.status.phase}=Succeeded")

    virtual_time.run(scenario())


def test_wait_timeout_has_state_and_reasons():
    async def scenario() -> str:
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

    raised = virtual_time.run(scenario())
    assert raised.startswith("pod/one in default: not Ready after 5 s")
    assert "phase Pending" in raised
    assert "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector" in raised
    assert "event Warning FailedScheduling pod/one" in raised


def test_wait_timeout_without_a_scheduler_states_that():
    async def scenario() -> str:
        async with memory_cluster(clock=VirtualClock(), nodes=1, controllers="*,-scheduler") as cluster:
            await cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": POD["spec"]})
            with pytest.raises(WaitTimeout) as raised:
                await cluster.wait_for("pod/one", "Ready", timeout=5)
            return str(raised.value)

    assert "there is no scheduler" in virtual_time.run(scenario())


def test_wait_for_a_failed_job_ends_at_once_with_its_pods():
    async def scenario() -> tuple[str, float]:
        clock = VirtualClock()
        async with memory_cluster(clock=clock, nodes=1) as cluster:
            template = {
                "metadata": {"annotations": {"kubeloop.dev/exit-code": "3"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]},
            }
            spec = {"backoffLimit": 0, "template": template}
            await cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "load"}, "spec": spec})
            started_at = clock.now()
            with pytest.raises(WaitFailed) as raised:
                await cluster.wait_for("job/load", "complete", timeout=3600)
            return str(raised.value), (clock.now() - started_at).total_seconds()

    message, seconds = virtual_time.run(scenario())
    first, *reasons = message.split("\n  ")
    reason = "BackoffLimitExceeded: Job has reached the specified backoff limit"
    assert first == f"job.batch/load in default: will not be complete: it is Failed: {reason}"
    assert any(line.endswith("failed: container main exited with code 3") for line in reasons)
    assert f"condition Failed=True ({reason})" in reasons
    assert seconds < 60


def test_wait_for_a_failed_pod_ends_at_once():
    async def scenario() -> str:
        async with memory_cluster(clock=VirtualClock(), nodes=1) as cluster:
            metadata = {"name": "one", "annotations": {"kubeloop.dev/exit-code": "1"}}
            spec = POD["spec"] | {"restartPolicy": "Never"}
            await cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
            with pytest.raises(WaitFailed) as raised:
                await cluster.wait_for("pod/one", "{.status.phase}=Succeeded")
            return str(raised.value)

    assert virtual_time.run(scenario()).startswith(
        "pod/one in default: will not be {.status.phase}=Succeeded: it has failed: container main exited with code 1"
    )


def test_apply_takes_sequences_and_emits_the_warnings_of_the_server():
    def pod(name: str, **annotations: str) -> dict:
        metadata = {"name": name, "annotations": annotations}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": POD["spec"]}

    async def scenario() -> list[str]:
        async with memory_cluster(clock=VirtualClock(), nodes=1) as cluster:
            old = pod("two", **{"seccomp.security.alpha.kubernetes.io/pod": "runtime/default"})
            with pytest.warns(ServerWarning, match="seccomp"):
                lines = await cluster.apply([pod("one"), old], (pod("three"),))
            with pytest.raises(UserError, match="cannot apply a int"):
                await cluster.apply([1])
            with pytest.raises(UserError, match=r"an object of the test: metadata\.name not set"):
                await cluster.apply({"apiVersion": "v1", "kind": "Pod"})
            return lines

    assert virtual_time.run(scenario()) == [f"pod/{name} created" for name in ("one", "two", "three")]
