"""Pod requests and limits, as the documentation of resources, init containers and sidecars defines them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.scheduler.cache import pod_requests as pod_requests_module
from kubeloop.scheduler.cache.pod_requests import (
    RequestRules,
    accounted_requests,
    has_resize_status,
    is_pending_request,
    is_resize_infeasible,
    nano,
    pod_limits,
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


def container(cpu: str = "", memory: str = "", **more: Any) -> dict[str, Any]:
    amounts = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    return {"name": "c", "resources": {"requests": amounts, "limits": amounts}, **more}


def sidecar(cpu: str) -> dict[str, Any]:
    return container(cpu, restartPolicy="Always")


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        pytest.param({}, {}, id="no containers"),
        pytest.param({"containers": [container()]}, {}, id="no requests"),
        pytest.param({"containers": [container("1", "1Ki")]}, {"cpu": 1000, "memory": 1024}, id="units"),
        pytest.param({"containers": [container("100m"), container("250m", "5")]}, {"cpu": 350, "memory": 5}, id="sum"),
        pytest.param({"containers": [container("100u")]}, {"cpu": 1}, id="CPU is rounded up to millicores"),
        pytest.param({"containers": [container("600u"), container("600u")]}, {"cpu": 2}, id="once, after the sum"),
        pytest.param({"containers": [container(memory="500m")]}, {"memory": 1}, id="memory is rounded up to bytes"),
        pytest.param(
            {"containers": [container("1"), container("1")], "initContainers": [container("3"), container("2")]},
            {"cpu": 3000},
            id="the largest init container is a minimum",
        ),
        pytest.param(
            {"containers": [container("2"), container("2")], "initContainers": [container("3")]},
            {"cpu": 4000},
            id="a smaller init container does not count",
        ),
        pytest.param(
            {"containers": [container("1")], "initContainers": [container(memory="7")]},
            {"cpu": 1000, "memory": 7},
            id="each resource for itself",
        ),
        pytest.param(
            {"containers": [container("1")], "initContainers": [sidecar("2")]},
            {"cpu": 3000},
            id="a sidecar counts beside containers",
        ),
        pytest.param(
            {"containers": [container("1")], "initContainers": [sidecar("2"), container("5"), sidecar("1")]},
            {"cpu": 7000},
            id="an init container counts with the sidecars started before it",
        ),
        pytest.param(
            {"containers": [container("1")], "initContainers": [container("5"), sidecar("2")]},
            {"cpu": 5000},
            id="and without those started after it",
        ),
        pytest.param(
            {"containers": [container("1")], "overhead": {"cpu": "250m", "memory": "1Ki"}},
            {"cpu": 1250, "memory": 1024},
            id="overhead",
        ),
        pytest.param(
            {"containers": [container("1", "1Ki")], "resources": {"requests": {"cpu": "3", "example.com/gpu": "1"}}},
            {"cpu": 3000, "memory": 1024},
            id="pod-level requests replace those of containers, for CPU, memory and huge pages",
        ),
        pytest.param(
            {"containers": [container("1")], "resources": {"requests": {"hugepages-2Mi": "2Mi"}}, "overhead": {}},
            {"cpu": 1000, "hugepages-2Mi": 2 << 20},
            id="pod-level huge pages",
        ),
    ],
)
def test_requests_of_a_pod(spec: dict[str, Any], requests: dict[str, int]) -> None:
    assert pod_requests(convert(Pod, {"spec": spec})) == requests


@pytest.mark.parametrize(
    ("spec", "limits"),
    [
        pytest.param(
            {"containers": [container("1"), container()]}, {"cpu": 1000}, id="unlimited containers count as 0"
        ),
        pytest.param(
            {"containers": [container("1")], "initContainers": [sidecar("2"), container("5")]},
            {"cpu": 7000},
            id="init containers and sidecars",
        ),
        pytest.param(
            {"containers": [container("1")], "overhead": {"cpu": "1", "memory": "1Ki"}},
            {"cpu": 2000},
            id="overhead only of limited resources",
        ),
        pytest.param(
            {"containers": [container("1")], "resources": {"limits": {"cpu": "3", "memory": "1Ki", "x.io/y": "1"}}},
            {"cpu": 3000, "memory": 1024},
            id="pod-level limits",
        ),
        pytest.param(
            {"containers": [container("1")], "resources": {"requests": {"cpu": "3"}}}, {"cpu": 1000}, id="requests only"
        ),
    ],
)
def test_limits_of_a_pod(spec: dict[str, Any], limits: dict[str, int]) -> None:
    assert pod_limits(convert(Pod, {"spec": spec})) == limits


def test_overhead_can_be_left_out() -> None:
    overhead = convert(Pod, {"spec": {"containers": [container("1")], "overhead": {"cpu": "250m"}}})
    assert pod_requests(overhead, overhead=False) == {"cpu": 1000}


@pytest.mark.parametrize(
    ("spec", "requests", "non_zero"),
    [
        pytest.param({"containers": []}, {}, (0, 0), id="no containers"),
        pytest.param({"containers": [container()]}, {}, (100, 200 << 20), id="defaults"),
        pytest.param({"containers": [container("1")]}, {"cpu": 1000}, (1000, 200 << 20), id="default memory"),
        pytest.param({"containers": [container("1", "1")]}, {"cpu": 1000, "memory": 1}, (1000, 1), id="no defaults"),
        pytest.param(
            {"containers": [container("1", "1"), container()]},
            {"cpu": 1000, "memory": 1},
            (1100, (200 << 20) + 1),
            id="one of two containers",
        ),
        pytest.param(
            {"containers": [container("1", "1")], "initContainers": [container()]},
            {"cpu": 1000, "memory": 1},
            (1000, 200 << 20),
            id="an init container",
        ),
        pytest.param(
            {"containers": [container()], "resources": {"requests": {"cpu": "1"}}},
            {"cpu": 1000},
            (1000, 200 << 20),
            id="no default beside a pod-level request",
        ),
    ],
)
def test_requests_that_a_bound_pod_adds_to_its_node(
    spec: dict[str, Any], requests: dict[str, int], non_zero: tuple[int, int]
) -> None:
    pod = convert(Pod, {"spec": spec})
    assert accounted_requests(pod) == (requests, *non_zero)
    with_defaults = pod_requests(pod, non_zero=True)
    if "resources" not in spec:
        assert (with_defaults.get("cpu", 0), with_defaults.get("memory", 0)) == non_zero


@pytest.mark.parametrize(
    ("conditions", "infeasible"),
    [
        pytest.param([], False, id="no condition"),
        pytest.param([("Ready", "Infeasible")], False, id="another condition"),
        pytest.param([("PodResizePending", "Deferred")], False, id="deferred"),
        pytest.param([("Ready", ""), ("PodResizePending", "Infeasible")], True, id="infeasible"),
    ],
)
def test_resize_is_infeasible(conditions: list[tuple[str, str]], infeasible: bool) -> None:
    status = {"conditions": [{"type": type_, "reason": reason} for type_, reason in conditions]}
    assert is_resize_infeasible(convert(Pod, {"status": status})) is infeasible


@pytest.mark.parametrize(
    ("status", "resized", "pending"),
    [
        pytest.param({}, False, True, id="nothing"),
        pytest.param({"resources": {}}, True, False, id="resources of the pod"),
        pytest.param({"allocatedResources": {"cpu": "1"}}, True, False, id="allocated to the pod"),
        pytest.param({"containerStatuses": [{"name": "c"}]}, False, True, id="a container without resources"),
        pytest.param({"containerStatuses": [{"name": "c", "resources": {}}]}, True, False, id="of a container"),
        pytest.param({"initContainerStatuses": [{"name": "c", "resources": {}}]}, True, False, id="of a sidecar"),
        pytest.param(
            {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}}]},
            True,
            False,
            id="allocated to a container",
        ),
        pytest.param(
            {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "r", "resources": {"cpu": "1"}}]},
            False,
            False,
            id="taken by a claim",
        ),
    ],
)
def test_status_that_changes_requests(status: dict[str, Any], resized: bool, pending: bool) -> None:
    pod = convert(Pod, {"status": status})
    assert has_resize_status(pod) is resized
    assert is_pending_request(pod) is pending


@pytest.mark.parametrize(
    ("actual", "allocated", "infeasible", "cpu"),
    [
        pytest.param("2", "3", False, 3000, id="allocated is the maximum"),
        pytest.param("3", "2", False, 3000, id="actual is the maximum"),
        pytest.param("500m", "500m", False, 1000, id="spec is the maximum"),
        pytest.param("500m", "250m", True, 500, id="infeasible: without the spec"),
    ],
)
@pytest.mark.parametrize("kind", ["container", "sidecar"])
def test_resize_of_a_container(kind: str, actual: str, allocated: str, infeasible: bool, cpu: int) -> None:
    resources = {"name": "c", "resources": {"requests": {"cpu": actual}}, "allocatedResources": {"cpu": allocated}}
    spec = {"containers": [container("1")]} if kind == "container" else {"initContainers": [sidecar("1")]}
    statuses = {"containerStatuses" if kind == "container" else "initContainerStatuses": [resources]}
    pod = convert(Pod, {"spec": spec, "status": {**statuses, **(INFEASIBLE if infeasible else {})}})
    assert pod_requests(pod, use_status=True) == {"cpu": cpu}
    assert pod_requests(pod) == {"cpu": 1000}, "only with use_status"


def test_status_of_an_init_container_does_not_count() -> None:
    statuses = [{"name": "c", "resources": {"requests": {"cpu": "9"}}}]
    pod = convert(Pod, {"spec": {"initContainers": [container("1")]}, "status": {"initContainerStatuses": statuses}})
    assert pod_requests(pod, use_status=True) == {"cpu": 1000}


@pytest.mark.parametrize(
    ("name", "amount_nano", "rounded"),
    [
        ("cpu", 0, 0),
        ("cpu", 1, 1),
        ("cpu", 1_000_000, 1),
        ("cpu", 1_000_001, 2),
        ("cpu", -1, -1),
        ("memory", 1, 1),
        ("memory", 1_000_000_000, 1),
        ("memory", 1_000_000_001, 2),
        ("memory", -1_500_000_000, -2),
    ],
)
def test_amounts_are_rounded_away_from_zero(name: str, amount_nano: int, rounded: int) -> None:
    assert rounded_up(name, amount_nano) == rounded


@pytest.mark.parametrize(("quantity", "amount"), [("1", 10**9), (2, 2 * 10**9), ("1m", 10**6), ("0.5n", 1)])
def test_quantity_in_nano_units(quantity: Any, amount: int) -> None:
    assert nano(quantity) == amount


_AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "2", "500m"]), max_size=2)
_RESOURCES = st.fixed_dictionaries({"requests": _AMOUNTS})
_NAMES = st.sampled_from(["a", "b"])
_CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": _NAMES, "resources": _RESOURCES}, optional={"restartPolicy": st.sampled_from(["Always", "Never"])}
    ),
    max_size=2,
)
_STATUSES = st.lists(
    st.fixed_dictionaries({"name": _NAMES}, optional={"resources": _RESOURCES, "allocatedResources": _AMOUNTS}),
    max_size=2,
)
_PODS = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries(
            {"containers": _CONTAINERS},
            optional={"initContainers": _CONTAINERS, "resources": _RESOURCES, "overhead": _AMOUNTS},
        ),
        "status": st.fixed_dictionaries(
            {},
            optional={
                "resources": _RESOURCES,
                "allocatedResources": _AMOUNTS,
                "containerStatuses": _STATUSES,
                "initContainerStatuses": _STATUSES,
                "conditions": st.just(INFEASIBLE["conditions"]),
                "nodeAllocatableResourceClaimStatuses": st.lists(
                    st.fixed_dictionaries({"resourceClaimName": _NAMES, "resources": _AMOUNTS}), max_size=1
                ),
            },
        ),
    }
)
_RULES = st.builds(
    RequestRules, pod_level=st.booleans(), pod_level_status=st.booleans(), node_allocatable=st.booleans()
)


@settings(max_examples=150)
@given(documents=st.lists(_PODS, min_size=2, max_size=6), rules=_RULES)
def test_pods_share_requests_only_if_these_are_equal(documents: list[dict[str, Any]], rules: RequestRules) -> None:
    for document in documents:
        pod = convert(Pod, document)
        assert accounted_requests(pod, rules) == pod_requests_module._accounted_requests(pod, rules)
