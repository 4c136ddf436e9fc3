"""Functions of the Deployment controller and of adoption, compared with tables recorded from v1.36."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubeloop.controllers.deployment import deployment_status as status
from kubeloop.controllers.deployment import new_replica_set, replica_sets, rolling_update, sync
from kubeloop.controllers.deployment.deployment_controller import DeploymentController
from kubeloop.controllers.replicaset.pod_groups import pod_group_key
from kubeloop.controllers.runtime.integers import InvalidInteger, InvalidIntOrPercent
from kubeloop.controllers.runtime.owners.adoption import CannotAdopt, Claim, ClaimErrors, claim_objects, decide_claim
from kubeloop.controllers.runtime.pods.pod_availability import is_active
from kubeloop.controllers.runtime.revisions import pod_template_hash
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.controllers.runtime.writes.status_delay import StatusDelay
from kubeloop.kube.errors import from_status
from kubeloop.kube.objects.api_types import (
    ApiStatus,
    Condition,
    Deployment,
    DeploymentStatus,
    LabelSelector,
    Pod,
    ReplicaSet,
    convert,
    to_json,
)
from kubeloop.kube.objects.object_fields import replicas_of
from kubeloop.kube.selectors.selectors import SelectorError, selector_from
from support.comparison import replay_server
from support.comparison.replay_server import plain
from support.traces.disabled_recorders import DisabledReconcileRecorder


def deployment_with(replicas: int = 1, **spec: Any) -> Deployment:
    return convert(Deployment, {"metadata": {"name": "d", "uid": "u"}, "spec": {"replicas": replicas, **spec}})


def replica_set_with(name: str = "rs", replicas: int = 0, **more: Any) -> ReplicaSet:
    metadata = {"name": name, "uid": name, **more.pop("metadata", {})}
    return convert(ReplicaSet, {"metadata": metadata, "spec": {"replicas": replicas}, **more})


def conditions(value: Any) -> list[Any]:
    return [to_json(convert(Condition, condition)) for condition in value or []]


def test_resolve_fenceposts(rows):
    for inputs, outputs in rows("resolve_fenceposts"):
        try:
            resolved = rolling_update.resolve_fenceposts(
                inputs["max_surge"], inputs["max_unavailable"], inputs["desired"]
            )
            error = None
        except InvalidIntOrPercent as invalid:
            resolved, error = (0, 0), str(invalid)
        assert (*resolved, error) == (outputs["surge"], outputs["unavailable"], outputs["error"]), inputs


def test_max_surge_unavailable(rows):
    for inputs, outputs in rows("max_surge_unavailable"):
        deployment = deployment_with(inputs["replicas"], strategy=inputs["strategy"])
        assert rolling_update.max_surge(deployment) == outputs["max_surge"], inputs
        assert rolling_update.max_unavailable(deployment) == outputs["max_unavailable"], inputs
        unavailable = rolling_update.max_unavailable(deployment)
        minimum = replicas_of(deployment) - unavailable if rolling_update.is_rolling_update(deployment) else 0
        assert minimum == outputs["min_available"], inputs


def test_new_rs_new_replicas(rows):
    for inputs, outputs in rows("new_rs_new_replicas"):
        deployment = deployment_with(inputs["replicas"], strategy=inputs["strategy"])
        all_rss = [replica_set_with(str(index), size) for index, size in enumerate(inputs["all_rs_replicas"])]
        try:
            size, failed = rolling_update.new_rs_new_replicas(deployment, all_rss, inputs["new_rs_replicas"]), None
        except (InvalidIntOrPercent, rolling_update.UnsupportedStrategy) as error:
            size, failed = 0, str(error)
        assert (size, failed) == (outputs["new_replicas"], outputs["error"]), inputs


def test_replicaset_proportion(rows):
    for inputs, outputs in rows("replicaset_proportion"):
        deployment = convert(
            Deployment,
            {
                "spec": {"replicas": inputs["replicas"], "strategy": inputs["strategy"]},
                "status": {"replicas": inputs["status_replicas"]},
            },
        )
        annotation = inputs["max_replicas_annotation"]
        annotations = {} if annotation is None else {replica_sets.MAX_REPLICAS: annotation}
        rs = replica_set_with("rs", inputs["rs_replicas"], metadata={"annotations": annotations})
        share = rolling_update.replica_set_proportion(rs, deployment, inputs["to_add"], inputs["added"])
        assert share == outputs["proportion"], inputs


async def test_scale(rows):
    for inputs, outputs in rows("scale"):
        deployment = convert(Deployment, inputs["deployment"])
        all_rss = [*inputs["old_rss"], *([inputs["new_rs"]] if inputs["new_rs"] else [])]
        api = replay_server.ReplayServer({"state": {"deployments": [inputs["deployment"]], "replicasets": all_rss}})
        clock = replay_server.SetClock(datetime(2026, 1, 1, tzinfo=UTC))
        queue = replay_server.RecordingQueue()
        context = replay_server.replay_context(api, clock, queue)
        deployment_sync = sync.DeploymentSync(
            deployment,
            [],
            context=context,
            consistency=ConsistencyStore({}),
            status_delay=StatusDelay(queue, 0.0),
            reconcile=DisabledReconcileRecorder().reconcile("deployment", deployment.key),
        )
        new_rs = convert(ReplicaSet, inputs["new_rs"]) if inputs["new_rs"] else None
        await deployment_sync.scale_replica_sets(new_rs, [convert(ReplicaSet, rs) for rs in inputs["old_rss"]])
        updates = [
            {
                "annotations": call["object"]["metadata"].get("annotations") or {},
                "name": call["name"],
                "replicas": call["object"]["spec"].get("replicas", 0),
            }
            for call in api.calls
        ]
        assert outputs["error"] is None
        assert updates == outputs["updates"], inputs["deployment"]["metadata"]["uid"]
        assert [event.message for event in context.events.events] == outputs["events"]


def test_find_replicasets(rows):
    for inputs, outputs in rows("find_replicasets"):
        deployment = convert(Deployment, inputs["deployment"])
        all_rss = [convert(ReplicaSet, rs) for rs in inputs["replicasets"]]
        new_rs = replica_sets.find_new_replica_set(deployment, all_rss)
        old_rss = replica_sets.find_old_replica_sets(new_rs, all_rss)
        latest = rolling_update.find_active_or_latest(new_rs, old_rss)
        calculated = status.calculate_status(deployment, all_rss, new_rs, datetime(2026, 1, 1, tzinfo=UTC))
        assert calculated.unavailable_replicas == max(0, outputs.pop("spec_replicas") - outputs["available"])
        assert {
            "active_or_latest": latest and latest.metadata.name,
            "actual_replicas": calculated.replicas,
            "available": calculated.available_replicas,
            "new": new_rs and new_rs.metadata.name,
            "new_is_saturated": rolling_update.is_saturated(deployment, new_rs),
            "old_all": [rs.metadata.name for rs in old_rss],
            "old_with_replicas": [rs.metadata.name for rs in old_rss if replicas_of(rs) != 0],
            "ready": calculated.ready_replicas,
            "terminating": calculated.terminating_replicas,
        } == outputs


def test_set_new_rs_annotations(rows):
    for inputs, outputs in rows("set_new_rs_annotations"):
        deployment = deployment_with(inputs["replicas"], strategy=inputs["strategy"])
        sizes = {} if inputs["exists"] else rolling_update.replicas_annotations(deployment)
        annotations, changed = new_replica_set.new_replica_set_annotations(
            inputs["deployment_annotations"] or {},
            inputs["rs_annotations"] or {},
            inputs["new_revision"],
            replicas=sizes,
            max_history_chars=inputs["history_limit_chars"],
        )
        assert (annotations, changed) == (outputs["rs_annotations"] or {}, outputs["changed"]), inputs


def test_revisions(rows):
    for inputs, outputs in rows("revisions"):
        all_rss = [
            replica_set_with(metadata={"annotations": {} if text is None else {replica_sets.REVISION: text}})
            for text in inputs["revision_annotations"]
        ]
        revisions = []
        for rs in all_rss:
            try:
                revisions.append({"error": None, "revision": replica_sets.revision_of(rs)})
            except InvalidInteger as error:
                revisions.append({"error": str(error), "revision": error.nearest})
        assert revisions == outputs["each"], inputs
        assert replica_sets.max_revision(all_rss) == outputs["max"], inputs
        assert replica_sets.last_revision(all_rss) == outputs["last"], inputs


def test_deployment_complete_progressing_timedout(rows):
    for inputs, outputs in rows("deployment_complete_progressing_timedout"):
        deployment = convert(
            Deployment,
            {
                "metadata": {"generation": inputs["generation"]},
                "spec": {
                    "replicas": inputs["replicas"],
                    "progressDeadlineSeconds": inputs["progress_deadline_seconds"],
                },
                "status": inputs["status"],
            },
        )
        new_status = convert(DeploymentStatus, inputs["new_status"])
        assert {
            "complete": status.is_complete(deployment, new_status),
            "has_progress_deadline": status.has_progress_deadline(deployment),
            "progressing": status.is_progressing(deployment, new_status),
            "timed_out": status.is_timed_out(deployment, new_status, replay_server.moment(inputs["now"])),
        } == outputs, inputs


def test_set_deployment_condition(rows):
    for inputs, outputs in rows("set_deployment_condition"):
        before = convert(DeploymentStatus, {"conditions": inputs["conditions"]})
        condition = convert(Condition, inputs["condition"])
        after = status.with_condition(before, condition)
        assert [to_json(condition) for condition in after.conditions] == conditions(outputs["after_set"]), inputs
        removed = status.without_condition(after, condition.type)
        assert [to_json(condition) for condition in removed.conditions] == conditions(
            outputs["after_remove_of_that_type"]
        ), inputs


def test_calculate_status_deployment(rows):
    for inputs, outputs in rows("calculate_status_deployment"):
        all_rss = [convert(ReplicaSet, rs) for rs in inputs["replicasets"]]
        new_rs = next((rs for rs in all_rss if rs.metadata.name == inputs["new_rs"]), None)
        calculated = status.calculate_status(
            convert(Deployment, inputs["deployment"]), all_rss, new_rs, replay_server.moment(inputs["now"])
        )
        assert plain(to_json(calculated), "apps/v1.DeploymentStatus") == plain(
            outputs["status"], "apps/v1.DeploymentStatus"
        )


def test_replica_failures(rows):
    for inputs, outputs in rows("replica_failures"):
        all_rss = [
            replica_set_with(rs["name"], status={"conditions": rs["conditions"]}) for rs in inputs["replicasets"]
        ]
        new_rs = next((rs for rs in all_rss if rs.metadata.name == inputs["new_rs"]), None)
        failures = status.replica_failures(all_rss, new_rs)
        assert [to_json(condition) for condition in failures] == conditions(outputs["conditions"]), inputs


async def test_requeue_stuck(rows):
    for inputs, outputs in rows("requeue_stuck"):
        deployment = convert(Deployment, inputs["deployment"])
        new_status = convert(DeploymentStatus, inputs["new_status"])
        now = replay_server.moment(inputs["now"])
        left = status.seconds_until_progress_deadline(deployment, new_status, now)
        queue, clock = replay_server.RecordingQueue(), replay_server.SetClock(now)
        api = replay_server.ReplayServer({"state": {}})
        context = replay_server.replay_context(api, clock, queue)
        controller = DeploymentController(context)
        after = controller._recheck_seconds(deployment.key, left)
        if after is not None:
            queue.add_after(deployment.key, after)
        assert queue.calls == outputs["queue"], inputs["now"]
        assert (-1 if left is None else left if left >= 1 else 0) == outputs["returned_seconds"]


def test_equal_ignore_hash(rows):
    for inputs, outputs in rows("equal_ignore_hash"):
        a, b = inputs["a"], inputs["b"]
        assert pod_template_hash.equal_ignore_hash(a, b) == outputs["equal"], inputs["difference"]
        equal = pod_template_hash.canonical(a) == pod_template_hash.canonical(b)
        assert equal == outputs["semantic_equal_with_hash"], inputs["difference"]


def test_pod_template_hash(rows):
    for inputs, outputs in rows("pod_template_hash"):
        if "hashed_text" in outputs:
            assert pod_template_hash.dump(inputs["template"]) == outputs["hashed_text"]
        value = pod_template_hash.pod_template_hash(inputs["template"], inputs["collision_count"])
        assert value == outputs["hash"]
        assert new_replica_set.replica_set_name(inputs["deployment_name"], value) == outputs["replicaset_name"]


def test_replicaset_orders(rows):
    for inputs, outputs in rows("replicaset_orders"):
        all_rss = [
            replica_set_with(
                rs["name"],
                rs["replicas"],
                metadata={
                    "annotations": rs.get("annotations") or {},
                    "creationTimestamp": rs["creationTimestamp"],
                },
            )
            for rs in inputs["replicasets"]
        ]
        assert {
            "by_creation": [rs.metadata.name for rs in replica_sets.sort_by_creation(all_rss)],
            "by_revision": [rs.metadata.name for rs in replica_sets.sort_by_revision(all_rss)],
            "by_size_newer": [rs.metadata.name for rs in replica_sets.sort_by_size_newer(all_rss)],
            "by_size_older": [rs.metadata.name for rs in replica_sets.sort_by_size_older(all_rss)],
        } == outputs


def test_rollback_annotation(rows):
    for inputs, outputs in rows("rollback_annotation"):
        annotation = inputs["annotation"]
        annotations = {} if annotation is None else {replica_sets.ROLLBACK_TO: annotation}
        deployment = convert(Deployment, {"metadata": {"annotations": annotations}})
        assert sync.rollback_revision(deployment) == outputs["revision"], inputs


def test_rollback_template(rows):
    for inputs, outputs in rows("rollback_template"):
        annotations = replica_sets.rolled_back_annotations(
            inputs["deployment_annotations"] or {}, inputs["rs_annotations"] or {}
        )
        assert annotations == (outputs["deployment_annotations"] or {}), inputs
        template = pod_template_hash.without_hash_label(inputs["rs_template"])
        assert plain(template, "core/v1.PodTemplateSpec") == plain(
            outputs["deployment_template"], "core/v1.PodTemplateSpec"
        )


async def claim_recorded(inputs: Any, outputs: Any, type_: Any, objects: str) -> None:
    owner_type = Deployment if type_ is ReplicaSet else ReplicaSet
    owner = convert(owner_type, inputs["controller"])
    refusal, errors = inputs["can_adopt_error"], inputs["patch_errors"] or {}
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
        error = from_status(convert(ApiStatus, as_status(errors[metadata.name]))) if metadata.name in errors else None
        patches.append((metadata.namespace, metadata.name, body, replay_server.comparable_error(error)))
        if error is not None:
            raise error

    failed: Exception | None = None
    selector = selector_from(owner.spec.selector)
    try:
        result = await claim_objects(
            owner, [convert(type_, obj) for obj in inputs[objects]], selector, read_fresh=read_fresh, patch=patch
        )
    except ClaimErrors as error:
        failed, result = error, list(error.claimed)
    assert [obj.metadata.name for obj in result] == outputs["claimed"]
    assert replay_server.comparable_error(failed) == replay_server.recorded_error(outputs["error"])
    assert patches == [
        (recorded["namespace"], recorded["name"], recorded["patch"], replay_server.recorded_error(recorded["error"]))
        for recorded in outputs["patches"]
    ]
    # As in v1.36, the owner is read at most once per claim.
    assert reads == min(outputs["can_adopt_calls"], 1)


def as_status(error: Any) -> Any:
    causes = [{"reason": reason} for reason in error.get("causes", [])]
    return {**error, "causes": None, "details": {"causes": causes}}


async def test_claim_pods(rows):
    for inputs, outputs in rows("claim_pods"):
        await claim_recorded(inputs, outputs, Pod, "pods")


async def test_claim_replicasets(rows):
    for inputs, outputs in rows("claim_replicasets"):
        await claim_recorded(inputs, outputs, ReplicaSet, "replicasets")


def test_filter_pods(rows):
    for inputs, outputs in rows("filter_pods"):
        pods = [convert(Pod, pod) for pod in inputs["pods"]]
        rs = convert(ReplicaSet, inputs["replicaset"])
        selector = selector_from(rs.spec.selector)
        terminating = [pod.metadata.name for pod in pods if pod_group_key(pod).state == "terminating"]
        owned = [pod.metadata.name for pod in pods if decide_claim(rs, pod, selector) is Claim.OWNED]
        assert [pod.metadata.name for pod in pods if is_active(pod)] == outputs["active"]
        assert terminating == outputs["terminating"]
        assert len(terminating) == outputs["terminating_count"]
        assert owned == outputs["claimed"]


def test_selector_matches(rows):
    for inputs, outputs in rows("selector_matches"):
        label_selector = inputs["selector"]
        try:
            selector = selector_from(None if label_selector is None else convert(LabelSelector, label_selector))
        except SelectorError:
            assert not outputs["valid"], inputs
            continue
        assert outputs["valid"], inputs
        assert selector.empty == outputs["empty"], inputs
        for case in outputs["cases"]:
            assert selector.matches(case["labels"]) == case["matches"], (inputs, case)
