"""Pods that a sync creates or deletes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.controllers.job.pod_plan import JobPodPlan, plan_pods, pod_bodies
from kubeloop.controllers.job.policies.pod_backoff import BackoffRecord
from support.objects.job_objects import NOW, at, new_job, new_pod, state_of

INDEX = "batch.kubernetes.io/job-completion-index"
COUNT = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"
INDEXED = {"completionMode": "Indexed", "completions": 5, "parallelism": 3}


def names(plan: JobPodPlan) -> list[str]:
    return [pod.metadata.name for pod in plan.delete]


@pytest.mark.parametrize(
    ("spec", "phases", "create"),
    [
        pytest.param({"parallelism": 3, "completions": 9}, ["Running"], 2, id="up to parallelism"),
        pytest.param({"parallelism": 9, "completions": 3}, ["Succeeded", "Running"], 1, id="up to completions"),
        pytest.param({"parallelism": 0, "completions": 3}, [], 0, id="no parallelism"),
        pytest.param({"parallelism": 3}, ["Running"], 2, id="work queue"),
        pytest.param({"parallelism": 3}, ["Running", "Succeeded"], 0, id="work queue after a success"),
        pytest.param({"parallelism": 900, "completions": 900}, [], 500, id="never more than 500"),
    ],
)
def test_number_of_pods_to_create(spec, phases, create):
    state = state_of(new_job(**spec), *(new_pod(f"p{number}", phase) for number, phase in enumerate(phases)))
    assert plan_pods(state, NOW) == JobPodPlan(create=create)


def test_surplus_pods_are_deleted_least_progress_first():
    pods = [new_pod("running"), new_pod("pending", "Pending")]
    assert names(plan_pods(state_of(new_job(), *pods), NOW)) == ["pending"]
    assert names(plan_pods(state_of(new_job(suspend=True), *pods), NOW)) == ["pending", "running"]


def test_failed_pods_are_replaced_after_the_backoff():
    state = state_of(new_job(), backoff=BackoffRecord(2, NOW))
    assert plan_pods(state, NOW) == JobPodPlan(wait_seconds=20)


@pytest.mark.parametrize(("policy", "create"), [("TerminatingOrFailed", 1), ("Failed", 0)])
def test_terminating_pod_is_replaced_by_policy(policy, create):
    state = state_of(new_job(podReplacementPolicy=policy), new_pod("p", deleted=True), backoff=BackoffRecord())
    plan = plan_pods(state, NOW)
    assert (plan.create or bool(plan.wait_seconds)) == create


def test_lowest_free_indexes_are_created():
    job = new_job(**INDEXED, status={"completedIndexes": "1", "succeeded": 1})
    assert plan_pods(state_of(job, new_pod("p", index=2)), NOW) == JobPodPlan(create=2, indexes=[0, 3])


def test_repeated_and_invalid_indexes_are_deleted_first():
    pods = [
        new_pod("a", index=1),
        new_pod("b", "Pending", index=1),
        new_pod("c", index=0),
        new_pod("none"),
        new_pod("high", index=5),
    ]
    assert names(plan_pods(state_of(new_job(**INDEXED), *pods), NOW)) == ["high", "none", "b"]


def test_each_index_has_its_own_backoff():
    job = new_job(**INDEXED, backoffLimitPerIndex=9)
    failed = new_pod("p", "Failed", index=1, annotations={COUNT: "3", IGNORED: "1"})
    assert plan_pods(state_of(job, failed), NOW) == JobPodPlan(create=2, indexes=[0, 2])
    others = [new_pod(f"p{index}", index=index) for index in (0, 2)]
    assert plan_pods(state_of(job, failed, *others), NOW) == JobPodPlan(wait_seconds=60)  # 160 s, 100 s ago


def test_bodies_of_indexed_pods():
    container = {"name": "c", "env": [{"name": "A"}]}
    named = {"name": "n", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]}
    template = {
        "metadata": {"labels": {"app": "j"}, "annotations": {"x": "y"}, "finalizers": ["a/b"]},
        "spec": {"containers": [container, named], "initContainers": [{"name": "i"}]},
    }
    state = state_of(new_job(**INDEXED, template=template))
    first, second = pod_bodies(state, JobPodPlan(create=2, indexes=[0, 3]))
    variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}}
    assert second["metadata"]["generateName"] == "j-3-"
    assert second["metadata"]["labels"] == {"app": "j", INDEX: "3"}
    assert second["metadata"]["annotations"] == {"x": "y", INDEX: "3"}
    assert second["metadata"]["finalizers"] == ["a/b", "batch.kubernetes.io/job-tracking"]
    assert second["metadata"]["ownerReferences"][0]["uid"] == "uid-j"
    assert (first["spec"]["hostname"], second["spec"]["hostname"]) == ("j-0", "j-3")
    assert second["spec"]["containers"] == [{**container, "env": [{"name": "A"}, variable]}, named]
    assert second["spec"]["initContainers"] == [{"name": "i", "env": [variable]}]
    assert container["env"] == [{"name": "A"}]


def test_bodies_without_indexes_have_the_finalizer_only():
    (body,) = pod_bodies(state_of(new_job()), JobPodPlan(create=1))
    assert body["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    assert body["metadata"]["generateName"] == "j-"
    assert "hostname" not in body["spec"]


@pytest.mark.parametrize(
    ("disrupted", "counts"),
    [pytest.param(False, {COUNT: "3"}, id="counted"), pytest.param(True, {COUNT: "2", IGNORED: "1"}, id="ignored")],
)
def test_replacement_takes_over_the_failure_counts(disrupted, counts):
    conditions = [{"type": "X", "status": "True"}]
    policy = {"rules": [{"action": "Ignore", "onPodConditions": conditions}]}
    job = new_job(**INDEXED, backoffLimitPerIndex=9, podFailurePolicy=policy)
    failed = new_pod("p", "Failed", index=1, annotations={COUNT: "2"}, conditions=conditions if disrupted else [])
    new, replacement = pod_bodies(state_of(job, failed), JobPodPlan(create=2, indexes=[0, 1]))
    assert new["metadata"]["annotations"] == {INDEX: "0", COUNT: "0"}
    assert replacement["metadata"]["annotations"] == {INDEX: "1", **counts}


def test_long_names_leave_room_for_index_and_suffix():
    job = new_job(**INDEXED)
    metadata = type(job.metadata)(name="x" * 63, namespace="ns", uid="u")
    state = state_of(type(job)(api_version="batch/v1", kind="Job", metadata=metadata, spec=job.spec))
    (body,) = pod_bodies(state, JobPodPlan(create=1, indexes=[12]))
    assert body["metadata"]["generateName"] == "x" * 54 + "-12-"


JOB_PODS = [
    *(new_pod(f"first-{number}", index=0) for number in range(3)),
    *(new_pod(f"second-{number}", "Pending", index=1) for number in range(2)),
    new_pod("ready", index=1, conditions=[{"type": "Ready", "status": "True", "lastTransitionTime": at(-10)}]),
    new_pod("invalid", index=9),
    new_pod("without"),
    new_pod("terminating", index=3, deleted=True),
]


@given(pods=st.permutations(JOB_PODS))
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(INDEXED, id="indexed"),
        pytest.param({**INDEXED, "parallelism": 1}, id="indexed, too many"),
        pytest.param({**INDEXED, "podReplacementPolicy": "Failed"}, id="indexed, replaced when failed"),
        pytest.param({"parallelism": 2}, id="work queue"),
        pytest.param({"parallelism": 2, "suspend": True}, id="suspended"),
    ],
)
def test_plan_does_not_depend_on_the_order_of_the_cache(spec, pods):
    job = new_job(**spec)
    plan, expected = (plan_pods(state_of(job, *order), NOW) for order in (pods, JOB_PODS))
    assert (names(plan), plan.create, plan.indexes) == (names(expected), expected.create, expected.indexes)
    assert names(plan) or plan.create


@given(order=st.permutations(range(4)))
def test_indexes_to_create_do_not_depend_on_the_order_of_the_cache(order):
    active = [new_pod("a", index=2), new_pod("b", index=0), new_pod("c", index=6), new_pod("d", index=4)]
    job = new_job(completionMode="Indexed", completions=9, parallelism=9)
    assert plan_pods(state_of(job, *(active[index] for index in order)), NOW).indexes == [1, 3, 5, 7, 8]
