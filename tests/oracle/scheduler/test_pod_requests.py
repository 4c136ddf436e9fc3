"""Pod requests from spec and status, and the accounting of a bound pod on its node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo, is_scalar_resource
from kubeloop.scheduler.cache.pod_requests import RequestRules, nano, pod_limits, pod_requests, rounded_up

Records = Callable[[str], Iterator[dict[str, Any]]]


def resource_list(quantities: dict[str, Any]) -> dict[str, int]:
    return {name: rounded_up(name, nano(quantity)) for name, quantity in quantities.items()}


def as_resource(requests: dict[str, int]) -> dict[str, Any]:
    """Return the requests as a recorded framework.Resource, without zeros and non-schedulable resources."""
    resource_names = {"milliCPU": "cpu", "memory": "memory", "ephemeralStorage": "ephemeral-storage"}
    resource: dict[str, Any] = {ours: requests[name] for ours, name in resource_names.items() if requests.get(name)}
    scalars = {name: amount for name, amount in requests.items() if is_scalar_resource(name)}
    return resource | ({"scalarResources": scalars} if scalars else {})


def only_milli_cpu_and_memory(requests: dict[str, int]) -> dict[str, int]:
    return {"milliCPU": requests.get("cpu", 0), "memory": requests.get("memory", 0)}


def without_zeros(resource: dict[str, Any]) -> dict[str, Any]:
    return {name: amount for name, amount in resource.items() if amount}


def test_pod_requests_match_kube_scheduler(records: Records) -> None:
    count = 0
    for record in records("scheduler/resources.jsonl.gz"):
        if record["type"] != "podRequests":
            continue
        count += 1
        pod = convert(Pod, record["pod"])
        name = pod.metadata.name
        assert pod_requests(pod) == resource_list(record.get("requests") or {}), name
        assert pod_limits(pod) == resource_list(record.get("limits") or {}), name
        using_status = pod_requests(pod, use_status=True)
        assert using_status == resource_list(record.get("requestsUsingStatus") or {}), name
        assert pod_requests(pod, rules=RequestRules(pod_level=False)) == resource_list(
            record.get("requestsWithoutPodLevel") or {}
        ), name
        assert pod_requests(pod, overhead=False) == resource_list(record.get("requestsWithoutOverhead") or {}), name
        assert as_resource(pod_requests(pod)) == without_zeros(record["fitFilterRequest"]), name
        fit_score = only_milli_cpu_and_memory(pod_requests(pod, non_zero=True, use_status=True))
        assert without_zeros(fit_score) == without_zeros(record["fitScoreRequest"]), name
        balanced_score = only_milli_cpu_and_memory(using_status)
        assert without_zeros(balanced_score) == without_zeros(record["balancedScoreRequest"]), name

        node = NodeInfo("node")
        node.add_pod(PodInfo(pod))
        accounted = as_resource(node.requested)
        accounted |= {"nonZeroMilliCPU": node.non_zero_milli_cpu, "nonZeroMemory": node.non_zero_memory}
        assert without_zeros(accounted) == without_zeros(record["nodeAccounting"]), name
    assert count
