"""Validation of metadata."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.validation.common.object_meta import (
    path_segment,
    validate_field_manager,
    validate_managed_fields,
    validate_object_meta_update,
    validate_owner_references,
)
from kubeloop.devcluster.validation.validate import validate_update
from kubeloop.kube.objects.resources import CONFIG_MAPS, PODS
from support.objects.validation_causes import cause_texts, create_causes, defaulted, pod, validator_causes

JSON = dict[str, Any]


@pytest.mark.parametrize(
    ("metadata", "causes"),
    [
        pytest.param({"labels": {"a": "b"}}, [], id="valid labels"),
        pytest.param(
            {"name": "Bad_Name"},
            [
                'metadata.name: Invalid value: "Bad_Name": a lowercase RFC 1123 subdomain must consist of lower case '
                "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
            ],
            id="a name in upper case",
        ),
        pytest.param(
            {"labels": {"/x": "v"}},
            ['metadata.labels: Invalid value: "/x": prefix part must be non-empty'],
            id="a label with an empty prefix",
        ),
        pytest.param(
            {"finalizers": ["unknown"]},
            [
                'metadata.finalizers[0]: Invalid value: "unknown": '
                "name is neither a standard finalizer name nor is it fully qualified"
            ],
            id="unknown finalizer",
        ),
        pytest.param(
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": ""}]},
            ['metadata.ownerReferences.uid: Invalid value: "": must not be empty'],
            id="an owner without uid",
        ),
        pytest.param(
            {"annotations": {"a": "x" * (1 << 18)}},
            ["metadata.annotations: Too long: may not be more than 262144 bytes"],
            id="annotations of more than 256 KiB",
        ),
    ],
)
def test_new_object_metadata_causes(metadata: JSON, causes: list[str]) -> None:
    assert create_causes(CONFIG_MAPS, {"metadata": metadata}) == causes


def test_finalizers_cannot_be_added_during_deletion() -> None:
    old = defaulted(PODS, {"metadata": {"finalizers": ["a.b/c"]}, **pod()})
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    new = deepcopy(old)
    new["metadata"]["finalizers"] = ["a.b/c", "a.b/d", 'a.b/"']
    detail = (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"a.b/\\"", "a.b/d"}'
    )
    assert detail in cause_texts(validate_update(strategy_of(PODS), PODS, new, old))


@pytest.mark.parametrize(
    ("name", "problems"),
    [("a:b", ()), ("..", ("may not be '..'",)), ("a/%", ("may not contain '/'", "may not contain '%'"))],
)
def test_path_segment_problems(name: str, problems: tuple[str, ...]) -> None:
    assert path_segment(name) == problems


def test_only_one_owner_is_the_controller() -> None:
    owners = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": n, "uid": n, "controller": True} for n in "ab"]
    [cause] = validator_causes(validate_owner_references, "owners", owners)
    assert cause.startswith("owners: Invalid value: [")
    assert cause.endswith(
        "Only one reference can have Controller set to true. "
        'Found "true" in references for ReplicaSet/a and ReplicaSet/b'
    )


def test_event_is_not_an_owner() -> None:
    owner = {"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}
    [cause] = validator_causes(validate_owner_references, "owners", [owner])
    assert cause.endswith(": /v1, Kind=Event is disallowed from being an owner")


@pytest.mark.parametrize(
    ("metadata", "causes"),
    [
        pytest.param({"name": "a", "generation": 2}, [], id="unchanged"),
        pytest.param(
            {"name": "b", "generation": 1},
            [
                "metadata.generation: Invalid value: 1: must not be decremented",
                'metadata.name: Invalid value: "b": field is immutable',
            ],
            id="name and generation",
        ),
        pytest.param({"generation": 2}, ['metadata.name: Invalid value: "": field is immutable'], id="no name"),
        pytest.param(
            {"name": "a", "generation": 2, "deletionGracePeriodSeconds": 1},
            ["metadata.deletionGracePeriodSeconds: Invalid value: 1: field is immutable"],
            id="grace period",
        ),
    ],
)
def test_metadata_update_causes(metadata: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_object_meta_update, metadata, {"name": "a", "generation": 2}) == causes


def test_managed_field_causes() -> None:
    entries = [{"operation": "Apply", "fieldsType": "FieldsV1"}, {"operation": "Patch", "fieldsType": "FieldsV2"}]
    assert validator_causes(validate_managed_fields, entries, "managedFields") == [
        'managedFields[1].operation: Invalid value: "Patch": must be `Apply` or `Update`',
        'managedFields[1].fieldsType: Invalid value: "FieldsV2": must be `FieldsV1`',
    ]


@pytest.mark.parametrize(
    ("manager", "causes"),
    [
        pytest.param("é" * 64, [], id="128 bytes"),
        pytest.param("é" * 65, ["manager: Too long: may not be more than 128 bytes"], id="130 bytes"),
        pytest.param(
            "é\t", ['manager: Invalid value: "é\\t": invalid character U+0009 (at position 2)'], id="tabulator"
        ),
    ],
)
def test_field_manager_causes(manager: str, causes: list[str]) -> None:
    assert validator_causes(validate_field_manager, "manager", manager) == causes
