"""Scales: replicas of an object and their owners."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.handlers.subresources.scale import (
    REPLICAS,
    owners_of_object,
    owners_of_scale,
    replicas_paths,
    scaled,
)
from kubeloop.kube.objects.resources import DEPLOYMENTS

JSON = dict[str, Any]
SERVED = get_served_resource(DEPLOYMENTS)
PATHS = {"apps/v1": REPLICAS}
REPLICAS_FIELDS: JSON = {"f:spec": {"f:replicas": {}}}


def deployment() -> JSON:
    metadata = {"name": "d", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
    return {"metadata": metadata, "spec": {"replicas": 1, "paused": True}}


def entry(manager: str, fields: JSON, api_version: str = "apps/v1", **changed: Any) -> JSON:
    return {"manager": manager, "operation": "Update", "apiVersion": api_version, "fieldsV1": fields, **changed}


def test_scale_changes_only_replicas():
    obj = scaled(SERVED, deployment(), {"metadata": {}, "spec": {"replicas": 3}})
    assert obj == {**deployment(), "spec": {"replicas": 3, "paused": True}}
    assert scaled(SERVED, deployment(), {"metadata": {"resourceVersion": "5"}})["metadata"]["resourceVersion"] == "5"


@pytest.mark.parametrize(
    ("scale", "code", "message"),
    [
        pytest.param(
            {"spec": {"replicas": -1}},
            422,
            'Scale.autoscaling "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0',
            id="negative",
        ),
        pytest.param(
            {"metadata": {"uid": "x"}},
            409,
            'Operation cannot be fulfilled on deployments/scale.apps "d": Precondition failed: UID in precondition: x, '
            "UID in object meta: u",
            id="another uid",
        ),
    ],
)
def test_invalid_scale_is_refused(scale: JSON, code: int, message: str):
    with pytest.raises(StatusError) as raised:
        scaled(SERVED, deployment(), scale)
    assert (raised.value.code, raised.value.message) == (code, message)


def test_owners_of_a_scale_own_the_replicas_of_its_object():
    assert replicas_paths(SERVED) == PATHS
    entries = [
        entry("a", {"f:spec": {"f:replicas": {}, "f:paused": {}}}, time="t1"),
        entry("b", {"f:spec": {"f:paused": {}}}),
        entry("c", REPLICAS_FIELDS, "extensions/v1beta1"),
    ]
    assert owners_of_scale(entries, PATHS) == [entry("a", REPLICAS_FIELDS, "autoscaling/v1", time="t1")]


@pytest.mark.parametrize(
    ("of_scale", "owners"),
    [
        pytest.param(
            [entry("new", REPLICAS_FIELDS, "autoscaling/v1", subresource="scale", time="t2")],
            [
                entry("new", REPLICAS_FIELDS, subresource="scale"),
                entry("old", {"f:spec": {"f:paused": {}}}, time="t1"),
            ],
            id="another manager",
        ),
        pytest.param([], [entry("old", {"f:spec": {"f:paused": {}}}, time="t1")], id="no manager"),
    ],
)
def test_owners_of_an_object_after_a_write_of_its_scale(of_scale: list[JSON], owners: list[JSON]):
    entries = [entry("old", {"f:spec": {"f:replicas": {}, "f:paused": {}}}, time="t1")]
    assert owners_of_object(entries, of_scale, PATHS, "apps/v1") == owners
