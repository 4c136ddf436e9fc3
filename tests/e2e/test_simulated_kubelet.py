"""kubectl sees what a simulated kubelet refuses, and how its containers end."""

from __future__ import annotations

import json

import pytest

from support.processes.cli_processes import Kubeloop, running_cluster

needs_kubectl = pytest.mark.usefixtures("needs_kubectl")
CONTAINER_STATE = "{.status.containerStatuses[0].state}"


def pod(name, image):
    containers = [{"name": "web", "image": image}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated-kubelet")
    with running_cluster(Kubeloop(folder), folder, "--nodes=1", "--missing-images=registry.example/missing*") as (
        _,
        kubectl,
    ):
        yield kubectl


@needs_kubectl
@pytest.mark.parametrize(
    ("image", "reason"),
    [("Registry/App:1", "InvalidImageName"), ("registry.example/missing:1", "ImagePullBackOff")],
)
def test_container_without_image_waits_with_events(cluster, image, reason):
    name = reason.lower()
    cluster("apply", "-f", "-", stdin=json.dumps(pod(name, image)))
    cluster(
        "wait",
        f"pod/{name}",
        f"--for=jsonpath={{.status.containerStatuses[0].state.waiting.reason}}={reason}",
        "--timeout=60s",
    )
    assert f"Error: {reason}" in cluster.wait_for_output(f"Error: {reason}", "describe", "pod", name)


@needs_kubectl
def test_command_ends_the_pod(cluster):
    cluster("run", "fails", "--image=busybox", "--restart=Never", "--command", "--", "sh", "-c", "exit 3")
    cluster("wait", "pod/fails", "--for=jsonpath={.status.phase}=Failed", "--timeout=60s")
    state = json.loads(cluster("get", "pod", "fails", "-o", f"jsonpath={CONTAINER_STATE}"))
    assert state["terminated"]["exitCode"] == 3


@needs_kubectl
def test_debug_ends_and_has_an_empty_log(cluster):
    cluster("run", "debugged", "--image=nginx")
    cluster("wait", "pod/debugged", "--for=condition=Ready", "--timeout=60s")
    cluster("debug", "-i", "debugged", "--image=busybox", "--container=shell", "--", "sh")
    ended = "--for=jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.exitCode}=0"
    cluster("wait", "pod/debugged", ended, "--timeout=60s")
    assert cluster("logs", "debugged", "-c", "shell") == ""


@needs_kubectl
def test_resize_waits_for_room_on_the_node(cluster):
    for name, cpu in (("grows", "1"), ("big", "6")):
        container = {"name": "web", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}
        cluster("run", name, "--image=nginx", f"--overrides={json.dumps({'spec': {'containers': [container]}})}")
        cluster("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")
    patch = {"spec": {"containers": [{"name": "web", "resources": {"requests": {"cpu": "3"}}}]}}
    cluster("patch", "pod", "grows", "--subresource=resize", "-p", json.dumps(patch))
    cluster("wait", "pod/grows", "--for=condition=PodResizePending", "--timeout=60s")
    cluster("delete", "pod", "big", "--wait=false")
    allocated = "--for=jsonpath={.status.containerStatuses[0].resources.requests.cpu}=3"
    cluster("wait", "pod/grows", allocated, "--timeout=60s")


def test_once_names_the_reason_of_an_invalid_image(kubeloop, tmp_path):
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(json.dumps(pod("web", "${REGISTRY}/app:1")))
    result = kubeloop.run("up", "--once", "--nodes", "1", "-f", manifest)
    assert result.returncode == 1
    assert "error: pod/web in default cannot start: InvalidImageName: Failed to apply default image tag" in (
        result.stderr
    )
