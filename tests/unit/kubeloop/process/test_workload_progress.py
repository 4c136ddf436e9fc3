import pytest

from kubeloop.kube.objects.api_types import (
    DaemonSet,
    Deployment,
    Job,
    Pod,
    ReplicationController,
    StatefulSet,
    convert,
)
from kubeloop.process.workload_progress import (
    controller_progress,
    daemon_set_progress,
    deployment_progress,
    job_progress,
    measure,
    stateful_set_progress,
    unfinished_reasons,
)

COMPLETE = {"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3}


def deployment(desired=3, **status):
    return convert(
        Deployment,
        {
            "metadata": {"name": "web", "namespace": "default", "generation": 2},
            "spec": {"replicas": desired},
            "status": COMPLETE | status,
        },
    )


def pod(name="a", node="", phase="Pending", ready=False, conditions=(), deleting=False, **status):
    conditions = [*conditions, {"type": "Ready", "status": str(ready)}]
    metadata = {"name": name, "namespace": "default"}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return convert(
        Pod,
        {
            "metadata": metadata,
            "spec": {"nodeName": node},
            "status": {"phase": phase, "conditions": conditions} | status,
        },
    )


@pytest.mark.parametrize(
    ("status", "complete"),
    [
        pytest.param({}, True, id="all updated and available"),
        pytest.param({"observedGeneration": 1}, False, id="generation not observed"),
        pytest.param({"updatedReplicas": 2}, False, id="not all updated"),
        pytest.param({"replicas": 4}, False, id="old pods exist"),
        pytest.param({"availableReplicas": 2}, False, id="not all available"),
    ],
)
def test_deployment_progress_follows_rollout_status(status, complete):
    assert deployment_progress(deployment(**status)).complete is complete


def test_deployment_with_zero_replicas_is_complete():
    empty = deployment(0, **dict.fromkeys(COMPLETE, 0) | {"observedGeneration": 2})
    assert deployment_progress(empty).complete


def test_controller_is_complete_when_all_pods_are_available():
    controller = convert(
        ReplicationController,
        {
            "metadata": {"name": "rc", "namespace": "default", "generation": 1},
            "spec": {"replicas": 2},
            "status": {"observedGeneration": 1, "replicas": 2, "availableReplicas": 1},
        },
    )
    assert not controller_progress(controller).complete
    assert controller_progress(controller).title == "replicationcontroller/rc"


@pytest.mark.parametrize(
    ("strategy", "status", "complete"),
    [
        pytest.param({"type": "RollingUpdate"}, {}, True, id="all updated and available"),
        pytest.param({"type": "RollingUpdate"}, {"observedGeneration": 1}, False, id="generation not observed"),
        pytest.param({"type": "RollingUpdate"}, {"replicas": 4}, False, id="scale-down"),
        pytest.param({"type": "RollingUpdate"}, {"availableReplicas": 2}, False, id="not all available"),
        pytest.param({"type": "RollingUpdate"}, {"updatedReplicas": 2}, False, id="not all updated"),
        pytest.param(
            {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}, {"updatedReplicas": 2}, True, id="partition"
        ),
        pytest.param({"type": "OnDelete"}, {"updatedReplicas": 0}, True, id="OnDelete"),
    ],
)
def test_stateful_set_progress_follows_rollout_status(strategy, status, complete):
    metadata = {"name": "db", "namespace": "default", "generation": 2}
    spec = {"replicas": 3, "updateStrategy": strategy}
    sts = convert(StatefulSet, {"metadata": metadata, "spec": spec, "status": COMPLETE | status})
    progress = stateful_set_progress(sts)
    assert (progress.title, progress.complete) == ("statefulset.apps/db", complete)


@pytest.mark.parametrize(
    ("condition", "reasons"),
    [("Complete", []), *((type_, ["job.batch/j in default: 2 of 3 succeeded"]) for type_ in ("Failed", "Suspended"))],
)
def test_job_is_complete_when_it_has_succeeded(condition, reasons):
    status = {"succeeded": 2, "conditions": [{"type": condition, "status": "True"}]}
    metadata = {"name": "j", "namespace": "default"}
    progress = job_progress(convert(Job, {"metadata": metadata, "spec": {"completions": 3}, "status": status}))
    assert unfinished_reasons(measure([progress], []), []) == reasons


@pytest.mark.parametrize(
    ("status", "strategy", "complete"),
    [
        pytest.param({}, "RollingUpdate", True, id="all updated and available"),
        pytest.param({"observedGeneration": 0}, "RollingUpdate", False, id="generation not observed"),
        pytest.param({"updatedNumberScheduled": 2}, "RollingUpdate", False, id="not all updated"),
        pytest.param({"updatedNumberScheduled": 2}, "OnDelete", True, id="not all updated, OnDelete"),
        pytest.param({"numberAvailable": 2}, "OnDelete", False, id="not all available"),
    ],
)
def test_daemon_set_progress_follows_rollout_status(status, strategy, complete):
    fields = ("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable")
    body = {
        "metadata": {"name": "agent", "namespace": "default", "generation": 1},
        "spec": {"updateStrategy": {"type": strategy}},
        "status": dict.fromkeys(fields, 3) | {"observedGeneration": 1} | status,
    }
    progress = daemon_set_progress(convert(DaemonSet, body))
    assert progress.complete is complete
    assert (progress.title, progress.replicas) == ("daemonset.apps/agent", 3)


def test_progress_line_counts_pods_by_phase():
    pods = [pod("a"), pod("b", node="n1", phase="Running", ready=True), pod("c", node="n1", deleting=True)]
    progress = measure([deployment_progress(deployment())], pods)
    assert progress.line() == ("1/1 workloads complete; 3 pods: 2 bound, 1 ready (Pending 1, Running 1, Terminating 1)")


def test_standalone_pod_counts_for_everything_available_only():
    pending_pod, done = pod("waiting"), pod("job", phase="Succeeded")
    owned = convert(
        Pod, {"metadata": {"name": "owned", "namespace": "default", "ownerReferences": [{"controller": True}]}}
    )
    progress = measure([deployment_progress(deployment())], [pending_pod, done, owned])
    assert progress.complete
    assert progress.unready_standalone_pods == ("default/waiting",)
    assert not progress.everything_available


def test_unfinished_reasons_have_workloads_and_pod_messages():
    message = "0/5 nodes are available: 5 Insufficient cpu."
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    pending_pod = {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    pods = [
        pod("a", conditions=[unschedulable]),
        pod("b", conditions=[unschedulable]),
        pod("c", node="n1", containerStatuses=[pending_pod]),
        pod("d", node="n1", phase="Running", ready=True),
    ]
    progress = measure([deployment_progress(deployment(availableReplicas=1))], pods)
    assert unfinished_reasons(progress, pods) == [
        "deployment.apps/web in default: 1 of 3 available",
        f"pod default/a (and 1 more): Unschedulable: {message}",
        "pod default/c: ImagePullBackOff: no such image",
    ]
