"""The same scenario under kube-controller-manager with kube-scheduler and under kubeloop: the same objects.

Each control plane runs on its own kube-apiserver. With kubeloop, kube-controller-manager runs the remaining controllers
(quotas, volumes, garbage collector), as described in README.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.comparison.daemon_set_scenario import DAEMON_SET_STEPS
from support.comparison.fake_kubelet import fake_kubelet
from support.comparison.real_apiserver import needs_binaries, real_apiserver
from support.comparison.scenario import STEPS, ClusterState, Step, run_scenario
from support.comparison.stateful_set_scenario import STATEFUL_SET_STEPS
from support.processes.cli_processes import Kubeloop

SCENARIOS = {
    "deployment,replicaset,replicationcontroller": STEPS,
    "daemonset": DAEMON_SET_STEPS,
    "statefulset": STATEFUL_SET_STEPS,
}
"""Steps by the controllers that kubeloop runs."""

DISABLED_CONTROLLER = "-node-lifecycle-controller"  # the simulated nodes send no heartbeats


WITHOUT_LOST_TIMERS = "--feature-gates=StaleControllerConsistencyDaemonSet=false"
"""In v1.36, the retry of a sync with stale caches replaces the timer of the same DaemonSet that is set for the end of
minReadySeconds: a work queue has one time per key. Its rollout then stands still until the next event."""


def run_kubernetes(folder: Path, steps: Sequence[Step]) -> dict[str, ClusterState]:
    with real_apiserver(folder) as server, fake_kubelet(server):
        controllers = f"--controllers=*,{DISABLED_CONTROLLER}"
        server.start_component("kube-controller-manager", controllers, "--leader-elect=false", WITHOUT_LOST_TIMERS)
        server.start_component("kube-scheduler", "--leader-elect=false")
        return dict(run_scenario(server, steps))


def run_kubeloop(folder: Path, steps: Sequence[Step], controllers: str) -> dict[str, ClusterState]:
    with real_apiserver(folder) as server, fake_kubelet(server):
        disabled = ",".join([DISABLED_CONTROLLER, *(f"-{name}-controller" for name in controllers.split(","))])
        server.start_component("kube-controller-manager", f"--controllers=*,{disabled}", "--leader-elect=false")
        running = Kubeloop(folder).running(
            "run", f"--kubeconfig={server.kubeconfig}", f"--controllers={controllers},scheduler", "--trace-journal="
        )
        with running:
            return dict(run_scenario(server, steps))


@pytest.mark.parametrize("controllers", SCENARIOS)
def test_scenario_states_match_kubernetes(tmp_path, controllers):
    steps = SCENARIOS[controllers]
    needs_binaries("kube-controller-manager", "kube-scheduler")
    with ThreadPoolExecutor(2) as executor:
        kubernetes = executor.submit(run_kubernetes, tmp_path / "kubernetes", steps)
        kubeloop = executor.submit(run_kubeloop, tmp_path / "kubeloop", steps, controllers)
        real, ours = kubernetes.result(), kubeloop.result()
    differences = {
        step: list(difflib.unified_diff(_lines(real[step]), _lines(ours[step]), "Kubernetes", "kubeloop", n=2))
        for step in real
    }
    for name, states in (("kubernetes", real), ("kubeloop", ours)):  # for inspection after a failure
        (tmp_path / f"{name}.json").write_text(json.dumps(states, indent=1, sort_keys=True))
    report = "\n\n".join(f"{step}:\n" + "\n".join(lines) for step, lines in differences.items() if lines)
    assert not report, report[:20_000]


def _lines(state: ClusterState) -> list[str]:
    return json.dumps(state, indent=1, sort_keys=True).splitlines()
