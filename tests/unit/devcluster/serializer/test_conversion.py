"""Conversion of objects between their stored form and a served API version."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import EVENTS_V1, HORIZONTAL_POD_AUTOSCALERS_V1, get_served_resource
from kubeloop.devcluster.serializer.conversion import from_stored, to_stored
from kubeloop.kube.objects.resources import PODS, Resource

JSON = dict[str, Any]


@pytest.mark.parametrize(
    ("resource", "sent", "stored"),
    [
        pytest.param(EVENTS_V1, {"note": "n"}, {"message": "n"}, id="event"),
        pytest.param(
            HORIZONTAL_POD_AUTOSCALERS_V1,
            {"spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}},
            {
                "spec": {
                    "maxReplicas": 3,
                    "metrics": [
                        {
                            "type": "Resource",
                            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
                        }
                    ],
                }
            },
            id="autoscaler",
        ),
    ],
)
def test_second_version_is_converted_by_the_strategy(resource: Resource[Any], sent: JSON, stored: JSON):
    target, metadata = get_served_resource(resource), {"metadata": {"name": "x"}}
    converted = to_stored(target, {**metadata, **sent})
    for name, value in stored.items():
        assert converted[name] == value if name != "spec" else converted[name].items() >= value.items()
    assert from_stored(target, converted)["metadata"]["name"] == "x"


def test_other_kinds_are_stored_as_they_are():
    obj = {"metadata": {"name": "x"}}
    assert to_stored(get_served_resource(PODS), obj) is obj
    assert from_stored(get_served_resource(PODS), obj) is obj
