"""LimitRanger: defaults and bounds."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.limit_ranger import check_claim, check_pod, set_pod_defaults
from kubeloop.devcluster.api.errors import StatusError
from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]


def limit_range(type_: str, **bounds: Any) -> JSON:
    return {"spec": {"limits": [{"type": type_, **bounds}]}}


def pod_with(**resources: JSON) -> JSON:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}


def test_defaults_are_set_and_noted_in_an_annotation():
    pod = pod_with(requests={"cpu": "2"})
    defaults = limit_range("Container", defaultRequest={"cpu": "1", "memory": "1Gi"}, default={"cpu": "3"})
    set_pod_defaults([defaults], pod)
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "3"}}
    note = "LimitRanger plugin set: memory request for container c; cpu limit for container c"
    assert pod["metadata"]["annotations"] == {"kubernetes.io/limit-ranger": note}


@pytest.mark.parametrize(
    ("item", "resources", "detail"),
    [
        pytest.param(
            limit_range("Container", min={"cpu": "1"}),
            {"requests": {"cpu": "500m"}},
            "minimum cpu usage per Container is 1, but request is 500m",
            id="request below the minimum",
        ),
        pytest.param(
            limit_range("Container", max={"memory": "1Gi"}),
            {},
            "maximum memory usage per Container is 1Gi.  No limit is specified",
            id="maximum without a limit",
        ),
        pytest.param(
            limit_range("Container", maxLimitRequestRatio={"cpu": "2"}),
            {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
            id="ratio",
        ),
        pytest.param(
            limit_range("Pod", min={"cpu": "2"}, max={"cpu": "3"}),
            {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}},
            "[minimum cpu usage per Pod is 2, but request is 1, maximum cpu usage per Pod is 3, but limit is 4]",
            id="several bounds of a pod",
        ),
    ],
)
def test_pod_outside_of_a_bound_is_forbidden(item: JSON, resources: JSON, detail: str):
    with pytest.raises(StatusError) as raised:
        check_pod([item], pod_with(**resources))
    assert (raised.value.code, raised.value.message) == (403, f'pods "p" is forbidden: {detail}')


def test_claim_above_the_maximum_is_forbidden():
    item = limit_range("PersistentVolumeClaim", max={"storage": "1Gi"})
    claim = {"metadata": {"name": "c"}, "spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    with pytest.raises(StatusError) as raised:
        check_claim([item], claim)
    detail = "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"
    assert raised.value.message == f'persistentvolumeclaims "c" is forbidden: {detail}'


# --- requests ---------------------------------------------------------------------------------------------------------


def pod_of(*resources: JSON, **spec: Any) -> JSON:
    """Return a pod with a container for each of `resources`."""
    containers = [{"name": f"c{i}", "image": "i", "resources": amounts} for i, amounts in enumerate(resources)]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}


def create_pods(limits: list[JSON], *pods: JSON) -> list[tuple[int, Any]]:
    """Create `pods` under a LimitRange; return for each the status, and the pod or the text after "is forbidden: "."""
    api, responses = InProcessApi(), []
    namespace = "/api/v1/namespaces/default"
    api.create(f"{namespace}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})
    for pod in pods:
        status, content = api("POST", f"{namespace}/pods", pod)
        responses.append((status, content if status < 300 else content["message"].partition(" is forbidden: ")[2]))
    return responses


async def test_limit_beyond_int64_counts_as_no_limit_in_a_ratio():
    limits = [{"type": "Container", "maxLimitRequestRatio": {"memory": "2"}}]
    ((_, detail),) = create_pods(limits, pod_of({"limits": {"memory": "10E"}, "requests": {"memory": "1Gi"}}))
    assert detail.endswith("per Container is 2, but no limit is specified or limit is 0")


async def test_defaults_precede_pod_validation_and_bounds_follow_it():
    bounds = {"max": {"cpu": "2"}, "min": {"cpu": "100m"}, "maxLimitRequestRatio": {"cpu": "4"}}
    limits = [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}, **bounds}]
    big, small = {"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}, {"requests": {"cpu": "50m"}}
    invalid = pod_of(big, restartPolicy="Sometimes")
    responses = create_pods(limits, pod_of({}), pod_of(big), pod_of(small), pod_of(big, small), invalid)
    created = responses[0][1]
    assert created["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}
    assert created["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu request for container c0; cpu limit for container c0"
    }
    maximum = "maximum cpu usage per Container is 2, but limit is 3"
    minimum = "minimum cpu usage per Container is 100m, but request is 50m"
    ratio = "cpu max limit to request ratio per Container is 4, but provided ratio is 20.000000"
    assert responses[1:4] == [
        (403, maximum),
        (403, f"[{minimum}, {ratio}]"),
        (403, f"[{maximum}, {minimum}, {ratio}]"),
    ]
    assert responses[4][0] == 422


async def test_pod_bounds_apply_to_the_sum_of_its_containers():
    limits = [{"type": "Pod", "max": {"memory": "2Gi"}}]
    resources = {"limits": {"memory": "1Gi"}}
    responses = create_pods(limits, pod_of(resources, resources), pod_of(resources, resources, resources))
    assert responses[0][0] == 201
    assert responses[1] == (403, "maximum memory usage per Pod is 2Gi, but limit is 3Gi")
