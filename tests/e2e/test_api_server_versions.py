"""`kubeloop run`, `observe` and `record` beside kube-apiserver of earlier minor versions.

KUBELOOP_APISERVERS names their binaries, separated by colons; etcd is that of KUBEBUILDER_ASSETS.
"""

from __future__ import annotations

import os
import subprocess

import pytest

from kubeloop.recording.reader import RecordingFile
from support.comparison.fake_kubelet import fake_kubelet, make_node
from support.comparison.real_apiserver import needs_binaries, real_apiserver
from support.comparison.scenario import deployment
from support.processes.cli_processes import Kubeloop, wait_until
from support.traces.otlp import Collector

BINARIES = list(filter(None, os.environ.get("KUBELOOP_APISERVERS", "").split(":")))
SKIP = pytest.mark.skip(reason="KUBELOOP_APISERVERS names no kube-apiserver")


@pytest.mark.parametrize("binary", BINARIES or [pytest.param("", marks=SKIP)])
def test_pods_are_created_scheduled_traced_and_recorded(binary, tmp_path, monkeypatch):
    needs_binaries()
    monkeypatch.setenv("TEST_ASSET_KUBE_APISERVER", binary)
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    for name in ("run", "observe", "record"):
        (tmp_path / name).mkdir()
    recording = tmp_path / "cluster.kubeloop"
    with (
        real_apiserver(tmp_path / "server") as server,
        fake_kubelet(server),
        Collector().running() as collector,
        Kubeloop(tmp_path / "run").running("run", f"--kubeconfig={server.kubeconfig}", "--controllers=*") as running,
        Kubeloop(tmp_path / "observe").running(
            "observe", f"--kubeconfig={server.kubeconfig}", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url
        ) as observing,
        Kubeloop(tmp_path / "record").running("record", f"--kubeconfig={server.kubeconfig}", recording) as recorder,
    ):
        assert server.request("GET", "/version")["gitVersion"] == version
        make_node(server, "node-0")
        running.wait_for("endpoint")
        observing.wait_for("endpoint")
        recorder.wait_for("Ctrl-C ends it")
        group = "/apis/apps/v1/namespaces/default"
        server.request("POST", f"{group}/deployments", deployment("web", 3))
        wait_until(
            lambda: server.request("GET", f"{group}/deployments/web").get("status", {}).get("availableReplicas") == 3,
            f"3 replicas are available on {version}",
        )
        job = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "app:exits-0"}]}
        jobs = "/apis/batch/v1/namespaces/default/jobs"
        server.request("POST", jobs, {"metadata": {"name": "once"}, "spec": {"template": {"spec": job}}})
        wait_until(
            lambda: server.request("GET", f"{jobs}/once").get("status", {}).get("succeeded") == 1,
            f"a Job is complete on {version}",
        )
        server.request("DELETE", f"{group}/deployments/web")
        wait_until(
            lambda: not server.request("GET", f"{group}/replicasets")["items"],
            f"the ReplicaSet is collected on {version}",
        )
        observed = lambda: [span for span in collector.spans() if "kubeloop.observed" in span.attributes]  # noqa: E731
        wait_until(lambda: len(observed()) == 4, "4 pods are traced")
        pod = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "99"}}}]}
        server.request("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "large"}, "spec": pod})
        user = Kubeloop(tmp_path)
        explained = user.run("explain", "pod/large", f"--kubeconfig={server.kubeconfig}")
        assert "Insufficient cpu" in explained.stdout, explained.stderr
        plan = user.run("plan", "--drain=node-0", f"--kubeconfig={server.kubeconfig}")
        assert "1 evicted" in plan.stdout, plan.stderr
        assert recorder.stop() == 0
        changes = [(it.type, it.resource, it.key) for it in RecordingFile(recording).changes()]
        assert len({key for type, resource, key in changes if (type, resource) == ("ADDED", "pods")}) == 5
        assert ("DELETED", "deployments.apps", "default/web") in changes
        plan = user.run("plan", "--drain=node-0", f"--cluster={recording}")
        assert "1 evicted" in plan.stdout, plan.stderr
    problems = [line for line in [*running.lines, *observing.lines, *recorder.lines] if "error" in line.lower()]
    assert not problems, version
