"""`kubeloop up`: output, exit codes and error messages."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat

import pytest

from support.processes.cli_processes import MIXED, ROOT, WEB, reserved_port, running_cluster, wait_until

SHARED = ROOT.parent / "shared" / "manifests"


def tree(trace: dict) -> dict[str, list[dict]]:
    """Return child spans by the parent's ID. Asserts that the spans are one tree with children within their parents."""
    spans = {span["spanId"]: span for span in trace["spans"]}
    assert len(spans) == len(trace["spans"])
    roots = [span for span in spans.values() if span["parentSpanId"] not in spans]
    assert len(roots) == 1, [span["name"] for span in roots]
    children: dict[str, list[dict]] = {}
    for span in spans.values():
        assert span["start"] <= span["end"]
        parent = spans.get(span["parentSpanId"])
        if parent is not None:
            assert parent["start"] <= span["start"]
            assert span["end"] <= parent["end"]
            children.setdefault(parent["spanId"], []).append(span)
    return children


def test_once_with_json_prints_one_document(kubeloop):
    result = kubeloop.run("up", "--once", "--json", "-f", WEB)
    assert result.returncode == 0, result.stderr
    import json

    document = json.loads(result.stdout)
    assert {item["name"]: item["available"] == item["replicas"] for item in document["deployments"]} == {"web": True}
    assert document["pods"]
    for pod in document["pods"]:
        assert pod["node"]
        assert pod["phase"] == "Running"
        assert pod["ready"] is True
        assert len(pod["traceId"]) == 32
        assert pod["createdToBoundSeconds"] > 0
    assert sum(node["pods"] for node in document["nodes"]) == len(document["pods"])
    assert len(document["nodes"]) == 5
    assert document["seconds"] > 0
    assert document["podsPerSecond"] > 0


def test_pod_trace_is_one_tree_from_creation_to_binding(web):
    kubeloop, _, kubectl = web
    pod = kubectl("get", "pods", "-o", "name").split()[0]
    trace = kubeloop.json("trace", pod, "--json")
    children = tree(trace)
    names = " ".join(span["name"] for span in trace["spans"])
    for part in ("create", "queue", "attempt", "filter", "score", "bind"):
        assert part in names
    assert len(trace["traceId"]) == 32
    assert children


def test_trace_prints_a_waterfall(web):
    kubeloop, _, _ = web
    result = kubeloop.run("trace", "deploy/web")
    assert result.returncode == 0, result.stderr
    assert "bind" in result.stdout
    assert "ms" in result.stdout


def test_online_boutique_becomes_available(kubeloop):
    manifest = SHARED / "online-boutique.yaml"
    if not manifest.exists():
        pytest.skip("no ../shared/manifests")
    document = kubeloop.json("up", "--once", "--json", "-f", manifest)
    assert len(document["deployments"]) == 12
    assert all(item["available"] == item["replicas"] for item in document["deployments"])


def test_unschedulable_pods_exit_with_1_and_the_reason(kubeloop):
    for seconds in (3, 15, 60):  # a slow machine needs longer until the first attempt
        result = kubeloop.run("up", "--once", "--timeout", seconds, "-f", MIXED)
        assert result.returncode == 1
        assert f"not complete after {seconds} s" in result.stderr
        if "nodes are available" in result.stderr:
            break
    assert "0/5 nodes are available" in result.stderr


def test_kubeconfig_is_private_and_deleted_at_exit(kubeloop, tmp_path):
    with kubeloop.running("up", "--nodes", "1") as up:
        path = up.wait_for(r"export KUBECONFIG=(\S+)").group(1)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert up.stop(signal.SIGINT) == 0
    assert not os.path.exists(path)


def is_refused(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_killed_process_leaves_no_cluster(kubeloop):
    with reserved_port() as port:
        with kubeloop.running("up", "--nodes", "1", "--port", port) as up:
            up.wait_for(rf"at https://127\.0\.0\.1:{port}")
            up.process.kill()
            up.process.wait()
            up.wait_for_end()
        # the API server notices that its parent is gone, and ends
        wait_until(lambda: is_refused(port), "the port to be closed")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(["up", "-f", "missing.yaml"], "cannot read missing.yaml", id="missing manifest"),
        pytest.param(["up", "--nodse", "3"], "No such option", id="unknown flag"),
        pytest.param(["up", "--nodes", "many"], "many", id="not a number"),
        pytest.param(["run", "--controllers", "deploymint"], "no controller named 'deploymint'", id="controller"),
        pytest.param(["run", "--kubeconfig", "missing"], "missing", id="missing kubeconfig"),
        pytest.param(["trace", "pod/x"], "no kubeloop process runs", id="no process"),
        pytest.param(["trace", "web"], "cannot trace 'web'", id="not a kind"),
        pytest.param(["nonsense"], "kubeloop has no command 'nonsense'", id="unknown command"),
    ],
)
def test_invalid_input_gives_one_line_and_no_traceback(kubeloop, arguments, problem):
    result = kubeloop.run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    error, *hint = result.stderr.strip().splitlines()
    assert error.startswith("error: ")
    assert problem in error
    assert all(line.startswith("  hint: ") for line in hint)


def test_refused_manifest_is_reported_with_the_server_message(kubeloop, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text(WEB.read_text().replace("replicas: ", "replicas: -"))
    result = kubeloop.run("up", "--once", "-f", bad)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert f"error: {bad}" in result.stderr
    assert "spec.replicas: Invalid value: -" in result.stderr


def test_refused_manifest_lists_the_objects_applied_before_it(kubeloop, tmp_path):
    files = tmp_path / "files.yaml"
    files.write_text(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n"
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: B}}\n"
    )
    result = kubeloop.run("up", "--once", "--nodes", "1", "-f", files)
    assert result.returncode == 2
    assert "\n  before it were applied:\n    configmap/a created\n  hint: " in result.stderr
    assert "--data-dir keeps objects for the next run" in result.stderr


def test_once_waits_for_a_pod_with_a_generated_name(kubeloop, tmp_path):
    pod = tmp_path / "pod.yaml"
    container = '{name: c, image: i, command: ["sh", "-c", "exit 3"]}'
    spec = f"{{restartPolicy: Never, containers: [{container}]}}"
    pod.write_text(f"{{apiVersion: v1, kind: Pod, metadata: {{generateName: task-}}, spec: {spec}}}")
    result = kubeloop.run("up", "--once", "--nodes", "1", "-f", pod)
    assert result.returncode == 1
    assert "exited with code 3" in result.stderr


def test_port_in_use_is_reported(kubeloop):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        result = kubeloop.run("up", "--once", "--port", port)
        assert result.returncode == 2
        assert result.stderr.startswith(f"error: port {port} is taken")
        result = kubeloop.run("up", "--once", "--nodes", "1", "--endpoint-port", port)
        assert result.returncode == 2
        assert f"cannot listen on 127.0.0.1 port {port}" in result.stderr
        assert "Traceback" not in result.stderr


def test_unreachable_server_is_reported(kubeloop, tmp_path):

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    path = tmp_path / "config"
    path.write_text(
        f"""
apiVersion: v1
kind: Config
clusters: [{{name: a, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: a, user: {{token: t}}}}]
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
current-context: a
"""
    )
    result = kubeloop.run("run", "--kubeconfig", path)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: the API server http://127.0.0.1:{port} does not respond")
    assert "Traceback" not in result.stderr


def test_health_metrics_and_configz_pages(web):
    import urllib.request

    _, up, _ = web
    url = up.wait_for(r"endpoint (http://\S+)").group(1)
    pages = {}
    for path in ("/healthz", "/livez", "/readyz", "/readyz?verbose", "/metrics", "/configz"):
        with urllib.request.urlopen(url + path) as response:
            pages[path] = response.read().decode()
    assert pages["/healthz"] == pages["/livez"] == pages["/readyz"] == "ok"
    assert "[+]informer-sync ok" in pages["/readyz?verbose"]
    assert 'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"}' in pages["/metrics"]
    assert 'workqueue_adds_total{name="deployment"}' in pages["/metrics"]
    assert "KubeSchedulerConfiguration" in pages["/configz"]


def test_feature_gates_apply_to_the_control_plane_and_the_api_server(kubeloop, tmp_path, needs_kubectl):
    import urllib.request

    with running_cluster(kubeloop, tmp_path, "--nodes=1", "--feature-gates=PodDeletionCost=false") as (up, kubectl):
        url = up.wait_for(r"endpoint (http://\S+)").group(1)
        with urllib.request.urlopen(f"{url}/metrics") as response:
            pages = (response.read().decode(), kubectl("get", "--raw", "/metrics"))
    for page in pages:
        assert re.search(
            r'^kubernetes_feature_enabled\{name="PodDeletionCost",stage="BETA"\} 0(\.0)?$', page, re.MULTILINE
        )


def test_two_clusters_run_concurrently(kubeloop, tmp_path):
    with (
        running_cluster(kubeloop, tmp_path, "-f", WEB) as (one, _),
        running_cluster(kubeloop, tmp_path, "-f", WEB) as (two, _),
    ):
        first = one.wait_for(r"export KUBECONFIG=(\S+)").group(1)
        second = two.wait_for(r"export KUBECONFIG=(\S+)").group(1)
        assert first != second


def test_present_state_is_shown_after_completion(kubeloop, tmp_path, needs_kubectl):
    with running_cluster(kubeloop, tmp_path, "-f", WEB) as (up, kubectl):
        kubectl("scale", "deployment", "web", "--replicas=7")
        up.wait_for(r"1/1 workloads complete; 7 pods: 7 bound, 7 ready \(Running 7\)")
