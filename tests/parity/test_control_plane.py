"""The same scenario under kube-controller-manager with kube-scheduler, and under kubeloop: nobody can tell them apart.

Both run on a real kube-apiserver of their own. Beside kubeloop, kube-controller-manager keeps its other controllers
(quotas, volumes, the garbage collector), as README describes it.
"""

from __future__ import annotations

import difflib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.cli_processes import Kubeloop
from support.fake_kubelet import fake_kubelet
from support.real_apiserver import needs_binaries, real_apiserver
from support.scenario import ClusterState, run_scenario

OURS = "deployment,replicaset,replicationcontroller"
LEFT_OUT = "-node-lifecycle-controller"  # the nodes here have no heartbeats


def under_kubernetes(folder: Path) -> dict[str, ClusterState]:
    with real_apiserver(folder) as server, fake_kubelet(server):
        server.start_component("kube-controller-manager", f"--controllers=*,{LEFT_OUT}", "--leader-elect=false")
        server.start_component("kube-scheduler", "--leader-elect=false")
        return dict(run_scenario(server))


def under_kubeloop(folder: Path) -> dict[str, ClusterState]:
    with real_apiserver(folder) as server, fake_kubelet(server):
        left_out = ",".join([LEFT_OUT, *(f"-{name}-controller" for name in OURS.split(","))])
        server.start_component("kube-controller-manager", f"--controllers=*,{left_out}", "--leader-elect=false")
        running = Kubeloop(folder).running(
            "run", f"--kubeconfig={server.kubeconfig}", f"--controllers={OURS},scheduler", "--trace-journal="
        )
        with running:
            return dict(run_scenario(server))


def test_kubeloop_comes_to_the_same_scenes_as_kubernetes(tmp_path):
    needs_binaries("kube-controller-manager", "kube-scheduler")
    with ThreadPoolExecutor(2) as both:
        kubernetes = both.submit(under_kubernetes, tmp_path / "kubernetes")
        kubeloop = both.submit(under_kubeloop, tmp_path / "kubeloop")
        theirs, ours = kubernetes.result(), kubeloop.result()
    differences = {
        act: list(difflib.unified_diff(_lines(theirs[act]), _lines(ours[act]), "Kubernetes", "kubeloop", n=2))
        for act in theirs
    }
    for name, scenes in (("kubernetes", theirs), ("kubeloop", ours)):  # to look at, after a failure
        (tmp_path / f"{name}.json").write_text(json.dumps(scenes, indent=1, sort_keys=True))
    told = "\n\n".join(f"{act}:\n" + "\n".join(lines) for act, lines in differences.items() if lines)
    assert not told, told[:20_000]


def _lines(scene: ClusterState) -> list[str]:
    return json.dumps(scene, indent=1, sort_keys=True).splitlines()
