"""Workloads run by kube-controller-manager and kube-scheduler are recorded and replayed: same placements and times.

Each workload leaves the scheduler no choice by chance. Skipped if the binaries are not installed.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeloop.recording.reader import RecordingFile
from kubeloop.replay.measurement import PodRun
from kubeloop.replay.replay import ReplayResult, measure_recording, replay, replay_options
from kubeloop.replay.user_actions import read_file
from support.comparison.go_components import COMPONENTS, GoComponents
from support.comparison.real_apiserver import why_missing
from support.processes.cli_processes import TIMEOUT_SECONDS, Kubectl, Kubeloop

JSON = dict[str, Any]
NODES = 6
RESOLUTION_SECONDS = 2.0  # kube-scheduler retries a pod after a backoff of a second and more


def _deployment(name: str, replicas: int, pod: JSON, *, image: str = "app:1") -> JSON:
    container = {"name": "c", "image": image, "resources": {"requests": pod.pop("requests", {})}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **pod}},
        },
    }


def _apart(name: str) -> JSON:
    term = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _on(node: int) -> JSON:
    return {"nodeSelector": {"kubernetes.io/hostname": f"node-{node}"}}


def _job() -> JSON:
    container = {"name": "c", "image": "job:1"}
    template = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container], **_on(5)}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "namespace": "default"},
        "spec": {"completions": 6, "parallelism": 2, "template": template},
    }


def _priority_class() -> JSON:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1000,
    }


def _stateful_set() -> JSON:
    pod = {"containers": [{"name": "c", "image": "db:1"}], **_on(4)}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {
            "replicas": 3,
            "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": pod},
        },
    }


class _Users:
    """The users of the recorded cluster."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl

    def apply(self, *objects: JSON) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        self._kubectl("apply", "-f", "-", stdin=msgspec.json.encode(items).decode())

    def wait_for_phases(self, selector: str, **phases: int) -> None:
        """Wait until the pods of a selector have these phases; a pod without a node counts as Pending."""
        end = time.monotonic() + TIMEOUT_SECONDS
        while True:
            pods = self._kubectl.json("get", "pods", "-l", selector)["items"]
            found = Counter(pod["status"]["phase"] for pod in pods if "deletionTimestamp" not in pod["metadata"])
            if found == phases:
                return
            assert time.monotonic() < end, (selector, found, phases)
            time.sleep(0.3)

    def wait_for_components(self) -> None:
        """Wait until controllers and scheduler lead."""
        self.apply(_deployment("first", 1, {}))
        self.wait_for_phases("app=first", Running=1)
        self._kubectl("delete", "deployment", "first", "--cascade=foreground")
        self.wait_for_phases("app=first")

    def act(self) -> None:
        self.apply(_deployment("apart", NODES, _apart("apart")))
        self.wait_for_phases("app=apart", Running=NODES)
        self.apply(_deployment("apart", NODES, _apart("apart"), image="app:2"))
        self.apply(_job(), _stateful_set(), _priority_class())
        self._kubectl("rollout", "status", "deployment/apart", "--timeout=60s")
        self._kubectl("rollout", "status", "statefulset/db", "--timeout=60s")
        self._kubectl("wait", "--for=condition=complete", "job/job", "--timeout=60s")
        self.apply(_deployment("low", 4, {"requests": {"cpu": "2"}, **_on(0)}))  # a node has 8 CPUs
        self.wait_for_phases("app=low", Running=4)
        self.apply(_deployment("high", 1, {"requests": {"cpu": "4"}, "priorityClassName": "high", **_on(0)}))
        self.wait_for_phases("app=high", Running=1)
        self.wait_for_phases("app=low", Running=2, Pending=2)
        self._kubectl("scale", "deployment/high", "--replicas=0")
        self.wait_for_phases("app=low", Running=4)
        self._kubectl("drain", "node-3", "--ignore-daemonsets", "--timeout=60s")
        self.wait_for_phases("app=apart", Running=NODES - 1, Pending=1)
        time.sleep(2.0)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReplayResult, ReplayResult]:
    """Return the measurements of the recording and of its replay."""
    if (reason := why_missing(*COMPONENTS)) is not None:
        pytest.skip(reason)
    folder: Path = tmp_path_factory.mktemp("replay")
    kubeconfig, path = folder / "kubeconfig", folder / "day.kubeloop"
    command = Kubeloop(folder)
    with command.running("apiserver", f"--nodes={NODES}", f"--kubeconfig={kubeconfig}") as server:
        server.wait_for("export KUBECONFIG")
        components = GoComponents(folder, str(kubeconfig))
        try:
            users = _Users(Kubectl(str(kubeconfig), folder))
            users.wait_for_components()
            with command.running("record", path, f"--kubeconfig={kubeconfig}") as recorder:
                recorder.wait_for("recording")
                users.act()
        finally:
            components.kill()
    recording = RecordingFile(path)
    day = read_file(recording)
    assert recording.findings == []
    return measure_recording(recording, day), replay(day, "replay", replay_options("", seed=0))


def _pods(result: ReplayResult, workload: str) -> list[PodRun]:
    return [pod for pod in result.measurement.runs.values() if pod.workload == workload]


WORKLOADS = (
    "deployment default/apart",
    "job default/job",
    "statefulset default/db",
    "deployment default/low",
    "deployment default/high",
)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_placements_are_those_of_kube_scheduler(
    results: tuple[ReplayResult, ReplayResult], workload: str, needs_kubectl: None
):
    recorded, replayed = (Counter(pod.node for pod in _pods(result, workload)) for result in results)
    assert recorded
    assert replayed == recorded


@pytest.mark.parametrize("workload", WORKLOADS)
def test_times_are_those_of_the_recording(
    results: tuple[ReplayResult, ReplayResult], workload: str, needs_kubectl: None
):
    for name in ("created", "bound"):
        recorded, replayed = (
            sorted(getattr(pod, name) for pod in _pods(result, workload) if getattr(pod, name) is not None)
            for result in results
        )
        assert replayed == pytest.approx(recorded, abs=RESOLUTION_SECONDS), name


def test_preemptions_and_evictions_are_those_of_the_recording(
    results: tuple[ReplayResult, ReplayResult], needs_kubectl: None
):
    recorded, replayed = (
        Counter((pod.workload, pod.disruption) for pod in result.measurement.runs.values() if pod.disruption)
        for result in results
    )
    assert replayed == recorded
    assert recorded["deployment default/low", "PreemptionByScheduler"] == 2
    assert recorded["deployment default/apart", "EvictionByEvictionAPI"] == 1


def test_no_request_of_users_is_refused(results: tuple[ReplayResult, ReplayResult], needs_kubectl: None):
    assert results[1].findings == []
