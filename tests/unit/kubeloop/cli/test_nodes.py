"""`kubeloop nodes`: selection of the cluster, names and zones of new nodes, and rejected input."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kubeloop.cli.nodes import (
    NodeSelection,
    _choose_zone,
    _new_names,
    _print_table,
    _taint,
    _template,
    fail,
)
from kubeloop.cli.options.options import NewNodes
from kubeloop.kube.user_error import UserError


@pytest.mark.parametrize(
    ("named", "options", "present", "names"),
    [
        pytest.param((), {"count": 2}, ["node-0", "node-7", "other-9"], ["node-8", "node-9"], id="after the highest"),
        pytest.param((), {}, [], ["node-0"], id="the first"),
        pytest.param(
            (), {"name_prefix": "gpu.", "count": 2}, ["gpuX5", "gpu.a"], ["gpu.0", "gpu.1"], id="prefix with a dot"
        ),
        pytest.param(("a", "b", "a"), {}, ["c"], ["a", "b"], id="by name, once each"),
    ],
)
def test_names_of_new_nodes(named, options, present, names):
    assert _new_names(named, NewNodes(**options), present) == names


def test_new_names_rejects_an_existing_name():
    with pytest.raises(UserError, match="'b' already exists"):
        _new_names(("a", "b"), NewNodes(), ["b"])


def test_new_names_rejects_a_number_and_suggests_count():
    with pytest.raises(UserError, match="'2' looks like a number of nodes") as refused:
        _new_names(("2",), NewNodes(), [])
    assert refused.value.hint == "use kubeloop nodes add --count 2"


@pytest.mark.parametrize(
    ("zone", "zones", "place"),
    [
        ("", {("local", "b"): 1, ("local", "a"): 1, ("local", "c"): 2}, ("local", "a")),
        ("", {}, ("", "")),
        ("c", {("eu", "c"): 2}, ("eu", "c")),
        ("d", {("eu", "c"): 2}, ("local", "d")),
    ],
)
def test_choose_zone_prefers_the_one_with_the_fewest_nodes(zone, zones, place):
    assert _choose_zone(zone, zones) == place


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("k=v:NoSchedule", {"key": "k", "value": "v", "effect": "NoSchedule"}),
        ("example.com/k:NoExecute", {"key": "example.com/k", "effect": "NoExecute"}),
        ("k=:PreferNoSchedule", {"key": "k", "effect": "PreferNoSchedule"}),
    ],
)
def test_taint_accepts_kubectl_notation(text, taint):
    assert _taint(text) == taint


@pytest.mark.parametrize("text", ["k", "k=v", "k=v:Never", ":NoSchedule", "=v:NoSchedule"])
def test_taint_rejects_invalid_text(text):
    with pytest.raises(UserError, match="a taint is"):
        _taint(text)


def test_template_validates_labels_and_capacity():
    template = _template(NewNodes(labels=("a=b,c=", "d=e=f"), cpu="500m"))
    labels = template["metadata"]["labels"]
    assert (labels["a"], labels["c"], labels["d"]) == ("b", "", "e=f")
    assert template["status"]["allocatable"]["cpu"] == "500m"
    for wrong in ({"labels": ("a",)}, {"labels": ("=b",)}, {"cpu": "0"}, {"memory": "much"}):
        with pytest.raises(UserError):
            _template(NewNodes(**wrong))


def test_nodes_command_rejects_a_real_cluster_that_is_not_named(tmp_path, monkeypatch):
    requests = []

    class RealApiServer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            requests.append(("GET", self.path))
            body = json.dumps({"major": "1", "minor": "36", "gitVersion": "v1.36.0"}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 - names that http.server calls

        def log_message(self, *_arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), RealApiServer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        kubeconfig = tmp_path / "config"
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        config = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context]}
        config |= {"current-context": "c", "users": [{"name": "u", "user": {"token": "t"}}]}
        kubeconfig.write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        with pytest.raises(UserError, match="is not a development cluster of kubeloop"):
            fail(NodeSelection(("node-0",), "", False), "unreachable", kubeconfig=None, as_json=False)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert requests == [("GET", "/version")]


@pytest.mark.parametrize(
    ("columns", "heading"),
    [
        ("", ["NAME", "STATUS", "FAILS", "ZONE", "CPU", "MEMORY", "PODS", "TAINTS"]),
        ("60", ["NAME", "STATUS", "FAILS", "ZONE", "CPU", "MEMORY", "PODS"]),
        ("30", ["NAME", "STATUS", "PODS"]),
    ],
    ids=["pipe", "60 columns", "30 columns"],
)
def test_table_of_nodes_drops_columns_and_cuts_nothing(monkeypatch, capsys, columns, heading):
    monkeypatch.setenv("COLUMNS", columns)
    row = {"name": "node-0", "status": "Ready", "fails": "", "zone": "zone-a", "cpu": "8", "memory": "32Gi"}
    _print_table([row | {"pods": 56, "podsAllowed": "110", "taints": ["key=value:NoSchedule"]}])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == heading
    assert "56/110" in lines[1].split()
    assert columns == "" or max(map(len, lines)) <= int(columns)
