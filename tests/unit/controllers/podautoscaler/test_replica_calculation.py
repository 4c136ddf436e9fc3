"""Replicas that one metric proposes: pure functions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.controllers.podautoscaler.replica_calculation import (
    MetricError,
    PodMetric,
    PodsByReadiness,
    Proposal,
    ReadinessRules,
    Tolerances,
    average_value_proposal,
    counted_values,
    group_pods,
    pod_requests,
    utilization_proposal,
    value_per_pod_proposal,
    value_proposal,
)
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.api_types import Pod, convert

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
RULES = ReadinessRules(120.0, 10.0)
TOLERANCES = Tolerances(0.1, 0.1)


def seconds_ago(seconds: float) -> str:
    return rfc3339(NOW - timedelta(seconds=seconds))


def pod(name: str = "a", phase: str = "Running", *, deleted: bool = False, **spec: Any) -> Pod:
    metadata = {"name": name, "namespace": "ns", **({"deletionTimestamp": seconds_ago(1)} if deleted else {})}
    spec = spec or {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    return convert(Pod, {"metadata": metadata, "spec": spec, "status": {"phase": phase}})


def started_pod(started: float, ready: str, changed: float) -> Pod:
    """Times are in seconds before NOW."""
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": seconds_ago(changed)}
    status = {"phase": "Running", "startTime": seconds_ago(started), "conditions": [condition]}
    return convert(Pod, {"metadata": {"name": "a"}, "status": status})


def metric(value: int = 100, age: float = 0, window: float = 30) -> PodMetric:
    return PodMetric(value, NOW - timedelta(seconds=age), window)


def groups(ready: int, *, unready: str = "", missing: str = "") -> PodsByReadiness:
    return PodsByReadiness(ready, frozenset(unready), frozenset(missing), frozenset())


def test_pods_are_grouped_by_state_and_metrics():
    pods = [pod("a"), pod("b"), pod("c", "Pending"), pod("d", "Failed"), pod("e", deleted=True), pod("f", "Succeeded")]
    metrics = {name: metric() for name in "acde"}
    assert group_pods(pods, metrics, "memory", RULES, NOW) == (1, {"c"}, {"b", "f"}, {"d", "e"})
    assert counted_values(metrics, group_pods(pods, metrics, "memory", RULES, NOW)) == {"a": 100}


@pytest.mark.parametrize(
    ("subject", "age", "resource", "counts"),
    [
        pytest.param(started_pod(60, "True", 50), 0, "cpu", True, id="initializing, sample after ready"),
        pytest.param(started_pod(60, "True", 20), 0, "cpu", False, id="initializing, sample begins before ready"),
        pytest.param(started_pod(60, "True", 30), 0, "cpu", True, id="initializing, sample begins when ready"),
        pytest.param(started_pod(60, "False", 50), 0, "cpu", False, id="initializing, not ready"),
        pytest.param(started_pod(60, "False", 50), 0, "memory", True, id="readiness matters for CPU only"),
        pytest.param(started_pod(300, "True", 1), 0, "cpu", True, id="initialized, ready"),
        pytest.param(started_pod(300, "False", 100), 0, "cpu", True, id="initialized, was ready before"),
        pytest.param(started_pod(300, "False", 295), 0, "cpu", False, id="initialized, never ready"),
        pytest.param(pod(), 0, "cpu", False, id="no condition"),
    ],
)
def test_cpu_samples_of_starting_pods_do_not_count(subject, age, resource, counts):
    grouped = group_pods([subject], {"a": metric(age=age)}, resource, RULES, NOW)
    assert (grouped.ready_count, grouped.unready) == ((1, set()) if counts else (0, {"a"}))


def test_no_counted_pod_is_an_error():
    with pytest.raises(MetricError, match="did not receive metrics for targeted pods"):
        counted_values({"a": metric()}, groups(0, unready="a"))


@pytest.mark.parametrize(
    ("current", "values", "grouped", "proposal"),
    [
        pytest.param(3, {"a": 300, "b": 500, "c": 700}, groups(3), Proposal(5, 500, 50), id="scale up"),
        pytest.param(5, {"a": 100, "b": 200}, groups(2), Proposal(1, 150, 15), id="scale down"),
        pytest.param(2, {"a": 310, "b": 320}, groups(2), Proposal(2, 315, 31), id="within tolerance"),
        pytest.param(3, {"a": 700}, groups(1, unready="bc"), Proposal(3, 700, 70), id="unready pods dampen a scale-up"),
        pytest.param(
            3, {"a": 900, "b": 900}, groups(2, unready="c"), Proposal(6, 900, 90), id="unready pods count as idle"
        ),
        pytest.param(2, {"a": 900}, groups(1, unready="bc"), Proposal(2, 900, 90), id="unready pods end a scale-up"),
        pytest.param(3, {"a": 100, "b": 100}, groups(2, unready="c"), Proposal(1, 100, 10), id="unready, scale down"),
        pytest.param(
            4, {"a": 10, "b": 10}, groups(2, missing="cd"), Proposal(4, 10, 1), id="missing pods never reverse"
        ),
        pytest.param(
            3, {"a": 900, "b": 900}, groups(2, missing="c"), Proposal(6, 900, 90), id="missing pods count as idle"
        ),
        pytest.param(2, {"a": 300}, groups(1, missing="b"), Proposal(2, 300, 30), id="missing, at the target"),
        pytest.param(2, {"a": 640}, groups(1, missing="b"), Proposal(2, 640, 64), id="missing, then within tolerance"),
        pytest.param(1, {"a": 500}, groups(1, missing="b"), Proposal(1, 500, 50), id="missing pods end a scale-up"),
        pytest.param(4, {"a": 300}, groups(1, unready="b"), Proposal(4, 300, 30), id="unready, at the target"),
        pytest.param(3, {"a": 290}, groups(1, unready="b"), Proposal(3, 290, 29), id="unready, within tolerance"),
    ],
)
def test_utilization_proposal(current, values, grouped, proposal):
    requests = dict.fromkeys("abcd", 1000)
    assert utilization_proposal(current, 30, values, requests, grouped, TOLERANCES) == proposal


def test_missing_pods_count_with_the_full_request_on_a_scale_down():
    requests = dict.fromkeys("abcdef", 1000)
    values = dict.fromkeys("abcde", 0)
    assert utilization_proposal(6, 50, values, requests, groups(5, missing="f"), TOLERANCES).replicas == 2


def test_utilization_needs_a_pod_with_request():
    with pytest.raises(MetricError, match="no metrics returned matched known pods"):
        utilization_proposal(1, 50, {"x": 1}, {"a": 100}, groups(1), TOLERANCES)


@pytest.mark.parametrize(
    ("values", "grouped", "proposal"),
    [
        pytest.param({"a": 300, "b": 500}, groups(2), Proposal(8, 400), id="scale up"),
        pytest.param({"a": 95, "b": 105}, groups(2), Proposal(2, 100), id="at the target"),
        pytest.param({"a": 10}, groups(1, missing="b"), Proposal(2, 10), id="missing pods count as at the target"),
        pytest.param({"a": 500}, groups(1, missing="b"), Proposal(5, 500), id="missing pods count as idle"),
    ],
)
def test_average_value_proposal(values, grouped, proposal):
    assert average_value_proposal(2, 100, values, grouped, TOLERANCES) == proposal


@pytest.mark.parametrize(
    ("value", "tolerances", "replicas"),
    [
        pytest.param(111, Tolerances(0.1, 0.1), 12, id="above the scale-up tolerance"),
        pytest.param(111, Tolerances(0.1, 0.2), 10, id="within the scale-up tolerance"),
        pytest.param(111, Tolerances(0.2, 0.0), 12, id="scale-down tolerance does not apply"),
        pytest.param(85, Tolerances(0.1, 0.2), 9, id="below the scale-down tolerance"),
    ],
)
def test_tolerances_differ_by_direction(value, tolerances, replicas):
    values = dict.fromkeys("abcdefghij", value)
    assert average_value_proposal(10, 100, values, groups(10), tolerances).replicas == replicas


@pytest.mark.parametrize(
    ("container", "resource", "request_"),
    [
        pytest.param("", "cpu", 350, id="containers and sidecars"),
        pytest.param("side", "cpu", 50, id="one container"),
        pytest.param("", "memory", "missing request for memory in container b of Pod a", id="missing"),
        pytest.param("a", "memory", 1_024_000, id="present in this container"),
        pytest.param("x", "cpu", "container x not found in Pod a", id="no such container"),
    ],
)
def test_pod_requests(container, resource, request_):
    def container_of(name: str, restart: str = "", **requests: str) -> dict[str, Any]:
        return {"name": name, "restartPolicy": restart, "resources": {"requests": requests}}

    subject = pod(
        containers=[container_of("a", cpu="100m", memory="1Ki"), container_of("b", cpu="200m")],
        initContainers=[container_of("init", cpu="4"), container_of("side", "Always", cpu="50m")],
    )
    if isinstance(request_, int):
        assert pod_requests([subject], resource, container, pod_level=True) == {"a": request_}
    else:
        with pytest.raises(MetricError) as error:
            pod_requests([subject], resource, container, pod_level=True)
        assert str(error.value) == request_


def test_requests_at_pod_level_take_precedence_under_their_gate():
    main = {"name": "main", "resources": {"requests": {"cpu": "100m"}}}
    subject = pod(containers=[main], resources={"requests": {"cpu": "2"}})
    assert pod_requests([subject], "cpu", "", pod_level=True) == {"a": 2000}
    assert pod_requests([subject], "cpu", "", pod_level=False) == {"a": 100}
    assert pod_requests([subject], "cpu", "main", pod_level=True) == {"a": 100}
    with pytest.raises(MetricError, match="missing pod-level request for memory in Pod a"):
        pod_requests([subject], "memory", "", pod_level=True)


def ready_pod() -> Pod:
    return started_pod(300, "True", 100)


@pytest.mark.parametrize(
    ("current", "usage", "proposal"),
    [
        pytest.param(2, 400, Proposal(8, 400), id="scale up by ready pods"),
        pytest.param(2, 105, Proposal(2, 105), id="within tolerance"),
        pytest.param(0, 250, Proposal(3, 250), id="from zero"),
        pytest.param(0, 0, Proposal(0, 0), id="stays at zero"),
    ],
)
def test_value_proposal(current, usage, proposal):
    pods = [ready_pod(), ready_pod(), pod("c")]
    assert value_proposal(current, 100, usage, pods, TOLERANCES) == proposal


def test_value_proposal_needs_pods():
    with pytest.raises(MetricError, match="no pods returned by selector"):
        value_proposal(1, 100, 400, [], TOLERANCES)


@pytest.mark.parametrize(
    ("current", "usage", "proposal"),
    [
        pytest.param(2, 500, Proposal(5, 250), id="scale up"),
        pytest.param(2, 201, Proposal(2, 101), id="within tolerance, average rounded up"),
        pytest.param(0, 250, Proposal(3, 0), id="from zero"),
        pytest.param(1, 100 << 31, Proposal((1 << 31) - 1, 100 << 31), id="at most an int32"),
    ],
)
def test_value_per_pod_proposal(current, usage, proposal):
    assert value_per_pod_proposal(current, 100, usage, TOLERANCES) == proposal


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"startTime": seconds_ago(900)}, id="no Ready condition"),
        pytest.param({"conditions": [{"type": "Ready", "status": "True"}]}, id="no start time"),
        pytest.param({}, id="neither"),
    ],
)
def test_cpu_sample_of_a_pod_of_unknown_state_does_not_count(status):
    unknown = convert(Pod, {"metadata": {"name": "a"}, "status": {"phase": "Running", **status}})
    assert group_pods([unknown], {"a": metric()}, "cpu", RULES, NOW).unready == {"a"}


@pytest.mark.parametrize(
    ("ratio", "included"),
    [(0.5, True), (0.499, False), (1.0, True), (1.25, True), (1.251, False)],
)
def test_tolerances_include_their_limits(ratio, included):
    assert Tolerances(down=0.5, up=0.25).include(ratio) is included


@pytest.mark.parametrize(
    ("target", "used", "replicas"),
    [
        pytest.param(50, 40, 3, id="1,040 of 4,000 are 26 percent: 2.08 pods"),
        pytest.param(50, 30, 2, id="1,030 of 4,000 are 25 percent: 2 pods"),
        pytest.param(200, 0, 1, id="a target above 100 percent counts: 2,000 of 4,000 are 50 of 200 percent"),
    ],
)
def test_missing_pod_counts_as_fully_used_on_a_scale_down(target, used, replicas):
    values = {"a": used, "b": 0, "c": 0}
    proposal = utilization_proposal(4, target, values, dict.fromkeys("abcd", 1000), groups(3, missing="d"), TOLERANCES)
    assert proposal.replicas == replicas
