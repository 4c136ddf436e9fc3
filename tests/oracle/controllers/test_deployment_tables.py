"""The tables of single functions of the Deployment controller."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubeloop.controllers.deployment import pod_template, replica_sets, rolling_update, status, sync
from kubeloop.controllers.deployment.controller import DeploymentController
from kubeloop.controllers.runtime.adoption import CannotAdopt, Claim, ClaimErrors, claim_objects, decide_claim
from kubeloop.controllers.runtime.integers import InvalidInteger, InvalidIntOrPercent
from kubeloop.controllers.runtime.pod_status import is_active, is_terminating
from kubeloop.kube.errors import from_status
from kubeloop.kube.objects.api_types import (
    Condition,
    Deployment,
    DeploymentStatus,
    LabelSelector,
    Pod,
    ReplicaSet,
    Status,
    convert,
    to_json,
)
from kubeloop.kube.selectors import SelectorError, selector_from
from kubeloop.tracing.recording.pod_recorder import NoopRecorder
from support import recorded_client
from support.recorded_client import plain


def deployment_with(replicas: int = 1, **spec: Any) -> Deployment:
    return convert(Deployment, {"metadata": {"name": "d", "uid": "u"}, "spec": {"replicas": replicas, **spec}})


def replica_set_with(name: str = "rs", replicas: int = 0, **more: Any) -> ReplicaSet:
    metadata = {"name": name, "uid": name, **more.pop("metadata", {})}
    return convert(ReplicaSet, {"metadata": metadata, "spec": {"replicas": replicas}, **more})


def conditions(value: Any) -> list[Any]:
    return [to_json(convert(Condition, each)) for each in value or []]


def test_resolve_fenceposts(rows):
    for given, out in rows("resolve_fenceposts"):
        try:
            resolved = rolling_update.resolve_fenceposts(given["max_surge"], given["max_unavailable"], given["desired"])
            error = None
        except InvalidIntOrPercent as invalid:
            resolved, error = (0, 0), str(invalid)
        assert (*resolved, error) == (out["surge"], out["unavailable"], out["error"]), given


def test_max_surge_unavailable(rows):
    for given, out in rows("max_surge_unavailable"):
        deployment = deployment_with(given["replicas"], strategy=given["strategy"])
        assert rolling_update.max_surge(deployment) == out["max_surge"], given
        assert rolling_update.max_unavailable(deployment) == out["max_unavailable"], given
        assert rolling_update.min_available(deployment) == out["min_available"], given


def test_new_rs_new_replicas(rows):
    for given, out in rows("new_rs_new_replicas"):
        deployment = deployment_with(given["replicas"], strategy=given["strategy"])
        all_rss = [replica_set_with(str(index), size) for index, size in enumerate(given["all_rs_replicas"])]
        try:
            size, failed = rolling_update.new_rs_new_replicas(deployment, all_rss, given["new_rs_replicas"]), None
        except (InvalidIntOrPercent, rolling_update.UnsupportedStrategy) as error:
            size, failed = 0, str(error)
        assert (size, failed) == (out["new_replicas"], out["error"]), given


def test_replicaset_proportion(rows):
    for given, out in rows("replicaset_proportion"):
        deployment = convert(
            Deployment,
            {
                "spec": {"replicas": given["replicas"], "strategy": given["strategy"]},
                "status": {"replicas": given["status_replicas"]},
            },
        )
        annotation = given["max_replicas_annotation"]
        annotations = {} if annotation is None else {replica_sets.MAX_REPLICAS: annotation}
        rs = replica_set_with("rs", given["rs_replicas"], metadata={"annotations": annotations})
        share = rolling_update.replica_set_proportion(rs, deployment, given["to_add"], given["added"])
        assert share == out["proportion"], given


async def test_scale(rows):
    for given, out in rows("scale"):
        deployment = convert(Deployment, given["deployment"])
        all_rss = [*given["old_rss"], *([given["new_rs"]] if given["new_rs"] else [])]
        api = recorded_client.RecordingClient({"state": {"deployments": [given["deployment"]], "replicasets": all_rss}})
        events = recorded_client.RecordingEvents()
        one = sync.DeploymentSync(
            deployment,
            [],
            client=api,
            events=events,
            clock=recorded_client.SetClock(datetime(2026, 1, 1, tzinfo=UTC)),
            reconcile=NoopRecorder().reconcile("deployment", deployment.key),
            pods_by_rs=lambda: [],
            cached_rs=lambda key: None,
            on_write=lambda resource, version: None,
        )
        new_rs = convert(ReplicaSet, given["new_rs"]) if given["new_rs"] else None
        await one.scale_replica_sets(new_rs, [convert(ReplicaSet, rs) for rs in given["old_rss"]])
        updates = [
            {
                "annotations": call["object"]["metadata"].get("annotations") or {},
                "name": call["name"],
                "replicas": call["object"]["spec"].get("replicas", 0),
            }
            for call in api.calls
        ]
        assert out["error"] is None
        assert updates == out["updates"], given["deployment"]["metadata"]["uid"]
        assert [event["message"] for event in events.seen] == out["events"]


def test_find_replicasets(rows):
    for given, out in rows("find_replicasets"):
        deployment = convert(Deployment, given["deployment"])
        all_rss = [convert(ReplicaSet, rs) for rs in given["replicasets"]]
        new_rs = replica_sets.find_new_replica_set(deployment, all_rss)
        old_rss = replica_sets.find_old_replica_sets(new_rs, all_rss)
        latest = replica_sets.find_active_or_latest(new_rs, old_rss)
        assert {
            "active_or_latest": latest and latest.metadata.name,
            "actual_replicas": replica_sets.actual_replicas_sum(all_rss),
            "available": replica_sets.available_replicas_sum(all_rss),
            "new": new_rs and new_rs.metadata.name,
            "new_is_saturated": rolling_update.is_saturated(deployment, new_rs),
            "old_all": [rs.metadata.name for rs in old_rss],
            "old_with_replicas": [rs.metadata.name for rs in old_rss if replica_sets.replicas_of(rs) != 0],
            "ready": replica_sets.ready_replicas_sum(all_rss),
            "spec_replicas": replica_sets.spec_replicas_sum(all_rss),
            "terminating": replica_sets.terminating_replicas_sum(all_rss),
        } == out


def test_set_new_rs_annotations(rows):
    for given, out in rows("set_new_rs_annotations"):
        deployment = deployment_with(given["replicas"], strategy=given["strategy"])
        sizes = None
        if not given["exists"]:
            sizes = (given["replicas"], given["replicas"] + rolling_update.max_surge(deployment))
        annotations, changed = replica_sets.new_replica_set_annotations(
            given["deployment_annotations"] or {},
            given["rs_annotations"] or {},
            given["new_revision"],
            replicas=sizes,
            max_history_chars=given["history_limit_chars"],
        )
        assert (annotations, changed) == (out["rs_annotations"] or {}, out["changed"]), given


def test_revisions(rows):
    for given, out in rows("revisions"):
        all_rss = [
            replica_set_with(metadata={"annotations": {} if text is None else {replica_sets.REVISION: text}})
            for text in given["revision_annotations"]
        ]
        each = []
        for rs in all_rss:
            try:
                each.append({"error": None, "revision": replica_sets.revision_of(rs)})
            except InvalidInteger as error:
                each.append({"error": str(error), "revision": error.nearest})
        assert each == out["each"], given
        assert replica_sets.max_revision(all_rss) == out["max"], given
        assert replica_sets.last_revision(all_rss) == out["last"], given


def test_deployment_complete_progressing_timedout(rows):
    for given, out in rows("deployment_complete_progressing_timedout"):
        deployment = convert(
            Deployment,
            {
                "metadata": {"generation": given["generation"]},
                "spec": {
                    "replicas": given["replicas"],
                    "progressDeadlineSeconds": given["progress_deadline_seconds"],
                },
                "status": given["status"],
            },
        )
        new_status = convert(DeploymentStatus, given["new_status"])
        assert {
            "complete": status.is_complete(deployment, new_status),
            "has_progress_deadline": status.has_progress_deadline(deployment),
            "progressing": status.is_progressing(deployment, new_status),
            "timed_out": status.is_timed_out(deployment, new_status, recorded_client.moment(given["now"])),
        } == out, given


def test_set_deployment_condition(rows):
    for given, out in rows("set_deployment_condition"):
        before = convert(DeploymentStatus, {"conditions": given["conditions"]})
        condition = convert(Condition, given["condition"])
        after = status.with_condition(before, condition)
        assert [to_json(each) for each in after.conditions] == conditions(out["after_set"]), given
        removed = status.without_condition(after, condition.type)
        assert [to_json(each) for each in removed.conditions] == conditions(out["after_remove_of_that_type"]), given


def test_calculate_status_deployment(rows):
    for given, out in rows("calculate_status_deployment"):
        all_rss = [convert(ReplicaSet, rs) for rs in given["replicasets"]]
        new_rs = next((rs for rs in all_rss if rs.metadata.name == given["new_rs"]), None)
        calculated = status.calculate_status(
            convert(Deployment, given["deployment"]), all_rss, new_rs, recorded_client.moment(given["now"])
        )
        assert plain(to_json(calculated), "apps/v1.DeploymentStatus") == plain(
            out["status"], "apps/v1.DeploymentStatus"
        )


def test_replica_failures(rows):
    for given, out in rows("replica_failures"):
        all_rss = [
            replica_set_with(each["name"], status={"conditions": each["conditions"]}) for each in given["replicasets"]
        ]
        new_rs = next((rs for rs in all_rss if rs.metadata.name == given["new_rs"]), None)
        failures = status.replica_failures(all_rss, new_rs)
        assert [to_json(each) for each in failures] == conditions(out["conditions"]), given


async def test_requeue_stuck(rows):
    for given, out in rows("requeue_stuck"):
        deployment = convert(Deployment, given["deployment"])
        new_status = convert(DeploymentStatus, given["new_status"])
        now = recorded_client.moment(given["now"])
        left = status.seconds_until_progress_deadline(deployment, new_status, now)
        queue, clock = recorded_client.RecordingQueue(), recorded_client.SetClock(now)
        api = recorded_client.RecordingClient({"state": {}})
        controller = DeploymentController(
            api,
            recorded_client.filled_informers(api, {}, clock),
            clock=clock,
            recorder=recorded_client.RecordingEvents(),
            traces=NoopRecorder(),
            queue=queue,
        )
        after = controller._recheck_seconds(deployment.key, left)
        if after is not None:
            queue.add_after(deployment.key, after)
        assert queue.done == out["queue"], given["now"]
        assert (-1 if left is None else left if left >= 1 else 0) == out["returned_seconds"]


def test_equal_ignore_hash(rows):
    for given, out in rows("equal_ignore_hash"):
        a, b = given["a"], given["b"]
        assert pod_template.equal_ignore_hash(a, b) == out["equal"], given["difference"]
        equal = pod_template.canonical(a) == pod_template.canonical(b)
        assert equal == out["semantic_equal_with_hash"], given["difference"]


def test_pod_template_hash(rows):
    for given, out in rows("pod_template_hash"):
        if "hashed_text" in out:
            assert pod_template.dump(given["template"]) == out["hashed_text"]
        value = pod_template.pod_template_hash(given["template"], given["collision_count"])
        assert value == out["hash"]
        assert sync.replica_set_name(given["deployment_name"], value) == out["replicaset_name"]


def test_replicaset_orders(rows):
    for given, out in rows("replicaset_orders"):
        all_rss = [
            replica_set_with(
                each["name"],
                each["replicas"],
                metadata={
                    "annotations": each.get("annotations") or {},
                    "creationTimestamp": each["creationTimestamp"],
                },
            )
            for each in given["replicasets"]
        ]
        assert {
            "by_creation": [rs.metadata.name for rs in replica_sets.sort_by_creation(all_rss)],
            "by_revision": [rs.metadata.name for rs in replica_sets.sort_by_revision(all_rss)],
            "by_size_newer": [rs.metadata.name for rs in replica_sets.sort_by_size_newer(all_rss)],
            "by_size_older": [rs.metadata.name for rs in replica_sets.sort_by_size_older(all_rss)],
        } == out


def test_rollback_annotation(rows):
    for given, out in rows("rollback_annotation"):
        annotation = given["annotation"]
        annotations = {} if annotation is None else {replica_sets.ROLLBACK_TO: annotation}
        deployment = convert(Deployment, {"metadata": {"annotations": annotations}})
        assert sync.rollback_revision(deployment) == out["revision"], given


def test_rollback_template(rows):
    for given, out in rows("rollback_template"):
        annotations = replica_sets.rolled_back_annotations(
            given["deployment_annotations"] or {}, given["rs_annotations"] or {}
        )
        assert annotations == (out["deployment_annotations"] or {}), given
        template = pod_template.without_hash_label(given["rs_template"])
        assert plain(template, "core/v1.PodTemplateSpec") == plain(
            out["deployment_template"], "core/v1.PodTemplateSpec"
        )


async def claimed(given: Any, out: Any, type_: Any, objects: str) -> None:
    owner_type = Deployment if type_ is ReplicaSet else ReplicaSet
    owner = convert(owner_type, given["controller"])
    refusal, errors = given["can_adopt_error"], given["patch_errors"] or {}
    reads = 0
    patches: list[Any] = []

    async def read_fresh() -> Any:
        nonlocal reads
        reads += 1
        if refusal is not None:
            raise CannotAdopt(refusal)
        return owner

    async def patch(obj: Any, body: Any, claim: Claim) -> None:
        metadata = obj.metadata
        error = from_status(convert(Status, as_status(errors[metadata.name]))) if metadata.name in errors else None
        patches.append((metadata.namespace, metadata.name, body, recorded_client.comparable_error(error)))
        if error is not None:
            raise error

    failed: Exception | None = None
    selector = selector_from(owner.spec.selector)
    try:
        result = await claim_objects(
            owner, [convert(type_, each) for each in given[objects]], selector, read_fresh=read_fresh, patch=patch
        )
    except ClaimErrors as error:
        failed, result = error, list(error.claimed)
    assert [obj.metadata.name for obj in result] == out["claimed"]
    assert recorded_client.comparable_error(failed) == recorded_client.recorded_error(out["error"])
    assert patches == [
        (each["namespace"], each["name"], each["patch"], recorded_client.recorded_error(each["error"]))
        for each in out["patches"]
    ]
    # Asked again in the same claim, v1.36 remembers the answer; so do we.
    assert reads == min(out["can_adopt_calls"], 1)


def as_status(error: Any) -> Any:
    causes = [{"reason": reason} for reason in error.get("causes", [])]
    return {**error, "causes": None, "details": {"causes": causes}}


async def test_claim_pods(rows):
    for given, out in rows("claim_pods"):
        await claimed(given, out, Pod, "pods")


async def test_claim_replicasets(rows):
    for given, out in rows("claim_replicasets"):
        await claimed(given, out, ReplicaSet, "replicasets")


def test_filter_pods(rows):
    for given, out in rows("filter_pods"):
        pods = [convert(Pod, pod) for pod in given["pods"]]
        rs = convert(ReplicaSet, given["replicaset"])
        selector = selector_from(rs.spec.selector)
        terminating = [pod.metadata.name for pod in pods if is_terminating(pod)]
        ours = [pod.metadata.name for pod in pods if decide_claim(rs, pod, selector) is Claim.OWNED]
        assert [pod.metadata.name for pod in pods if is_active(pod)] == out["active"]
        assert terminating == out["terminating"]
        assert len(terminating) == out["terminating_count"]
        assert ours == out["claimed"]


def test_selector_matches(rows):
    for given, out in rows("selector_matches"):
        wanted = given["selector"]
        try:
            selector = selector_from(None if wanted is None else convert(LabelSelector, wanted))
        except SelectorError:
            assert not out["valid"], given
            continue
        assert out["valid"], given
        assert selector.empty == out["empty"], given
        for case in out["cases"]:
            assert selector.matches(case["labels"]) == case["matches"], (given, case)
