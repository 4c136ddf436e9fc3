"""QoS class of a pod."""

from __future__ import annotations

import pytest

from kubeloop.kube.objects.qos import qos_class

FULL = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param({}, "BestEffort", id="no requests and limits"),
        pytest.param({"requests": {"cpu": "0"}}, "BestEffort", id="zero request"),
        pytest.param({"requests": {"cpu": "1"}}, "Burstable", id="request without limit"),
        pytest.param({"requests": FULL, "limits": {**FULL, "cpu": "2"}}, "Burstable", id="limit above request"),
        pytest.param({"requests": FULL, "limits": FULL}, "Guaranteed", id="equal requests and limits"),
        pytest.param({"limits": {"cpu": "1"}}, "Burstable", id="limit of one resource"),
    ],
)
def test_qos_class_of_one_container(resources, expected):
    assert qos_class({"containers": [{"resources": resources}]}) == expected


def test_container_without_limits_makes_pod_burstable():
    guaranteed = {"resources": {"requests": FULL, "limits": FULL}}
    assert qos_class({"containers": [guaranteed, {}]}) == "Burstable"


def test_pod_level_resources_replace_containers():
    assert qos_class({"containers": [{}], "resources": {"requests": FULL, "limits": FULL}}) == "Guaranteed"
