"""Validation of StorageClasses."""

from __future__ import annotations

from kubeloop.kube.objects.resources import STORAGE_CLASSES
from support.validation_causes import create_causes


def test_empty_topology_terms_are_duplicates():
    body = {"provisioner": "a.b/c", "allowedTopologies": [{}, {}]}
    first, second = (f'allowedTopologies[{i}].matchLabelExpressions: Duplicate value: ""' for i in (0, 1))
    assert create_causes(STORAGE_CLASSES, body) == [first, first, second, second, second]
