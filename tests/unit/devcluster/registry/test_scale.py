"""Scale of an object."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.registry.scale import scale_of

JSON = dict[str, Any]


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        pytest.param({"b": "2", "a": "1"}, "a=1,b=2", id="replication controller"),
        pytest.param({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2", id="match labels"),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["2", "1"]}]}, "a in (1,2)", id="expressions"
        ),
    ],
)
def test_selector_of_a_scale(selector: JSON, text: str):
    obj = {"metadata": {"name": "d"}, "spec": {"replicas": 3, "selector": selector}, "status": {"replicas": 2}}
    assert scale_of(obj) == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {"name": "d"},
        "spec": {"replicas": 3},
        "status": {"replicas": 2, "selector": text},
    }


def test_scale_without_replicas_and_with_other_metadata():
    metadata = {"name": "d", "namespace": "ns", "uid": "u", "resourceVersion": "7", "creationTimestamp": "t1"}
    scale = scale_of({"metadata": {**metadata, "labels": {"a": "b"}}, "spec": {"replicas": 0}})
    assert (scale["metadata"], scale["spec"], scale["status"]) == (metadata, {}, {"replicas": 0})
