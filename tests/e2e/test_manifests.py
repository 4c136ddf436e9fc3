"""The kustomizations of deploy/: what they render, kube-apiserver's validation, and the code's lists of resources."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeloop import __version__
from kubeloop.__main__ import run
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES
from kubeloop.kube.objects import resources
from kubeloop.process.control_plane.controller_table import CONTROLLER_TABLE
from kubeloop.process.workload_progress import WORKLOAD_PROGRESS
from kubeloop.scheduler.lister_resources import LISTER_RESOURCES, lister_resources
from support.comparison.audited_permissions import Permission, granted_permissions
from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver
from support.processes.cli_processes import ROOT

DEPLOY = ROOT / "deploy"
FOLDERS = sorted(str(path.parent.relative_to(DEPLOY)) for path in DEPLOY.glob("**/kustomization.yaml"))
RENDERED = [name for name in FOLDERS if not name.startswith("components/")]
JSON = dict[str, Any]


def rendered(name: str | Path) -> list[JSON]:
    """Return the objects of a kustomization, or skip the test without a kubectl that renders components."""
    command = ["kubectl", "kustomize", str(DEPLOY / name)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unknown field" in result.stderr or "invalid Kustomization" in result.stderr:
        pytest.skip("kubectl is not on the PATH in a version with components (1.21)")
    assert result.returncode == 0, result.stderr
    return list(yaml.safe_load_all(result.stdout))


def container_of(objects: list[JSON]) -> JSON:
    (spec,) = (
        it["spec"]["template"]["spec"] if it["kind"] == "Deployment" else it["spec"]
        for it in objects
        if it["kind"] in ("Deployment", "Pod")
    )
    (container,) = spec["containers"]
    return container


@pytest.mark.parametrize("name", [name for name in RENDERED if name != "control-plane"])
def test_kustomization_has_the_image_of_one_place_and_valid_arguments(name, needs_kubectl, capfd):
    container = container_of(rendered(name))
    registry = "registry.example/" if name.startswith("examples/") else ""
    assert container["image"] == f"{registry}kubeloop:{__version__}"
    assert run([*container["args"], "--help"]) == 0
    assert "Usage: kubeloop" in capfd.readouterr().out
    collectors = [entry["value"] for entry in container.get("env", [])]
    assert collectors == (["http://otel-collector.observability:4318"] if "exported" in name else [])


def test_control_plane_binds_its_roles_to_the_user_of_the_static_pod(needs_kubectl):
    objects = rendered("control-plane")
    assert {it["kind"] for it in objects} == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    bindings = [it for it in objects if it["kind"] == "ClusterRoleBinding"]
    assert len(bindings) == 3
    assert all({"User", "ServiceAccount"} == {it["kind"] for it in binding["subjects"]} for binding in bindings)


def test_roles_permit_to_watch_what_controllers_and_scheduler_watch():
    granted = set()
    for path in (DEPLOY / "scheduler/kubeloop.yaml", DEPLOY / "control-plane/controllers.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] == "ClusterRole" and document["metadata"]["name"] != "kubeloop-all-resources":
                granted |= granted_permissions(document["rules"])
    watched = {resource for controller in CONTROLLER_TABLE for resource in controller.watches.split()}
    watched -= {"resourcequotas"}  # of the controller that needs the role of all resources
    watched |= {
        f"{it.plural}.{it.group}".rstrip(".") for it in [*LISTER_RESOURCES.values(), resources.PODS, resources.NODES]
    }
    assert len(watched) > 30
    for name in watched:
        plural, _, group = name.partition(".")
        assert {(group, plural, "list"), (group, plural, "watch")} <= granted, name
    watched |= {"deviceclasses.resource.k8s.io", "workloads.scheduling.k8s.io"}  # watched only with devices or gangs
    assert watches(granted) <= watched, "a rule permits to watch what nothing watches"


@pytest.mark.parametrize("name", ["observe/observe", "scheduler/kubeloop"])
def test_roles_permit_what_the_trace_page_reads(name):
    documents = yaml.safe_load_all((DEPLOY / f"{name}.yaml").read_text())
    granted = granted_permissions(next(it["rules"] for it in documents if it["kind"] == "ClusterRole"))
    shown = [resources.PODS, resources.NODES, resources.REPLICA_SETS, *WORKLOAD_PROGRESS]
    listed = [resources.PODS, resources.NODES, resources.EVENTS]  # a pod's events; the pods of a node
    explained = [*lister_resources(DEFAULT_FEATURE_GATES).values()]
    explained += [resources.DEVICE_CLASSES, resources.RESOURCE_SLICES, resources.RESOURCE_CLAIMS]
    needed = {(it.group, it.plural, "get") for it in shown}
    needed |= {(it.group, it.plural, "list") for it in [*listed, *explained]}
    assert sorted(needed - granted) == []
    assert ("", "pods/log", "get") not in granted


@pytest.mark.parametrize("name", ["observe", "observe-replicas", "scheduler", "control-plane"])
def test_component_permits_to_read_logs(name, tmp_path, needs_kubectl):
    relative = {part: os.path.relpath(DEPLOY / part, tmp_path.resolve()) for part in (name, "components/logs")}
    overlay = {"resources": [relative[name]], "components": [relative["components/logs"]]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    roles = {it["metadata"]["name"]: it["rules"] for it in rendered(tmp_path) if it["kind"] == "ClusterRole"}
    permitted = [role for role, rules in roles.items() if ("", "pods/log", "get") in granted_permissions(rules)]
    assert permitted == ["kubeloop-observe" if name.startswith("observe") else "kubeloop"]


def watches(granted: set[Permission]) -> set[str]:
    return {f"{plural}.{group}".rstrip(".") for group, plural, verb in granted if verb == "watch"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs_binaries()
    with real_apiserver(tmp_path_factory.mktemp("server"), {"authorization-mode": "RBAC"}) as server:
        for name in ("kubeloop-observe", "kubeloop-record"):  # a dry run creates none for the objects in it
            server.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        yield server


@pytest.mark.parametrize("name", RENDERED)
def test_kube_apiserver_accepts_the_kustomization(name, server: RealApiServer, needs_kubectl):
    objects = rendered(name)
    command = ["kubectl", f"--kubeconfig={server.kubeconfig}", "apply", "--server-side", "--dry-run=server"]
    result = subprocess.run([*command, "-k", str(DEPLOY / name)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stderr
    assert result.stdout.count("serverside-applied (server dry run)") == len(objects)
