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
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.process.workload_progress import (
    controller_progress,
    daemon_set_progress,
    deployment_progress,
    is_run_of_cron_job,
    job_progress,
    measure,
    pod_failure,
    pod_group_progress,
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
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
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


@pytest.mark.parametrize(("observed", "failed"), [(2, True), (1, False)], ids=["observed", "older generation"])
def test_deployment_fails_after_its_progress_deadline(observed, failed):
    condition = {
        "type": "Progressing",
        "status": "False",
        "reason": "ProgressDeadlineExceeded",
        "message": "Timed out.",
    }
    late = deployment(observedGeneration=observed, availableReplicas=2, conditions=[condition])
    progress = measure([deployment_progress(late)], [])
    message = "deployment.apps/web in default failed: ProgressDeadlineExceeded: Timed out."
    assert progress.failures == ([message] if failed else [])
    assert (progress.complete, progress.settled) == (False, failed)


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


def job(*conditions: tuple[str, str, str], **spec):
    """conditions: type, reason and message; all are true."""
    fields = [
        {"type": type_, "status": "True", "reason": reason, "message": text} for type_, reason, text in conditions
    ]
    body = {
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"completions": 3, **spec},
        "status": {"succeeded": 2, "conditions": fields},
    }
    return convert(Job, body)


SUSPENDED = ("Suspended", "JobSuspended", "Job suspended")
FAILED = ("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")


@pytest.mark.parametrize(
    ("job", "complete", "settled", "reasons"),
    [
        pytest.param(job(("Complete", "", "")), True, True, [], id="succeeded"),
        pytest.param(job(), False, False, ["2 of 3 succeeded"], id="active"),
        pytest.param(job(SUSPENDED, suspend=True), True, True, ["suspended"], id="suspended"),
        pytest.param(job(SUSPENDED, suspend=False), False, False, ["2 of 3 succeeded"], id="resumed"),
        pytest.param(job(SUSPENDED, ("Complete", "", ""), suspend=True), True, True, [], id="suspended too late"),
        pytest.param(job(FAILED), False, True, [], id="failed"),
    ],
)
def test_progress_of_a_job(job, complete, settled, reasons):
    progress = measure([job_progress(job)], [])
    assert (progress.complete, progress.settled) == (complete, settled)
    assert unfinished_reasons(progress, []) == [f"job.batch/j in default: {reason}" for reason in reasons]


def test_failed_job_has_reason_and_message():
    progress = measure([job_progress(job(FAILED)), job_progress(job(suspend=True))], [])
    message = "BackoffLimitExceeded: Job has reached the specified backoff limit"
    assert progress.failures == [f"job.batch/j in default failed: {message}"]
    assert progress.line().startswith("0/2 workloads complete, 1 suspended, 1 failed; ")


@pytest.mark.parametrize(("owners", "expected"), [([], False), (["CronJob"], True), (["Operator"], False)])
def test_run_of_a_cron_job(owners, expected):
    references = [{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "controller": True} for kind in owners]
    assert is_run_of_cron_job(convert(Job, {"metadata": {"name": "j", "ownerReferences": references}})) is expected


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


def exited(name, code):
    return {"name": name, "state": {"terminated": {"exitCode": code}}}


@pytest.mark.parametrize(
    ("status", "message"),
    [
        pytest.param(
            {"reason": "Evicted", "message": "low on memory"}, "Evicted: low on memory", id="reason of the status"
        ),
        pytest.param({"reason": "OutOfcpu"}, "OutOfcpu", id="reason only"),
        pytest.param(
            {"containerStatuses": [exited("web", 3), exited("log", 0), exited("db", 137)]},
            "container web exited with code 3, container db exited with code 137",
            id="exit codes",
        ),
        pytest.param(
            {"initContainerStatuses": [exited("init", 1)], "containerStatuses": [{"name": "web"}]},
            "container init exited with code 1",
            id="init container",
        ),
        pytest.param({}, "its status has no reason", id="no reason"),
    ],
)
def test_failed_pod_without_a_controller_is_a_failure(status, message):
    failed = pod(phase="Failed", **status)
    assert pod_failure(failed) == message
    progress = measure([], [failed])
    assert progress.failures == [f"pod/a in default failed: {message}"]
    assert unfinished_reasons(progress, [failed]) == [f"pod default/a: failed: {message}"]
    assert progress.line().startswith("0/0 workloads complete; ")


def test_warning_about_a_pod_without_a_reason_is_reported():
    creating = pod(
        "a", node="n1", containerStatuses=[{"name": "web", "state": {"waiting": {"reason": "PodInitializing"}}}]
    )
    ready = pod("b", node="n1", phase="Running", ready=True)
    warnings = {"uid-a": "FailedMount: no Secret", "uid-b": "obsolete"}
    reasons = unfinished_reasons(measure([], []), [creating, ready], warnings)
    assert reasons == ["pod default/a: FailedMount: no Secret"]


@pytest.mark.parametrize(
    ("reason", "failures"),
    [
        ("InvalidImageName", ["pod/a in default (and 1 more) cannot start: InvalidImageName: bad"]),
        ("ErrImageNeverPull", ["pod/a in default (and 1 more) cannot start: ErrImageNeverPull: bad"]),
        ("ImagePullBackOff", []),
        ("CreateContainerConfigError", []),
    ],
)
def test_pods_that_cannot_start_are_failures(reason: str, failures: list[str]):
    waiting = [{"name": "web", "state": {"waiting": {"reason": reason, "message": "bad"}}}]
    pods = [pod(name, node="n1", containerStatuses=waiting) for name in ("b", "a")]
    assert measure([], pods).failures == failures


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


@pytest.mark.parametrize(
    ("policy", "condition", "complete", "available", "state"),
    [
        pytest.param({"gang": {"minCount": 4}}, {}, False, 0, "not scheduled", id="not tried"),
        pytest.param(
            {"gang": {"minCount": 4}},
            {"status": "False", "reason": "Unschedulable", "message": "0/2 placements are available"},
            False,
            0,
            "not scheduled: Unschedulable: 0/2 placements are available",
            id="unschedulable",
        ),
        pytest.param(
            {"gang": {"minCount": 4}},
            {"status": "False", "reason": "Unschedulable"},
            False,
            0,
            "not scheduled: Unschedulable",
            id="without message",
        ),
        pytest.param({"gang": {"minCount": 4}}, {"status": "True"}, True, 4, "scheduled", id="scheduled"),
        pytest.param({"basic": {}}, {}, True, 0, "not a gang", id="not a gang"),
    ],
)
def test_pod_group_is_complete_when_it_has_been_scheduled(policy, condition, complete, available, state):
    pod_group = {
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"schedulingPolicy": policy},
        "status": {"conditions": [{"type": "PodGroupScheduled"} | condition] if condition else []},
    }
    progress = pod_group_progress(convert(PodGroup, pod_group))
    assert (progress.complete, progress.available, progress.state) == (complete, available, state)
    assert progress.title == "podgroup.scheduling.k8s.io/train"
