"""One sync of an autoscaler: conditions, events and the replicas of its target."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from kubeloop.controllers.podautoscaler.autoscaler_sync import (
    ABLE_TO_SCALE,
    SCALED_TO_ZERO,
    SCALING_ACTIVE,
    SCALING_LIMITED,
    AutoscalerRules,
    AutoscalerSync,
)
from kubeloop.controllers.podautoscaler.horizontal_controller import HorizontalController
from kubeloop.controllers.podautoscaler.metric_evaluation import InvalidMetric, MetricEvaluation
from kubeloop.controllers.podautoscaler.scale_target import Scale
from kubeloop.controllers.podautoscaler.scaling_behavior import Recorded, ScaleHistory
from kubeloop.devcluster.api import errors
from kubeloop.kube.errors import ServerUnreachable
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import HorizontalPodAutoscaler, convert
from kubeloop.kube.objects.resources import DEPLOYMENTS, HORIZONTAL_POD_AUTOSCALERS, NAMESPACES
from support.apiserver.fake_apiserver import FakeApiServer
from support.comparison import replay_server
from support.objects.autoscaled_pods import (
    CPU_METRIC,
    add_autoscaler,
    add_running_pods,
    add_target,
    autoscaler_context,
    conditions,
    reasons,
    replicas,
    set_replicas,
    status,
)
from support.simulation.set_clock import SetClock

pytestmark = pytest.mark.virtual_time

EXTERNAL = {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "5"}}}


@pytest.fixture
async def apiserver(metrics_apiserver, start):
    await start(metrics_apiserver.informers, HorizontalController(autoscaler_context(metrics_apiserver)))
    return metrics_apiserver


async def synced() -> None:
    await asyncio.sleep(16)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        pytest.param(
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "no"},
            'deployments.apps "no" not found',
            id="no such object",
        ),
        pytest.param(
            {"apiVersion": "example.com/v1", "kind": "Gizmo", "name": "x"},
            'no matches for kind "Gizmo" in group "example.com"',
            id="no such kind",
        ),
        pytest.param(
            {"apiVersion": "batch/v1", "kind": "Job", "name": "x"},
            "the server could not find the requested resource",
            id="no subresource scale",
        ),
    ],
)
async def test_target_without_scale_is_reported(apiserver, target, message):
    add_autoscaler(apiserver, scaleTargetRef=target)
    await synced()
    (condition,) = status(apiserver)["conditions"]
    assert condition["message"] == f"the HPA controller was unable to get the target's current scale: {message}"
    assert conditions(apiserver) == {ABLE_TO_SCALE: ("False", "FailedGetScale")}
    assert reasons(apiserver) == ["FailedGetScale"]


@pytest.mark.parametrize(
    ("current", "expected", "reason"),
    [
        pytest.param(12, 10, "Current number of replicas above Spec.MaxReplicas", id="above maximum"),
        pytest.param(1, 3, "Current number of replicas below Spec.MinReplicas", id="below minimum"),
    ],
)
async def test_replicas_outside_the_range_are_corrected_without_metrics(apiserver, current, expected, reason):
    add_target(apiserver, current)
    add_autoscaler(apiserver, minReplicas=3)
    await synced()
    assert replicas(apiserver) == expected
    (event,) = apiserver.context.events.events
    assert event.message == f"New size: {expected}; reason: {reason}"


async def test_target_without_replicas_is_not_scaled(apiserver):
    add_target(apiserver, 0)
    add_autoscaler(apiserver)
    await synced()
    assert replicas(apiserver) == 0
    assert conditions(apiserver)[SCALING_ACTIVE] == ("False", "ScalingDisabled")


async def test_missing_usage_is_a_condition_with_the_message_of_kube_controller_manager(apiserver):
    add_target(apiserver, 1)
    add_running_pods(apiserver, {"a": ""})
    add_autoscaler(apiserver)
    await synced()
    active = status(apiserver)["conditions"][1]
    assert active["message"] == (
        "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for "
        "resource cpu: no metrics returned from resource metrics API"
    )
    assert status(apiserver)["currentMetrics"] == [{"type": ""}]
    assert reasons(apiserver) == ["FailedGetResourceMetric", "FailedComputeMetricsReplicas"]
    assert apiserver.context.events.events[1].message == (
        "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: failed to get "
        "cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API"
    )


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        pytest.param("200m", 8, id="scales up by the others"),
        pytest.param("10m", 2, id="does not scale down"),
    ],
)
async def test_one_invalid_metric_prevents_only_a_scale_down(apiserver, usage, expected):
    add_target(apiserver, 2)
    add_running_pods(apiserver, {"a": usage, "b": usage})
    add_autoscaler(apiserver, EXTERNAL, CPU_METRIC, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    await synced()
    await synced()
    assert replicas(apiserver) == expected
    assert "FailedGetExternalMetric" in reasons(apiserver)


@pytest.mark.parametrize("limit", [{"maxReplicas": 2}, {"minReplicas": 2}])
async def test_replicas_at_a_limit_of_the_range_are_scaled_by_metrics(apiserver, limit):
    usage = "10m" if "maxReplicas" in limit else "200m"
    add_target(apiserver, 2)
    add_running_pods(apiserver, {"a": usage, "b": usage})
    add_autoscaler(apiserver, **limit, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    await synced()
    assert (replicas(apiserver) < 2) is ("maxReplicas" in limit)
    assert replicas(apiserver) != 2


async def test_behavior_limits_the_change(apiserver):
    policies = [{"type": "Pods", "value": 1, "periodSeconds": 60}]
    add_target(apiserver, 2)
    add_running_pods(apiserver, {"a": "200m", "b": "200m"})
    add_autoscaler(apiserver, behavior={"scaleUp": {"policies": policies}})
    await synced()
    assert replicas(apiserver) == 3
    assert conditions(apiserver)[SCALING_LIMITED] == ("True", "ScaleUpLimit")
    await synced()
    assert replicas(apiserver) == 3
    await asyncio.sleep(60)
    assert replicas(apiserver) == 4


async def test_tolerance_of_the_behavior_applies(apiserver):
    add_target(apiserver, 2)
    add_running_pods(apiserver, {"a": "60m", "b": "60m"})
    add_autoscaler(apiserver, behavior={"scaleUp": {"tolerance": "0.3"}})
    await synced()
    assert replicas(apiserver) == 2


async def test_failed_scaling_is_reported(apiserver):
    def reject(method: str, path: str) -> errors.StatusError | None:
        return errors.internal_error("etcd") if method == "PUT" and path.endswith("/scale") else None

    apiserver.transport.reject = reject
    add_target(apiserver, 12)
    add_autoscaler(apiserver)
    await asyncio.sleep(60)  # the client retries
    assert conditions(apiserver) == {ABLE_TO_SCALE: ("False", "FailedUpdateScale")}
    assert reasons(apiserver)[0] == "FailedRescale"
    assert status(apiserver)["currentReplicas"] == 12


@pytest.fixture
async def external_value(start) -> Any:
    """Start the controller with HPAScaleToZero and an external metric; return the server and the metric's value."""
    server = FakeApiServer(gates=FeatureGates({"HPAScaleToZero": True}), serves_metrics=True)
    server.add(NAMESPACES, "ns")
    value = {"value": "0"}
    context = autoscaler_context(server)

    async def raw(method: str, target: str, **options: Any) -> Any:
        if target.startswith("/apis/external.metrics.k8s.io"):
            item = b'{"items":[{"metricName":"queue","timestamp":"2026-01-31T12:00:00Z","value":"%s"}]}'
            return type("Response", (), {"body": item % value["value"].encode()})
        return await original(method, target, **options)

    original = context.client.raw
    context.client.raw = raw
    await start(server.informers, HorizontalController(context))
    return server, value


async def test_target_is_scaled_to_zero_and_back_under_the_gate(external_value):
    server, value = external_value
    add_target(server, 1)
    add_running_pods(server, {"a": ""})
    add_autoscaler(server, EXTERNAL, minReplicas=0, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    await synced()
    assert replicas(server) == 0
    assert conditions(server)[SCALED_TO_ZERO] == ("True", "ScaledToZero")
    value["value"] = "12"
    await synced()
    assert replicas(server) == 3
    assert conditions(server)[SCALED_TO_ZERO] == ("False", "NotScaledToZero")
    set_replicas(server, 0)  # by a user
    await synced()
    assert replicas(server) == 0
    assert conditions(server)[SCALING_ACTIVE] == ("False", "ScalingDisabled")


async def test_target_at_zero_whose_minimum_is_raised_is_scaled_by_its_metrics(external_value):
    server, value = external_value
    add_target(server, 1)
    add_running_pods(server, {"a": ""})
    add_autoscaler(server, EXTERNAL, minReplicas=0, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    await synced()
    assert replicas(server) == 0
    value["value"] = "12"
    path = HORIZONTAL_POD_AUTOSCALERS.path("ns", "web")
    server.api.succeed("PATCH", path, {"spec": {"minReplicas": 2}}, content_type="application/merge-patch+json")
    await synced()
    assert replicas(server) == 3


class Targets:
    """A scale target of which any size can be written."""

    def __init__(self, replicas: int, selector: str = "app=web", error: Exception | None = None) -> None:
        self.scale = Scale(DEPLOYMENTS, replicas, replicas, selector, {})
        self.written: list[int] = []
        self._error = error

    async def resource(self, reference: Any) -> Any:
        return DEPLOYMENTS

    async def read(self, resource: Any, namespace: str, name: str) -> Scale:
        return self.scale

    async def write(self, scale: Scale, replicas: int) -> None:
        if self._error is not None:
            raise self._error
        self.written.append(replicas)


class Evaluator:
    """Metrics whose targets' values are what they propose; without a value they are invalid."""

    def __init__(self, targets: Targets) -> None:
        self.targets = targets

    async def evaluate(self, metric: Any, body: dict[str, Any], *_: Any) -> MetricEvaluation:
        if "proposes" not in body:
            raise InvalidMetric("FailedGetMetric", "no value", "")
        return MetricEvaluation(body["proposes"], body["name"], {"type": body["type"]})


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TO_ZERO = {"type": "ScaledToZero", "status": "True"}


def proposing(replicas: int, name: str = "queue", type_: str = "Resource") -> dict[str, Any]:
    return {"type": type_, "name": name, "proposes": replicas}


class Sync(NamedTuple):
    subject: AutoscalerSync
    written: list[int]
    events: list[tuple[str, str]]

    @property
    def conditions(self) -> dict[str, tuple[str, str]]:
        return {it.type: (it.status, it.reason) for it in self.subject.status.conditions}


async def synced_once(
    targets: Targets,
    *metrics: dict[str, Any],
    old: tuple[dict[str, Any], ...] = (),
    scale_to_zero: bool = True,
    recommended: tuple[int, ...] = (0,),
    **spec: Any,
) -> Sync:
    """Sync an autoscaler for 2 to 10 replicas. old: its conditions. recommended: replicas, one minute before."""
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    body = {
        "metadata": {"name": "web", "namespace": "ns"},
        "spec": {"scaleTargetRef": reference, "minReplicas": 2, "maxReplicas": 10, "metrics": metrics, **spec},
        "status": {"conditions": old, "desiredReplicas": 7},
    }
    queue, api = replay_server.RecordingQueue(), replay_server.ReplayServer({"state": {}})
    context = replay_server.replay_context(api, SetClock(NOW.replace(microsecond=500_000)), queue)
    subject = AutoscalerSync(
        convert(HorizontalPodAutoscaler, body),
        ScaleHistory(tuple(Recorded(replicas, NOW - timedelta(minutes=1)) for replicas in recommended)),
        context=context,
        rules=AutoscalerRules(0.1, 300.0, configurable_tolerance=True, scale_to_zero=scale_to_zero),
        evaluator=Evaluator(targets),
        select_pods=lambda selector: ([], ["web"] if str(selector) == "app=web" else ["a", "b"]),
        reconcile=context.traces.reconcile("hpa", "ns/web"),
    )
    await subject.run()
    return Sync(subject, targets.written, [(event.reason, event.message) for event in context.events.events])


@pytest.mark.parametrize(
    ("current", "metrics", "written", "reason"),
    [
        pytest.param(3, [proposing(6)], [6], "queue above target", id="up"),
        pytest.param(6, [proposing(3)], [3], "All metrics below target", id="down"),
        pytest.param(3, [proposing(3)], [], "", id="unchanged"),
        pytest.param(3, [proposing(3), proposing(4, "b")], [4], "b above target", id="the highest counts"),
        pytest.param(3, [proposing(5, "a"), proposing(5, "b")], [5], "a above target", id="the first of equals"),
        pytest.param(5, [proposing(0), proposing(4, "b")], [4], "All metrics below target", id="zero is replaced"),
        pytest.param(3, [proposing(1)], [2], "All metrics below target", id="at least the minimum"),
        pytest.param(9, [proposing(11)], [10], "queue above target", id="at most the maximum"),
        pytest.param(2, [{"type": "X"}, proposing(3)], [3], "queue above target", id="one invalid, up"),
        pytest.param(3, [{"type": "X"}, proposing(3)], [], "", id="one invalid, unchanged"),
        pytest.param(3, [{"type": "X"}, proposing(2)], [], "", id="one invalid, down"),
        pytest.param(3, [{"type": "X"}], [], "", id="all invalid"),
    ],
)
async def test_replicas_by_proposals(current, metrics, written, reason):
    sync = await synced_once(Targets(current), *metrics)
    assert sync.written == written
    assert sync.subject.scaled_by == (written[0] - current if written else 0)
    rescaled = [message for name, message in sync.events if name == "SuccessfulRescale"]
    assert rescaled == [f"New size: {size}; reason: {reason}" for size in written]
    assert sync.subject.status.last_scale_time == (NOW if written else None)
    assert sync.subject.status.current_replicas == current
    invalid = [metric for metric in metrics if "proposes" not in metric]
    decided = len(invalid) < len(metrics) and not (invalid and metrics[-1]["proposes"] < current)
    assert sync.conditions["ScalingActive"] == (
        ("True", "ValidMetricFound") if decided else ("False", "FailedGetMetric")
    )
    assert sync.subject.status.desired_replicas == ((written or [current])[0] if decided else 7)
    assert bool(sync.subject.failure) is bool(invalid)
    assert sync.subject.error_source == ("internal" if invalid else "none")


@pytest.mark.parametrize(
    ("minimum", "old", "enabled", "type_", "written", "reason"),
    [
        pytest.param(1, (), True, "Resource", [], "", id="scaled to zero by the user"),
        pytest.param(1, (TO_ZERO,), False, "Resource", [], "", id="the gate is off"),
        pytest.param(1, (TO_ZERO,), True, "Resource", [4], "queue above target", id="the minimum was raised"),
        pytest.param(0, (TO_ZERO,), True, "Resource", [], "", id="no metric without pods"),
        pytest.param(0, (TO_ZERO,), True, "External", [4], "queue above target", id="external metric"),
        pytest.param(0, ({**TO_ZERO, "status": "False"},), True, "External", [], "", id="the condition is false"),
    ],
)
async def test_target_of_zero_replicas_is_scaled_up_only_if_scaled_down(minimum, old, enabled, type_, written, reason):
    metrics = [proposing(4, type_=type_)]
    sync = await synced_once(Targets(0), *metrics, old=old, scale_to_zero=enabled, minReplicas=minimum)
    assert sync.written == written
    assert [message for name, message in sync.events if name == "SuccessfulRescale"] == [
        f"New size: {size}; reason: {reason}" for size in written
    ]
    if not written:
        assert sync.conditions["ScalingActive"] == ("False", "ScalingDisabled")
    assert ("ScaledToZero" in sync.conditions) is (bool(old) and enabled)
    if written:
        assert sync.conditions["ScaledToZero"] == ("False", "NotScaledToZero")


@pytest.mark.parametrize(
    ("minimum", "proposed", "size"),
    [
        pytest.param(3, 1, 3, id="raised to the minimum"),
        pytest.param(3, 3, 3, id="the minimum"),
        pytest.param(3, 4, 4, id="above the minimum"),
    ],
)
async def test_target_scaled_to_zero_gets_the_minimum(minimum, proposed, size):
    metric = proposing(proposed, type_="External")
    sync = await synced_once(Targets(0), metric, old=(TO_ZERO,), minReplicas=minimum)
    assert sync.events == [("SuccessfulRescale", f"New size: {size}; reason: queue above target")]


@pytest.mark.parametrize(
    ("proposed", "reason"),
    [
        pytest.param(0, "Current number of replicas below Spec.MinReplicas", id="without a proposal"),
        pytest.param(6, "queue above target", id="limited by a policy"),
    ],
)
async def test_target_scaled_to_zero_gets_the_minimum_despite_policies(proposed, reason):
    policy = {"type": "Pods", "value": 1, "periodSeconds": 60}
    sync = await synced_once(
        Targets(0), proposing(proposed), old=(TO_ZERO,), minReplicas=3, behavior={"scaleUp": {"policies": [policy]}}
    )
    assert sync.events == [("SuccessfulRescale", f"New size: 3; reason: {reason}")]


@pytest.mark.parametrize(("enabled", "state"), [(True, ("True", "ScaledToZero")), (False, None)])
async def test_scaling_to_zero_is_a_condition_if_the_gate_is_on(enabled, state):
    metric = proposing(0, type_="External")
    sync = await synced_once(Targets(1), metric, minReplicas=0, scale_to_zero=enabled)
    assert sync.written == [0]
    assert sync.conditions.get("ScaledToZero") == state


@pytest.mark.parametrize(
    ("selector", "event", "condition"),
    [
        pytest.param("", ("SelectorRequired", "selector is required"), "InvalidSelector", id="none"),
        pytest.param("a in", ("InvalidSelector", "couldn't convert selector"), "InvalidSelector", id="invalid"),
        pytest.param("app=db", ("AmbiguousSelector", "pods by selector app=db"), "AmbiguousSelector", id="shared"),
    ],
)
async def test_unusable_selector_prevents_scaling(selector, event, condition):
    sync = await synced_once(Targets(3, selector), proposing(6))
    assert sync.written == []
    (reason, message), (failure, _) = sync.events
    assert (reason, failure) == (event[0], "FailedComputeMetricsReplicas")
    assert message.startswith(event[1])
    assert sync.conditions["ScalingActive"] == ("False", condition)
    assert sync.subject.failure.startswith("failed to compute desired number of replicas")
    assert (sync.subject.status.desired_replicas, sync.subject.status.last_scale_time) == (7, None)


async def test_failed_write_is_a_condition_and_no_scaling():
    sync = await synced_once(Targets(3, error=ServerUnreachable("refused", maybe_applied=False)), proposing(6))
    assert sync.conditions["AbleToScale"] == ("False", "FailedUpdateScale")
    assert (sync.subject.scaled_by, sync.subject.status.last_scale_time) == (0, None)
    assert sync.events == [("FailedRescale", "New size: 6; reason: queue above target; error: refused")]


def window(direction: str, seconds: int) -> dict[str, Any]:
    policies = [{"type": "Percent", "value": 100, "periodSeconds": 15}]
    behavior: dict[str, Any] = {name: {"policies": policies} for name in ("scaleUp", "scaleDown")}
    behavior[direction]["stabilizationWindowSeconds"] = seconds
    return behavior


@pytest.mark.parametrize(
    ("behavior", "current", "proposed", "recommended", "size", "able"),
    [
        pytest.param(None, 6, 3, (6,), 6, "ScaleDownStabilized", id="recent higher recommendation"),
        pytest.param(None, 6, 3, (), 6, "ScaleDownStabilized", id="the current size is the first recommendation"),
        pytest.param(None, 6, 3, (5,), 5, "SucceededRescale", id="to the highest recent recommendation"),
        pytest.param(window("scaleDown", 30), 6, 3, (6,), 3, "SucceededRescale", id="down, short window"),
        pytest.param(window("scaleDown", 90), 6, 3, (6,), 6, "ScaleDownStabilized", id="down, long window"),
        pytest.param(window("scaleUp", 90), 3, 6, (3,), 3, "ScaleUpStabilized", id="up, long window"),
        pytest.param(window("scaleUp", 30), 3, 6, (3,), 6, "SucceededRescale", id="up, short window"),
    ],
)
async def test_recent_recommendations_stabilize(behavior, current, proposed, recommended, size, able):
    spec = {} if behavior is None else {"behavior": behavior}
    sync = await synced_once(Targets(current), proposing(proposed), recommended=recommended, **spec)
    assert sync.written == ([] if size == current else [size])
    assert sync.conditions["AbleToScale"] == ("True", able)
    assert sync.subject.history.recommendations[-1].replicas == proposed


async def test_condition_keeps_its_time_while_its_status_is_the_same():
    before = "2026-01-01T00:00:00Z"
    old = tuple(
        {"type": type_, "status": "True", "reason": "Old", "lastTransitionTime": before}
        for type_ in ("AbleToScale", "ScalingLimited")
    )
    sync = await synced_once(Targets(3), proposing(3), old=old)
    times = {it.type: it.last_transition_time for it in sync.subject.status.conditions}
    assert times == {"AbleToScale": datetime(2026, 1, 1, tzinfo=UTC), "ScalingActive": NOW, "ScalingLimited": NOW}
    assert sync.conditions["ScalingLimited"] == ("False", "DesiredWithinRange")
