"""Parts of a plan: run times, node pools, changed fields, options, webhooks, preparation of the copy."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.storage.store import Change, StoredObject
from kubeloop.kube.objects.resources import DEPLOYMENTS, NAMESPACES, NODES, PODS, STATEFUL_SETS
from kubeloop.kube.user_error import UserError
from kubeloop.planning.applied_objects import present_fields
from kubeloop.planning.cluster_copy import gates_of, prepared
from kubeloop.planning.node_pools import pool_of, zone_of
from kubeloop.planning.object_changes import changed_fields
from kubeloop.planning.plan_changes import matching_nodes, parse_scale
from kubeloop.planning.pod_history import PodHistory
from kubeloop.planning.run_times import RunTimes
from kubeloop.planning.webhooks import uncalled_webhooks
from kubeloop.planning.workloads import is_pending
from kubeloop.recording.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from support.objects.planned_clusters import (
    add_deployment,
    add_node,
    add_pod,
    bare_pod,
    deployment,
    new_state,
    pod_template,
)


def test_scale_names_kind_name_and_replicas():
    assert parse_scale("deploy/web=50") == (DEPLOYMENTS, "web", 50)
    assert parse_scale("statefulsets.apps/db=0") == (STATEFUL_SETS, "db", 0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("web=3", "not KIND/NAME=REPLICAS"),
        ("deploy/web=many", "not KIND/NAME=REPLICAS"),
        ("job/web=3", "job has no replicas"),
        ("widget/web=3", "widget is no resource"),
    ],
)
def test_invalid_scale_is_refused(text, problem):
    with pytest.raises(UserError, match=problem):
        parse_scale(text)


def test_nodes_are_selected_by_name_or_labels():
    nodes = {name: {"metadata": {"labels": {"pool": name[0]}}} for name in ("a1", "a2", "b1")}
    assert matching_nodes(nodes, "b1", "--x") == ["b1"]
    assert matching_nodes(nodes, "pool in (a)", "--x") == ["a1", "a2"]
    for selector, problem in (
        ("b9", "no node of this name"),
        ("pool=c", "no node has these"),
        ("a=b=c", "--x a=b=c: "),
    ):
        with pytest.raises(UserError, match=problem):
            matching_nodes(nodes, selector, "--x")


def test_pool_is_that_of_the_provider_or_of_the_name():
    def node(name, **labels):
        return {"metadata": {"name": name, "labels": labels}}

    assert pool_of(node("n-1", **{"eks.amazonaws.com/nodegroup": "blue"})) == "blue"
    assert pool_of(node("n-1", **{"node.kubernetes.io/instance-type": "m5"})) == "m5"
    assert pool_of(node("worker-12")) == "worker"
    assert zone_of(node("n-1", **{"topology.kubernetes.io/zone": "a"})) == "a"
    assert zone_of(node("n-1")) == ""


def test_changed_fields_are_short_and_few():
    before = {"metadata": {"labels": {"a": "1"}}, "spec": {"x": {"y": 1}, "list": [1, 2]}, "status": {"n": 1}}
    after = {"metadata": {"labels": {}}, "spec": {"x": {"y": 2}, "list": [1, 3]}, "status": {"n": 2}}
    assert changed_fields(before, after) == ["x.y 1 -> 2", "list [1,2] -> [1,3]", "labels.a 1 -> none"]
    many = {"metadata": {}, "spec": {str(number): number for number in range(20)}}
    assert changed_fields({"metadata": {}}, many)[-1].startswith("spec none -> {")
    assert changed_fields({"metadata": {}, "spec": {}}, many)[-1] == "and 12 more fields"


def test_run_times_are_medians_by_workload():
    state = new_state()
    add_deployment(state, deployment(), ["n-1"], ready_seconds=20)
    times = RunTimes(state)
    assert times.start_seconds == {("Deployment", "shop", "web"): 20.0}
    pod = {"metadata": {**bare_pod("web-9f-x"), "labels": {"pod-template-hash": "9f"}}, "spec": pod_template()["spec"]}
    pod["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web-9f", "uid": "new", "controller": True}]
    assert times.workload_of(pod) == ("Deployment", "shop", "web")
    assert times.markers(pod) == {"start-delay-seconds": "20"}
    pod["spec"]["containers"][0]["readinessProbe"] = {"initialDelaySeconds": 15}
    assert times.markers(pod) == {"start-delay-seconds": "5"}


def test_run_time_of_a_job_is_that_of_its_successful_pods():
    state = new_state()
    metadata = bare_pod("report-1")
    metadata["ownerReferences"] = [{"kind": "Job", "name": "report", "uid": "j", "controller": True}]
    add_pod(state, metadata, pod_template()["spec"], "n-1")
    (pod,) = state.of(PODS).values()
    ended = {"startedAt": "2026-03-01T11:00:00Z", "finishedAt": "2026-03-01T11:01:30Z"}
    pod["status"] = {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": ended}}]}
    assert RunTimes(state).run_seconds == {("Job", "shop", "report"): 90.0}


def test_failing_pods_are_those_that_wait_after_a_failure():
    state = new_state()
    add_pod(state, bare_pod("x"), pod_template()["spec"], "n-1")
    (pod,) = state.of(PODS).values()
    pod["status"]["containerStatuses"] = [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
    times = RunTimes(state)
    assert times.failing == {"uid-x": "CrashLoopBackOff"}
    assert times.markers(pod) == {"not-ready": "true"}


def test_present_fields_have_the_stored_values():
    applied = {"replicas": 2, "gone": 1, "containers": [{"name": "a", "image": "1"}, {"name": "b"}], "args": [1]}
    stored = {"replicas": 5, "containers": [{"name": "a", "image": "2", "tty": True}], "args": [2], "other": 1}
    assert present_fields(applied, stored) == {"replicas": 5, "containers": [{"name": "a", "image": "2"}], "args": [2]}


def webhook(namespace_selector=None, **rule):
    rules = [{"operations": ["*"], "apiGroups": ["*"], "resources": ["*"], **rule}]
    return {
        "name": "w.example.com",
        "rules": rules,
        **({"namespaceSelector": namespace_selector} if namespace_selector else {}),
    }


@pytest.mark.parametrize(
    ("hook", "is_called"),
    [
        (webhook(), True),
        (webhook(operations=["UPDATE"]), False),
        (webhook(apiGroups=["apps"]), False),
        (webhook(resources=["deployments"]), False),
        (webhook({"matchLabels": {"mesh": "on"}}), True),
        (webhook({"matchLabels": {"mesh": "off"}}), False),
        (
            webhook(
                {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["shop"]}]}
            ),
            False,
        ),
    ],
)
def test_webhooks_that_would_be_called_are_named(hook, is_called):
    state = new_state()
    state.of(NAMESPACES)["shop"]["metadata"]["labels"] = {"mesh": "on"}
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        state.put(resource, {"metadata": {"name": "c"}, "webhooks": [hook]})
    assert len([*uncalled_webhooks(state, "x", {PODS: {"shop"}})]) == (2 if is_called else 0)


def test_preparation_removes_owners_that_do_not_exist_and_marks_failed_nodes():
    state = new_state()
    add_node(state, "n-1")
    state.of(NODES)["n-1"]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    metadata = bare_pod("x")
    metadata["ownerReferences"] = [{"kind": "CloneSet", "name": "c", "uid": "none", "controller": True}]
    add_pod(state, metadata, pod_template()["spec"], "n-1")
    result, findings = prepared(state, "file")
    assert "ownerReferences" not in result.of(PODS)["shop/x"]["metadata"]
    assert result.of(NODES)["n-1"]["metadata"]["annotations"] == {"kubeloop.dev/fail": "not-ready"}
    assert [finding.place for finding in findings] == ["file"]
    assert "ownerReferences" in state.of(PODS)["shop/x"]["metadata"]
    assert not gates_of(state).enabled("GenericWorkload")


@pytest.mark.virtual_time
async def test_history_has_the_times_of_a_pod():
    history = PodHistory()
    pod = {"metadata": {"name": "x", "namespace": "shop", "uid": "u"}, "spec": {}, "status": {}}
    bound = {**pod, "spec": {"nodeName": "n-1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    before, now = StoredObject("shop/x", pod, 1), StoredObject("shop/x", bound, 2)
    for change in (
        Change("ADDED", before, None, 0),
        Change("MODIFIED", now, before, 0),
        Change("DELETED", now, now, 0),
    ):
        history.receive(change)
    (times,) = history
    assert (times.created_at, times.bound_at, times.ready_at, times.gone_at, times.node) == (0, 0, 0, 0, "n-1")
    assert history.get("u") is times
    assert is_pending(pod)
    assert not is_pending(bound)
