"""Jobs on the development cluster with kubectl."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from support.processes.cli_processes import Kubeloop, running_cluster

POD_TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example/app:1"}]}}
JOB_SPEC = {"completions": 3, "parallelism": 2, "completionMode": "Indexed", "template": POD_TEMPLATE}
CRON_JOB = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "nightly"},
    "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": JOB_SPEC}},
}


@pytest.mark.usefixtures("needs_kubectl")
def test_job_of_a_cron_job_completes_and_is_traced(kubeloop, tmp_path):
    with running_cluster(kubeloop, tmp_path) as (_, kubectl):
        kubectl("apply", "-f", "-", stdin=json.dumps(CRON_JOB))
        kubectl("create", "job", "now", "--from=cronjob/nightly")
        kubectl("wait", "--for=condition=complete", "job/now", "--timeout=90s")
        assert kubectl.json("get", "job", "now")["status"]["completedIndexes"] == "0-2"
        pods = kubectl.json("get", "pods", "-l", "job-name=now")["items"]
        assert sorted(pod["spec"]["hostname"] for pod in pods) == ["now-0", "now-1", "now-2"]
        assert all("finalizers" not in pod["metadata"] for pod in pods)
        for owner in ("job/now", "cronjob/nightly"):
            assert "3 pods" in kubeloop.run("trace", owner).stdout
        kubectl("delete", "job/now", "--timeout=90s")
        kubectl("wait", "pods", "-l", "job-name=now", "--for=delete", "--timeout=90s")


def job(name: str, annotations: dict[str, str], **spec: object) -> dict[str, object]:
    """Return a Job. annotations: of its Pods."""
    template = {**POD_TEMPLATE, "metadata": {"annotations": annotations}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {**spec, "template": template}}


def up_once(kubeloop: Kubeloop, folder: Path, *objects: dict[str, object]) -> CompletedProcess[str]:
    manifest = folder / "objects.json"
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return kubeloop.run("up", "--once", "--timeout", "600", "-f", manifest)


def test_up_once_ends_when_a_job_fails(kubeloop, tmp_path):
    result = up_once(kubeloop, tmp_path, job("report", {"kubeloop.dev/exit-code": "3"}, backoffLimit=0))
    message = "BackoffLimitExceeded: Job has reached the specified backoff limit"
    assert f"error: job.batch/report in default failed: {message}" in result.stderr
    assert result.returncode == 1


def test_up_once_ends_when_a_standalone_pod_fails(kubeloop, tmp_path):
    metadata = {"name": "check", "annotations": {"kubeloop.dev/exit-code": "3"}}
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    pod: dict[str, object] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    result = up_once(kubeloop, tmp_path, pod)
    assert "error: pod/check in default failed: container main exited with code 3" in result.stderr
    assert result.returncode == 1


def test_up_once_ends_when_a_deployment_exceeds_its_progress_deadline(kubeloop, tmp_path):
    labels = {"app": "web"}
    container = {"name": "web", "image": "nginx", "volumeMounts": [{"name": "tls", "mountPath": "/tls"}]}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "volumes": [{"name": "tls", "secret": {"secretName": "certificate"}}]},
    }
    spec = {"progressDeadlineSeconds": 3, "selector": {"matchLabels": labels}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    result = up_once(kubeloop, tmp_path, deployment)
    assert "error: deployment.apps/web in default failed: ProgressDeadlineExceeded: " in result.stderr
    assert 'FailedMount: MountVolume.SetUp failed for volume "tls" : secret "certificate" not found' in result.stderr
    assert result.returncode == 1


def test_up_once_does_not_wait_for_a_suspended_job(kubeloop, tmp_path):
    result = up_once(kubeloop, tmp_path, job("report", {}, suspend=True))
    assert (result.returncode, result.stderr) == (0, "")
    assert "0/1 workloads complete, 1 suspended" in result.stdout
    assert "job.batch/report in default: suspended" in result.stdout


def test_up_once_with_repeated_and_deleted_jobs(kubeloop, tmp_path):
    repeated = job("report", {})
    result = up_once(kubeloop, tmp_path, repeated, repeated, job("cleanup", {}, ttlSecondsAfterFinished=0))
    assert (result.returncode, result.stderr) == (0, "")
    assert "job.batch/report unchanged" in result.stdout
