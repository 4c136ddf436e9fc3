"""LimitRanger: defaults and bounds."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.limit_ranger import check_claim, check_pod, set_pod_defaults
from kubeloop.devcluster.api.errors import StatusError

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
