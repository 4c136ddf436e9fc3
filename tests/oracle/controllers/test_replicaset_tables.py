"""Functions of the ReplicaSet controller and of the shared runtime, compared with tables recorded from v1.36."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.controllers.replicaset.pod_deletion_order import (
    DELETION_COST,
    AgeBuckets,
    InvalidDeletionCost,
    TiedPod,
    deletion_cost,
    deletion_order,
    deletion_sort_key,
    pods_to_delete,
)
from kubeloop.controllers.replicaset.related_pods import active_pods_per_node
from kubeloop.controllers.replicaset.replica_set_status import replica_set_status
from kubeloop.controllers.runtime.controller import StaleCache
from kubeloop.controllers.runtime.pods.pod_availability import is_available, next_availability_seconds
from kubeloop.controllers.runtime.pods.pod_template import pod_from_template
from kubeloop.controllers.runtime.pods.slow_start import slow_start_batch
from kubeloop.controllers.runtime.queue import rate_limiter
from kubeloop.controllers.runtime.queue.rate_limiter import (
    BucketRateLimiter,
    ItemExponentialFailureRateLimiter,
    controller_rate_limiter,
)
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.controllers.runtime.writes.expectations import Expectations
from kubeloop.kube.objects.api_types import Pod, ReplicaSet, convert, to_json
from kubeloop.kube.objects.object_fields import is_ready
from support.comparison import replay_server
from support.comparison.replay_server import plain
from support.objects.pod_groups import group_pods


class ManualClock:
    """A clock that tests set."""

    now_ns = 0

    def seconds(self) -> float:
        return self.now_ns / 1e9


def test_pods_to_delete(rows):
    for inputs, outputs in rows("pods_to_delete"):
        pods = [convert(Pod, pod) for pod in inputs["pods"]]
        related = [convert(Pod, pod) for pod in inputs["related_pods"]]
        now = replay_server.moment(inputs["now"])
        counts = active_pods_per_node(related)
        assert {pod.metadata.name: counts.get(pod.spec.node_name, 0) for pod in pods} == outputs["ranks"]
        chosen = [pod.metadata.name for pod in pods_to_delete(pods, lambda counts=counts: counts, inputs["diff"], now)]
        if len(chosen) == len(pods):
            assert sorted(chosen) == sorted(outputs["delete"])
        elif outputs["well_defined"]:
            assert chosen == outputs["delete"]
        else:
            assert len(chosen) == inputs["diff"]
        if outputs["well_defined"] and outputs.get("order"):
            assert [pod.metadata.name for pod in deletion_order(pods, counts, now)] == outputs["order"]


def test_pod_less(rows):
    for inputs, outputs in rows("pod_less"):
        ages = AgeBuckets(replay_server.moment(inputs["now"]))
        a, b = (
            (deletion_sort_key(pod, inputs[f"rank_{name}"], ages), TiedPod(pod, ages))
            for name, pod in ((name, convert(Pod, inputs[name])) for name in ("a", "b"))
        )
        assert ((a < b), (b < a)) == (outputs["a_before_b"], outputs["b_before_a"]), inputs


def test_pod_deletion_cost(rows):
    for inputs, outputs in rows("pod_deletion_cost"):
        annotation = inputs["annotation"]
        try:
            cost, failed = deletion_cost({} if annotation is None else {DELETION_COST: annotation}), False
        except InvalidDeletionCost:
            cost, failed = 0, True
        assert failed == (outputs["error"] is not None), inputs
        assert failed or cost == outputs["cost"], inputs


async def test_slow_start_batch(rows):
    for inputs, outputs in rows("slow_start_batch"):
        calls = 0

        async def call(inputs: Any = inputs) -> None:
            nonlocal calls
            calls += 1
            from_call = inputs["failing_from_call"]
            if calls in (inputs["failing_calls"] or ()) or (from_call and calls >= from_call):
                raise RuntimeError("boom")

        succeeded, error = await slow_start_batch(
            inputs["count"], call, initial_batch_size=inputs["initial_batch_size"]
        )
        assert (calls, succeeded, None if error is None else str(error)) == (
            outputs["calls"],
            outputs["successes"],
            outputs["error"],
        ), inputs


def test_calculate_status_replicaset(rows):
    for inputs, outputs in rows("calculate_status_replicaset"):
        rs = convert(ReplicaSet, inputs["replicaset"])
        status = replica_set_status(
            rs,
            group_pods(convert(Pod, pod) for pod in inputs["active_pods"]),
            len(inputs["terminating_pods"]),
            inputs["manage_replicas_error"],
            replay_server.moment(inputs["now"]),
        )
        # In kube-controller-manager the caller sets the generation.
        status = replace(status, observed_generation=rs.status.observed_generation)
        assert plain(to_json(status), "apps/v1.ReplicaSetStatus") == plain(
            outputs["status"], "apps/v1.ReplicaSetStatus"
        )


def test_rate_limiter_exponential(rows):
    for inputs, outputs in rows("rate_limiter_exponential"):
        limiter = ItemExponentialFailureRateLimiter(inputs["base_ns"] / 1e9, inputs["max_ns"] / 1e9)
        for operation, expected in zip(inputs["ops"], outputs["results"], strict=True):
            item = operation["item"]
            if operation["op"] == "forget":
                limiter.forget(item)
            else:
                assert limiter.when(item) * 1e9 == pytest.approx(expected["delay_ns"], abs=1000)
            assert limiter.num_requeues(item) == expected["num_requeues"]


def test_rate_limiter_bucket(rows, monkeypatch):
    for inputs, outputs in rows("rate_limiter_bucket"):
        clock = ManualClock()
        monkeypatch.setattr(rate_limiter, "loop_time", clock.seconds)
        limiter = BucketRateLimiter(inputs["qps"], inputs["burst"])
        for operation, expected in zip(inputs["ops"], outputs["results"], strict=True):
            clock.now_ns += operation["advance_ns"]
            assert limiter.when("any") * 1e9 == pytest.approx(expected["delay_ns"], abs=1000)


def test_rate_limiter_controller_default(rows, monkeypatch):
    for inputs, outputs in rows("rate_limiter_controller_default"):
        clock = ManualClock()
        monkeypatch.setattr(rate_limiter, "loop_time", clock.seconds)
        limiter = controller_rate_limiter()
        for operation, expected in zip(inputs["ops"], outputs["results"], strict=True):
            clock.now_ns += operation["advance_ns"]
            item = operation["item"]
            if operation["op"] == "forget":
                limiter.forget(item)
            else:
                assert limiter.when(item) * 1e9 == pytest.approx(expected["delay_ns"], abs=1000)
            assert limiter.num_requeues(item) == expected["num_requeues"]


def test_expectations(rows):
    for inputs, outputs in rows("expectations"):
        clock = replay_server.SetClock(datetime(2026, 1, 1, tzinfo=UTC))
        expectations = Expectations(clock)
        for operation, expected in zip(inputs["ops"], outputs["after_each"], strict=True):
            key, op = operation["key"], operation["op"]
            match op:
                case "expect_creations":
                    expectations.expect_creations(key, operation["n"])
                case "expect_deletions":
                    expectations.expect_deletions(key, operation["pods"])
                case "creation_observed":
                    expectations.creation_observed(key)
                case "deletion_observed":
                    expectations.deletion_observed(key, operation["pod"])
                case "raise_expectations":
                    expectations._lower(key, -operation["add"], -operation["del"])
                case "lower_expectations":
                    expectations._lower(key, operation["add"], operation["del"])
                case "delete_expectations":
                    expectations.forget(key)
                case "advance_clock":
                    clock.moment += timedelta(seconds=operation["seconds"])
            state = replay_server.expectations_state(expectations, key)
            assert state == {"add": 0, "del": 0, **{name: expected[name] for name in state if name in expected}}
            if expected["exists"]:
                expectation = expectations._expected.get(key)
                assert expectation is not None
                assert expectation.fulfilled == expected["fulfilled"]


def test_pod_availability(rows):
    for inputs, outputs in rows("pod_availability"):
        pods = [convert(Pod, pod) for pod in inputs["pods"]]
        seconds, now = inputs["min_ready_seconds"], replay_server.moment(inputs["now"])
        statuses = [
            {"available": is_available(pod, seconds, now), "name": pod.metadata.name, "ready": is_ready(pod)}
            for pod in pods
        ]
        assert statuses == outputs["each"], inputs
        assert next_availability_seconds(pods, seconds, now) == outputs["next_check_seconds"], inputs


def test_pod_from_template(rows):
    for inputs, outputs in rows("pod_from_template"):
        assert outputs["error"] is None
        rs = convert(ReplicaSet, inputs["replicaset"])
        pod = pod_from_template(rs, rs.spec.template)
        assert replay_server.comparable_object(pod, "pods", "", "create") == replay_server.comparable_object(
            outputs["pod"], "pods", "", "create"
        )


def test_consistency_store(rows):
    for inputs, outputs in rows("consistency_store"):
        observed = {"pods": "", "replicasets.apps": ""}
        store = ConsistencyStore({name: partial(observed.__getitem__, name) for name in observed})
        for operation, expected in zip(inputs["ops"], outputs["results"], strict=True):
            match operation["op"]:
                case "wrote_at":
                    store.wrote_at(operation["owner"], operation["uid"], operation["resource"], operation["rv"])
                case "store_observed":
                    observed[operation["resource"]] = operation["rv"]
                case "clear":
                    store.forget(operation["owner"], operation["uid"])
                case "ensure_ready":
                    try:
                        store.ensure_ready(operation["owner"])
                        ready = True
                    except StaleCache:
                        ready = False
                    assert ready == expected["ready"], inputs
