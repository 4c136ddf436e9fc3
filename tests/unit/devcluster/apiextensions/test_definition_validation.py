"""Validation of CustomResourceDefinitions."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from kubeloop.devcluster.apiextensions.definition_validation import (
    definition_warnings,
    validate_definition_create,
    validate_definition_update,
)
from support.comparison.custom_resource_requests import definition
from support.objects.validation_causes import validator_causes

JSON = dict[str, Any]


def created_definition(**version: Any) -> JSON:
    """Return a valid definition as the server validates it. version: fields of its only version."""
    obj = definition(**version)
    obj["spec"]["names"] |= {"singular": "gear", "listKind": "GearList"}
    obj["spec"]["conversion"] = {"strategy": "None"}
    obj["status"] = {"storedVersions": ["v1"]}
    return obj


def test_valid_definition_has_no_errors():
    assert validator_causes(validate_definition_create, created_definition()) == []


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        pytest.param(
            {"group": "example"}, 'spec.group: Invalid value: "example": should be a domain', id="group without a dot"
        ),
        pytest.param({"scope": "Any"}, 'spec.scope: Unsupported value: "Any"', id="unknown scope"),
        pytest.param(
            {"names": {"plural": "gears", "singular": "gear", "kind": "Gear", "listKind": "Gear"}},
            'spec.names.listKind: Invalid value: "Gear": kind and listKind may not be the same',
            id="kind and listKind are equal",
        ),
        pytest.param(
            {"conversion": {"strategy": "Webhook"}},
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            id="webhook without clientConfig",
        ),
    ],
)
def test_invalid_spec_is_an_error(fields: JSON, error: str):
    obj = created_definition()
    obj["spec"] |= fields
    assert any(cause.startswith(error) for cause in validator_causes(validate_definition_create, obj))


@pytest.mark.parametrize(
    ("version", "error"),
    [
        pytest.param({"storage": False}, "exactly one version marked as storage version", id="no storage version"),
        pytest.param({"deprecationWarning": "old"}, "can only be set for deprecated versions", id="not deprecated"),
        pytest.param(
            {"additionalPrinterColumns": [{"name": "A", "type": "text", "jsonPath": ".spec.a"}]},
            "spec.additionalPrinterColumns[0].type",
            id="unknown column type",
        ),
        pytest.param(
            {"selectableFields": [{"jsonPath": ".spec.a"}]}, "does not refer to a valid field", id="undeclared field"
        ),
    ],
)
def test_invalid_version_is_an_error(version: JSON, error: str):
    causes = validator_causes(validate_definition_create, created_definition(**version))
    assert any(error in cause for cause in causes), causes


def test_scope_is_immutable_once_established():
    old = created_definition()
    changed = deepcopy(old)
    changed["spec"]["scope"] = "Namespaced"
    assert validator_causes(validate_definition_update, changed, old) == []
    old["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    (cause,) = validator_causes(validate_definition_update, changed, old)
    assert cause == 'spec.scope: Invalid value: "Namespaced": field is immutable'


def test_unrecognized_format_is_a_warning_unless_it_was_stored():
    schema = {"type": "object", "properties": {"a": {"type": "string", "format": "colour"}}}
    obj = created_definition(schema={"openAPIV3Schema": schema})
    assert definition_warnings(obj, None) == ['unrecognized format "colour"']
    assert definition_warnings(obj, obj) == []
