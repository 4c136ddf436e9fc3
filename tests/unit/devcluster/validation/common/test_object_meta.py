"""Validation of metadata."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from kubeloop.devcluster.validation.validate import validate_update
from kubeloop.kube.objects.resources import CONFIG_MAPS, PODS
from support.validation_causes import cause_texts, create_causes, defaulted, pod

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
    assert detail in cause_texts(validate_update(PODS, new, old))
