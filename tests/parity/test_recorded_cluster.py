"""`kubeloop record` and `kubeloop plan` on kube-apiserver: applying what it stores again changes nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from kubeloop.cli.options.recording_options import PlanOptions, RecordOptions
from kubeloop.cli.recording.plan import plan
from kubeloop.cli.recording.record import record
from kubeloop.recording.reader import RecordingFile
from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver
from support.objects.planned_clusters import deployment
from support.processes.cli_processes import ROOT

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "recorded-node"},
    "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def test_applied_manifests_change_nothing_in_a_plan(
    kube_apiserver: RealApiServer, needs_kubectl: None, tmp_path: Path, capsys
) -> None:
    manifests, path, kubeconfig = tmp_path / "shop.yaml", tmp_path / "now.kubeloop", Path(kube_apiserver.kubeconfig)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    (tmp_path / "node.yaml").write_text(yaml.safe_dump(NODE))
    manifests.write_text(yaml.safe_dump_all([namespace, deployment()]))
    kubectl = ["kubectl", "--kubeconfig", str(kubeconfig)]
    subprocess.run([*kubectl, "create", "-f", str(tmp_path / "node.yaml")], check=True, capture_output=True)
    try:
        subprocess.run([*kubectl, "apply", "-f", str(manifests)], check=True, capture_output=True)
        assert record(path, RecordOptions(kubeconfig=kubeconfig, once=True)) == 0
        recording = RecordingFile(path)
        assert {change.resource for change in recording.changes()} >= {"nodes", "namespaces", "deployments.apps"}
        assert recording.findings == []
        assert recording.header.kubernetes == "v1.36.2"
        for options in (PlanOptions(cluster=(path,)), PlanOptions(kubeconfig=kubeconfig)):
            assert plan(options.replace(files=(manifests,))) == 0
            output = capsys.readouterr().out
            assert "0 created, 0 changed, 0 deleted; everything fits" in output
            assert "the cluster was not at rest: 2 pods are created" in output  # there is no controller manager
    finally:
        for target in ("namespace/shop", "node/recorded-node"):
            subprocess.run([*kubectl, "delete", "--wait=false", target], check=True, capture_output=True)


@pytest.mark.parametrize("omitted", [(), ("priorityclasses", "jobs")], ids=["all", "some missing"])
def test_resources_without_permission_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], omitted) -> None:
    needs_binaries()
    manifests = yaml.safe_load_all((ROOT / "deploy" / "record" / "record.yaml").read_text())
    role = next(manifest for manifest in manifests if manifest["kind"] == "ClusterRole")
    for rule in role["rules"]:
        rule["resources"] = [name for name in rule["resources"] if name not in omitted]
    group = "rbac.authorization.k8s.io"
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": role["metadata"]["name"]}
    subject = {"apiGroup": group, "kind": "User", "name": "recorder"}
    binding = {"metadata": {"name": "recorder"}, "roleRef": reference, "subjects": [subject]}
    with real_apiserver(tmp_path / "server", {"authorization-mode": "RBAC"}) as server:
        server.request("POST", f"/apis/{group}/v1/clusterroles", role)
        server.request("POST", f"/apis/{group}/v1/clusterrolebindings", binding)
        certificate, key = server.authority.sign("recorder", user="recorder")
        user = {"client-certificate": str(certificate), "client-key": str(key)}
        options = RecordOptions(kubeconfig=server.kubeconfig_of("recorder", user), once=True)
        assert record(tmp_path / "now.kubeloop", options) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning:")]
    recording = RecordingFile(tmp_path / "now.kubeloop")
    assert list(recording.changes())
    missing = ["jobs.batch", "priorityclasses.scheduling.k8s.io"] if omitted else []
    assert [line.split()[1] for line in warnings] == missing
    assert all('User "recorder" cannot list resource' in line for line in warnings)
    assert [next(name for name in missing if name in str(finding)) for finding in recording.findings] == missing
