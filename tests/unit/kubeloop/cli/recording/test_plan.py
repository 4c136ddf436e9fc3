"""`kubeloop plan`: options, outputs, exit codes; a live cluster is only read."""

from __future__ import annotations

import json

import pytest
import yaml

from kubeloop.cli.options.recording_options import PlanOptions
from kubeloop.cli.recording.plan import plan
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.user_error import UserError
from kubeloop.testing import Cluster
from support.objects.planned_clusters import add_deployment, add_node, deployment, new_state


@pytest.fixture
def cluster_file(tmp_path):
    """Return a file with a node of 4 CPUs and a Deployment of two pods with 1 CPU."""
    state = new_state()
    add_node(state, "pool-a-0")
    add_deployment(state, deployment(), ["pool-a-0", "pool-a-0"])
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([obj for objects in state.objects.values() for obj in objects.values()]))
    return path


def run(cluster_file, **options):
    return plan(PlanOptions(cluster=(cluster_file,), **options))


def test_exit_code_tells_whether_everything_fits(cluster_file, capsys):
    assert run(cluster_file, scale=("deploy/web=4",)) == 0
    assert capsys.readouterr().out.rstrip().endswith("everything fits")
    assert run(cluster_file, scale=("deploy/web=5",)) == 1
    assert "1 pending: 0/1 nodes are available: 1 Insufficient cpu." in capsys.readouterr().out


def test_outputs_are_json_markdown_and_junit(cluster_file, capsys, tmp_path):
    assert run(cluster_file, scale=("deploy/web=5",), as_json=True, junit=tmp_path / "plan.xml") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["workloads"][0]["pending"][0]["count"] == 1
    assert document["wouldHelp"] == "1 node like pool-a-0"
    assert 'failures="1"' in (tmp_path / "plan.xml").read_text()
    assert run(cluster_file, markdown=True) == 0
    assert capsys.readouterr().out.startswith("### kubeloop plan: everything fits")
    with pytest.raises(UserError, match="cannot write"):
        run(cluster_file, junit=tmp_path / "none" / "plan.xml")


def test_manifests_are_applied(cluster_file, tmp_path, capsys):
    (tmp_path / "new.yaml").write_text(yaml.safe_dump(deployment("db", replicas=1)))
    assert run(cluster_file, files=(tmp_path / "new.yaml",)) == 0
    assert "+ deployment shop/db" in capsys.readouterr().out


def test_scheduler_configuration_is_used(cluster_file, tmp_path, capsys):
    filters = {"filter": {"disabled": [{"name": "NodeResourcesFit"}]}}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "plugins": filters}],
    }
    path = tmp_path / "scheduler.yaml"
    path.write_text(yaml.safe_dump(configuration))
    assert run(cluster_file, scale=("deploy/web=4",), scheduler_config=path) == 0
    path.write_text("kind: Nothing\n")
    with pytest.raises(UserError):
        run(cluster_file, scheduler_config=path)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"add_nodes": 1}, "--add-nodes needs --like"),
        ({"like": "x"}, "--like needs --add-nodes"),
        ({"as_json": True, "markdown": True}, "mutually exclusive"),
        ({"kube_context": "x"}, "mutually exclusive"),
        ({"scale": ("web",)}, "not KIND/NAME=REPLICAS"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(cluster_file, options, problem):
    with pytest.raises(UserError, match=problem):
        run(cluster_file, **options)


def test_time_needs_a_recording():
    with pytest.raises(UserError, match="--at needs --cluster"):
        plan(PlanOptions(at=1.0))


def test_live_cluster_is_only_read(monkeypatch, tmp_path, capsys):
    sent = []
    send = ApiClient._send

    async def checked_send(self, method, target, **arguments):
        if not self.transport.server.startswith("memory:"):
            sent.append((method, target))
            assert method == "GET", f"{method} {target} to the live cluster"
        return await send(self, method, target, **arguments)

    with Cluster(nodes=2, node_cpu="4") as live:
        live.apply(deployment() | {"metadata": {"name": "web"}})
        live.wait_for("deploy/web", "condition=Available")
        before = live.get("deploy/web")
        monkeypatch.setattr(ApiClient, "_send", checked_send)
        options = PlanOptions(kubeconfig=live.kubeconfig, scale=("deploy/web=9",), drain=("node-0",), fit="node-1")
        assert plan(options) == 0
        monkeypatch.undo()
        assert live.get("deploy/web") == before
    assert "more nodes like node-1 are enough" in capsys.readouterr().out
    assert any("/pods" in target for _, target in sent)
