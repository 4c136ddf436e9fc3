"""`kubeloop record` and `kubeloop plan` on kube-apiserver: applying what it stores again changes nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from kubeloop.cli.options.recording_options import PlanOptions, RecordOptions
from kubeloop.cli.recording.plan import plan
from kubeloop.cli.recording.record import record
from kubeloop.recording.reader import RecordingFile
from support.comparison.real_apiserver import RealApiServer
from support.objects.planned_clusters import deployment

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
