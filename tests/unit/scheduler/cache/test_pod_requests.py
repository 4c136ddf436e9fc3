"""Pod requests in cases that the oracle's recorded decisions do not cover."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.scheduler.cache.pod_requests import (
    RequestRules,
    accounted_requests,
    pod_requests,
    request_rules,
    rounded_up,
)


def pod(pod_level: dict[str, str], status: dict[str, Any] | None = None, **container: str) -> Pod:
    spec = {
        "containers": [{"name": "c", "resources": {"requests": container}}],
        "resources": {"requests": pod_level} if pod_level else None,
    }
    return convert(Pod, {"metadata": {"name": "p"}, "spec": spec, "status": status or {}})


INFEASIBLE = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}


@pytest.mark.parametrize(
    ("status", "cpu"),
    [
        pytest.param({}, 500, id="no resize: spec"),
        pytest.param({"allocatedResources": {"cpu": "2"}}, 500, id="allocatedResources alone are ignored"),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "2"}},
            2000,
            id="the maximum counts",
        ),
        pytest.param({"resources": {"requests": {"cpu": "300m"}}, **INFEASIBLE}, 300, id="infeasible resize"),
        pytest.param({"resources": {"requests": {}}, **INFEASIBLE}, 0, id="infeasible resize without resources"),
    ],
)
def test_pod_level_resize_counts_with_resources_in_status(status: dict[str, Any], cpu: int) -> None:
    assert pod_requests(pod({"cpu": "500m"}, status, cpu="100m"), use_status=True)["cpu"] == cpu


def test_pod_level_resize_adds_no_other_resources() -> None:
    status = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    requests = pod_requests(pod({"cpu": "500m"}, status, cpu="100m", memory="64Mi"), use_status=True)
    assert requests == {"cpu": 1000, "memory": 64 << 20}


def test_requests_are_clamped_to_int64() -> None:
    assert rounded_up("memory", 10**30) == 2**63 - 1
    assert rounded_up("cpu", -(10**30)) == -(2**63)
    requests, milli_cpu, memory = accounted_requests(pod({}, None, cpu="1e17", memory="1e30"))
    assert requests == {"cpu": 2**63 - 1, "memory": 2**63 - 1}
    assert (milli_cpu, memory) == (2**63 - 1, 2**63 - 1)


RESIZED = {"resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "2"}}


@pytest.mark.parametrize(
    ("gates", "cpu", "non_zero_cpu"),
    [
        pytest.param({}, 2000, 2000, id="defaults: pod-level requests, and their resize"),
        pytest.param({"InPlacePodLevelResourcesVerticalScaling": False}, 500, 500, id="pod-level requests of the spec"),
        pytest.param({"PodLevelResources": False}, 0, 100, id="requests of containers"),
    ],
)
def test_feature_gates_decide_which_pod_level_resources_count(
    gates: dict[str, bool], cpu: int, non_zero_cpu: int
) -> None:
    rules = request_rules(FeatureGates(gates))
    requests, non_zero_milli_cpu, _ = accounted_requests(pod({"cpu": "500m"}, RESIZED, memory="1Gi"), rules)
    assert (requests.get("cpu", 0), non_zero_milli_cpu) == (cpu, non_zero_cpu)


def test_resize_of_a_container_counts_without_pod_level_resources() -> None:
    statuses = [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]
    resized = pod({"cpu": "5"}, {"containerStatuses": statuses}, cpu="1")
    rules = RequestRules(pod_level=False, pod_level_status=False)
    assert pod_requests(resized, use_status=True, rules=rules) == {"cpu": 3000}


@pytest.mark.parametrize(("enabled", "cpu", "memory"), [(True, 1500, 1 << 30), (False, 1000, 0)])
def test_resources_that_claims_take_count_with_their_feature_gate(enabled: bool, cpu: int, memory: int) -> None:
    taken = [{"resourceClaimName": "c", "resources": {"cpu": "500m", "memory": "1Gi"}}]
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    pod = convert(Pod, {"spec": {"containers": [container]}, "status": {"nodeAllocatableResourceClaimStatuses": taken}})
    rules = request_rules(FeatureGates({"DRANodeAllocatableResources": enabled}))
    assert pod_requests(pod, rules=rules) == {"cpu": cpu, **({"memory": memory} if memory else {})}
    requests, _, non_zero_memory = accounted_requests(pod, rules)
    assert (requests["cpu"], non_zero_memory) == (cpu, memory + (200 << 20))  # the default of the container
