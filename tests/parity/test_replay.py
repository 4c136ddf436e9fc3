"""Workloads on a real API server with kube-controller-manager and kube-scheduler are recorded and replayed.

Placements are compared where kube-scheduler had no choice by chance: its log has the scores of all nodes of an attempt,
and it chooses at random among those with the highest one. Of two pods of one controller either may be deleted first:
placements are those of a workload's pods in any order. Skipped if the binaries are not installed.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from kubeloop.recording.reader import RecordingFile
from kubeloop.replay.measurement import PodRun
from kubeloop.replay.replay import ReplayResult, measure_recording, replay, replay_options
from kubeloop.replay.user_actions import read_file
from support.comparison.fake_kubelet import fake_kubelet
from support.comparison.real_apiserver import needs_binaries, real_apiserver
from support.comparison.recorded_workloads import WORKLOADS, prepare_cluster, run_workloads, volume_provisioner
from support.processes.cli_processes import Kubeloop, wait_until

RESOLUTION_SECONDS = 0.2
CHECK_SECONDS = 1.0  # kube-scheduler checks this often whether volumes are bound, and whether a backoff has ended
CHECKED = ("preemption", "zonal-volumes", "volume-limits", "local-volumes")  # workloads whose pods wait for such checks
_ATTEMPT = re.compile(r'"Attempting to schedule pod" pod="(?P<pod>[^"]+)"')
_SCORE = re.compile(r'"Calculated node\'s final score for pod" pod="(?P<pod>[^"]+)" node="[^"]+" score=(?P<score>\d+)')


class Truth:
    """A recording and its replay.

    by_chance: keys of pods with several best nodes. delay: seconds that requests take on this machine: the time to bind
    that 95 % of the pods do not exceed that have waited for nothing.
    """

    def __init__(self, path: Path, scheduler_log: str) -> None:
        recording = RecordingFile(path)
        day = read_file(recording)
        self.findings = [*day.findings]
        self.recorded = measure_recording(recording, day)
        self.replayed = replay(day, "replay", replay_options("", seed=0))
        self.by_chance = pods_with_equal_scores(scheduler_log)
        runs = self.recorded.measurement.runs.values()
        at_once = sorted(it.bound - it.created for it in runs if it.bound is not None and not it.waits)
        self.delay = at_once[len(at_once) * 95 // 100]


def pods_with_equal_scores(log: str) -> set[str]:
    """Return the pods for which several nodes had the highest score in the last attempt."""
    scores: dict[str, list[int]] = {}
    for line in log.splitlines():
        if match := _ATTEMPT.search(line):
            scores[match["pod"]] = []
        elif match := _SCORE.search(line):
            scores[match["pod"]].append(int(match["score"]))
    return {pod for pod, values in scores.items() if values and values.count(max(values)) > 1}


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    needs_binaries("kube-controller-manager", "kube-scheduler")
    folder: Path = tmp_path_factory.mktemp("replay")
    path = folder / "day.kubeloop"
    with (
        real_apiserver(folder / "server") as server,
        fake_kubelet(server, heartbeats=True) as lost_nodes,
        volume_provisioner(server),
    ):
        prepare_cluster(server)
        server.start_component("kube-controller-manager", "--leader-elect=false")
        server.start_component("kube-scheduler", "--leader-elect=false", "-v=10")
        wait_until(lambda: "Caches are synced" in server.log("kube-scheduler"), "kube-scheduler is ready")
        with Kubeloop(folder).running("record", path, f"--kubeconfig={server.kubeconfig}") as recorder:
            recorder.wait_for("recording")
            run_workloads(server, lost_nodes)
        return Truth(path, server.log("kube-scheduler"))


def pods_of(result: ReplayResult, namespace: str) -> dict[str, list[PodRun]]:
    """Return the pods by workload."""
    pods: dict[str, list[PodRun]] = {}
    for pod in result.measurement.runs.values():
        if pod.key.startswith(f"{namespace}/"):
            pods.setdefault(pod.workload, []).append(pod)
    return pods


@pytest.mark.parametrize("name", WORKLOADS)
def test_placements_are_those_of_kube_scheduler(truth: Truth, name: str):
    recorded, replayed = pods_of(truth.recorded, name), pods_of(truth.replayed, name)
    assert recorded
    assert replayed.keys() == recorded.keys()
    for workload, pods in recorded.items():
        assert len(replayed[workload]) == len(pods), workload
        # a later placement depends on those before it
        first_by_chance = next((index for index, pod in enumerate(pods) if pod.key in truth.by_chance), len(pods))
        nodes = [Counter(pod.node for pod in runs[:first_by_chance]) for runs in (replayed[workload], pods)]
        assert nodes[0] == nodes[1], workload


def test_most_placements_are_not_by_chance(truth: Truth):
    pods = [pod for pod in truth.recorded.measurement.runs.values() if pod.bound is not None]
    assert len(pods) > 120
    assert sum(pod.key in truth.by_chance for pod in pods) < len(pods) / 10


@pytest.mark.parametrize("name", WORKLOADS)
def test_times_to_bind_agree_within_the_resolution(truth: Truth, name: str):
    recorded, replayed = pods_of(truth.recorded, name), pods_of(truth.replayed, name)
    for workload, pods in recorded.items():
        # of pods that wait for room, the time of the binding agrees: on a slow machine, they are created late
        by_time = (
            sorted(abs(one - other) for one, other in zip(of(replayed[workload]), of(pods), strict=True))
            for of in (times_to_bind, times_of_binding)
        )
        differences = min(by_time, key=max)
        median = differences[len(differences) // 2]
        assert name in CHECKED or median < RESOLUTION_SECONDS + truth.delay, (workload, differences, truth.delay)
        # a volume takes several requests of controllers and scheduler
        most = (CHECK_SECONDS if name in CHECKED else RESOLUTION_SECONDS) + 4 * truth.delay
        assert differences[-1] < most, (workload, differences, truth.delay)


def times_to_bind(pods: list[PodRun]) -> list[float]:
    return sorted(-1.0 if pod.bound is None else pod.bound - pod.created for pod in pods)


def times_of_binding(pods: list[PodRun]) -> list[float]:
    return sorted(-1.0 if pod.bound is None else pod.bound for pod in pods)


@pytest.mark.parametrize("name", WORKLOADS)
def test_preemptions_and_evictions_are_those_of_the_recording(truth: Truth, name: str):
    recorded, replayed = (
        {workload: Counter(pod.disruption for pod in pods) for workload, pods in pods_of(result, name).items()}
        for result in (truth.recorded, truth.replayed)
    )
    assert replayed == recorded


def test_nothing_is_left_out_or_refused(truth: Truth):
    assert truth.findings == []
    assert truth.replayed.findings == []


def test_recording_has_what_the_workloads_are_about(truth: Truth):
    runs = truth.recorded.measurement.runs.values()
    disruptions = Counter((pod.workload.partition(" ")[2], pod.disruption) for pod in runs if pod.disruption)
    assert disruptions["preemption/low", "PreemptionByScheduler"] == 2
    assert disruptions["drain/web", "EvictionByEvictionAPI"] >= 1
    assert disruptions["node-loss/web", "DeletionByTaintManager"] >= 1
    assert disruptions["taint/patient", "DeletionByTaintManager"] == 1
