"""`kubeloop up`, as a new user would try it."""

from __future__ import annotations

import os
import signal
import socket
import stat

import pytest

from support.cli_processes import MIXED, ROOT, WEB, reserved_port, running_cluster

SHARED = ROOT.parent / "shared" / "manifests"


def tree(trace: dict) -> dict[str, list[dict]]:
    """Children by parent span id; asserts that the spans are one tree whose children lie within their parents."""
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


def test_once_with_json_prints_one_document_about_bound_and_traced_pods(kubeloop):
    done = kubeloop.run("up", "--once", "--json", "-f", WEB)
    assert done.returncode == 0, done.stderr
    import json

    document = json.loads(done.stdout)
    assert {each["name"]: each["available"] == each["replicas"] for each in document["deployments"]} == {"web": True}
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


def test_the_trace_of_a_pod_is_one_tree_from_creation_to_binding(web):
    kubeloop, _, kubectl = web
    pod = kubectl("get", "pods", "-o", "name").split()[0]
    trace = kubeloop.json("trace", pod, "--json")
    children = tree(trace)
    names = " ".join(span["name"] for span in trace["spans"])
    for part in ("create", "queue", "attempt", "filter", "score", "bind"):
        assert part in names
    assert len(trace["traceId"]) == 32
    assert children


def test_the_waterfall_is_drawn_for_people(web):
    kubeloop, _, _ = web
    done = kubeloop.run("trace", "deploy/web")
    assert done.returncode == 0, done.stderr
    assert "bind" in done.stdout
    assert "ms" in done.stdout


def test_a_published_application_comes_up(kubeloop):
    manifest = SHARED / "online-boutique.yaml"
    if not manifest.exists():
        pytest.skip("no ../shared/manifests beside this checkout")
    document = kubeloop.json("up", "--once", "--json", "-f", manifest)
    assert len(document["deployments"]) == 12
    assert all(each["available"] == each["replicas"] for each in document["deployments"])


def test_what_cannot_be_scheduled_ends_in_1_with_the_reason(kubeloop):
    for seconds in (3, 15, 60):  # on a slow machine the first time is over before the scheduler has begun
        done = kubeloop.run("up", "--once", "--timeout", seconds, "-f", MIXED)
        assert done.returncode == 1
        assert f"not complete after {seconds} s" in done.stderr
        if "nodes are available" in done.stderr:
            break
    assert "0/5 nodes are available" in done.stderr


def test_the_kubeconfig_is_for_its_owner_alone_and_goes_with_the_process(kubeloop, tmp_path):
    with kubeloop.running("up", "--nodes", "1") as up:
        path = up.wait_for(r"export KUBECONFIG=(\S+)").group(1)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert up.stop(signal.SIGINT) == 0
    assert not os.path.exists(path)


def test_a_killed_process_leaves_no_cluster_behind(kubeloop):
    with reserved_port() as port, socket.socket() as probe:
        with kubeloop.running("up", "--nodes", "1", "--port", port) as up:
            up.wait_for(rf"at https://127\.0\.0\.1:{port}")
            up.process.kill()
            up.process.wait()
            up.wait_for_end()
        assert probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(["up", "-f", "missing.yaml"], "cannot read missing.yaml", id="missing manifest"),
        pytest.param(["up", "--nodse", "3"], "No such option", id="unknown flag"),
        pytest.param(["up", "--nodes", "many"], "many", id="not a number"),
        pytest.param(["run", "--controllers", "deploymint"], "no controller named 'deploymint'", id="controller"),
        pytest.param(["run", "--kubeconfig", "missing"], "missing", id="missing kubeconfig"),
        pytest.param(["trace", "pod/x"], "no kubeloop process runs", id="nothing to ask"),
        pytest.param(["trace", "web"], "cannot trace 'web'", id="not a kind"),
        pytest.param(["nonsense"], "No such command", id="unknown command"),
    ],
)
def test_wrong_input_gives_one_clear_line_and_no_traceback(kubeloop, arguments, problem):
    done = kubeloop.run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    error, *hint = done.stderr.strip().splitlines()
    assert error.startswith("error: ")
    assert problem in error
    assert all(line.startswith("  hint: ") for line in hint)


def test_a_manifest_the_server_refuses_is_named_with_the_servers_words(kubeloop, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text(WEB.read_text().replace("replicas: ", "replicas: -"))
    done = kubeloop.run("up", "--once", "-f", bad)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert f"error: {bad}" in done.stderr
    assert "spec.replicas: Invalid value: -" in done.stderr


def test_a_taken_port_is_named(kubeloop):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = kubeloop.run("up", "--once", "--port", port)
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: port {port} is taken")
        done = kubeloop.run("up", "--once", "--nodes", "1", "--endpoint-port", port)
        assert done.returncode == 2
        assert f"cannot listen on 127.0.0.1 port {port}" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_server_that_does_not_answer_is_named(kubeloop, tmp_path):

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
    done = kubeloop.run("run", "--kubeconfig", path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: the API server http://127.0.0.1:{port} does not respond")
    assert "Traceback" not in done.stderr


def test_pages_for_operators_answer(web):
    import urllib.request

    _, up, _ = web
    url = up.wait_for(r"endpoint (http://\S+)").group(1)
    pages = {}
    for path in ("/healthz", "/livez", "/readyz", "/readyz?verbose", "/metrics", "/configz"):
        with urllib.request.urlopen(url + path) as answer:
            pages[path] = answer.read().decode()
    assert pages["/healthz"] == pages["/livez"] == pages["/readyz"] == "ok"
    assert "[+]informer-sync ok" in pages["/readyz?verbose"]
    assert 'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"}' in pages["/metrics"]
    assert 'workqueue_adds_total{name="deployment"}' in pages["/metrics"]
    assert "KubeSchedulerConfiguration" in pages["/configz"]


def test_two_clusters_run_side_by_side(kubeloop, tmp_path):
    with (
        running_cluster(kubeloop, tmp_path, "-f", WEB) as (one, _),
        running_cluster(kubeloop, tmp_path, "-f", WEB) as (two, _),
    ):
        first = one.wait_for(r"export KUBECONFIG=(\S+)").group(1)
        second = two.wait_for(r"export KUBECONFIG=(\S+)").group(1)
        assert first != second
