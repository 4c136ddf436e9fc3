"""Validation of admission policies and their bindings."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.admissionregistration.mutating_admission_policy import validate_mutating_policy
from kubeloop.devcluster.kinds.admissionregistration.validating_admission_policy import (
    STRATEGY,
    validate_validating_policy,
    validate_validating_policy_status_update,
)
from kubeloop.devcluster.kinds.admissionregistration.validating_admission_policy_binding import (
    validate_validating_binding,
)
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes

RULE = {"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["v1"], "resources": ["pods"], "scope": "*"}
REMOVE_LABELS = {
    "patchType": "JSONPatch",
    "jsonPatch": {"expression": '[JSONPatch{op: "remove", path: "/metadata/labels"}]'},
}


def match(**rule: Any) -> JSON:
    return {
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "resourceRules": [{**RULE, **rule}],
    }


def policy(**spec: Any) -> JSON:
    defaults = {"failurePolicy": "Fail", "matchConstraints": match(), "validations": [{"expression": "true"}]}
    return {"metadata": {"name": "p"}, "spec": {**defaults, **spec}}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({}, [], id="valid"),
        pytest.param(
            {"validations": []},
            [
                f"spec.{field}: Required value: validations or auditAnnotations must contain at least one item"
                for field in ("validations", "auditAnnotations")
            ],
            id="nothing to validate",
        ),
        pytest.param(
            {"failurePolicy": "Warn"},
            ['spec.failurePolicy: Unsupported value: "Warn": supported values: "Fail", "Ignore"'],
            id="unknown failure policy",
        ),
        pytest.param(
            {"matchConstraints": match(operations=["*", "CREATE"])},
            [
                'spec.matchConstraints.resourceRules[0].operations: Invalid value: ["*","CREATE"]: '
                "if '*' is present, must not specify other operations"
            ],
            id="wildcard with another operation",
        ),
        pytest.param(
            {"matchConstraints": match(resources=["pods/*", "pods/status"])},
            [
                'spec.matchConstraints.resourceRules[0].resources[1]: Invalid value: "pods/status": '
                "if 'pods/*' is present, must not specify pods/status"
            ],
            id="subresource that a wildcard includes",
        ),
        pytest.param(
            {"paramKind": {"apiVersion": "v1", "kind": ""}},
            ["spec.paramKind.kind: Required value"],
            id="parameters without kind",
        ),
        pytest.param(
            {"matchConditions": [{"name": "a", "expression": "true"}, {"name": "a", "expression": " "}]},
            [
                "spec.matchConditions[1].expression: Required value",
                'spec.matchConditions[1].name: Duplicate value: "a"',
            ],
            id="match condition without expression and with a duplicate name",
        ),
        pytest.param(
            {"variables": [{"name": "in", "expression": "1"}]},
            ['spec.variables[0].name: Invalid value: "in": must be a valid CEL identifier'],
            id="reserved word as a variable",
        ),
        pytest.param(
            {"validations": [{"expression": "true", "message": "a\nb", "reason": "Gone"}]},
            [
                'spec.validations[0].message: Invalid value: "a\\nb": must not contain line breaks',
                'spec.validations[0].reason: Unsupported value: "Gone": '
                'supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"',
            ],
            id="message of two lines and unknown reason",
        ),
        pytest.param(
            {"auditAnnotations": [{"key": "k", "valueExpression": ""}, {"key": "k", "valueExpression": "'v'"}]},
            [
                "spec.auditAnnotations[0].valueExpression: Required value: valueExpression is not specified",
                'spec.auditAnnotations[1].key: Duplicate value: "k"',
            ],
            id="audit annotations",
        ),
    ],
)
def test_validating_policy_causes(spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_validating_policy, policy(**spec)) == causes


def test_validation_that_is_not_a_bool_fails_to_compile() -> None:
    [cause] = validator_causes(validate_validating_policy, policy(validations=[{"expression": "1"}]))
    assert cause == 'spec.validations[0].expression: Invalid value: "1": must evaluate to bool but got int'


def test_unchanged_match_conditions_are_not_validated_again() -> None:
    conditions = [{"name": "a", "expression": "1"}]
    old = policy(matchConditions=conditions)
    assert validator_causes(STRATEGY.validate_update, policy(matchConditions=conditions), old) == []
    [cause] = validator_causes(STRATEGY.validate_update, old, policy())
    assert cause.startswith('spec.matchConditions[0].expression: Invalid value: "1": must evaluate to bool but got int')


def test_expression_warnings_of_a_status_must_be_complete() -> None:
    status = {"typeChecking": {"expressionWarnings": [{"fieldRef": " "}]}}
    assert validator_causes(validate_validating_policy_status_update, {"status": status}, {}) == [
        f"status.typeChecking.expressionWarnings[0].{field}: Required value" for field in ("warning", "fieldRef")
    ]


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({"policyName": "p", "validationActions": ["Deny", "Audit"]}, [], id="valid"),
        pytest.param(
            {},
            [
                "spec.policyName: Required value",
                "spec.validationActions: Required value: at least one validation action is required",
            ],
            id="empty",
        ),
        pytest.param(
            {"policyName": "p", "validationActions": ["Deny", "Warn", "Deny"]},
            [
                'spec.validationActions[2]: Duplicate value: "Deny"',
                'spec.validationActions: Invalid value: ["Deny","Warn","Deny"]: must not contain both Deny and Warn '
                "(repeating the same validation failure information in the API response and headers serves no "
                "purpose)",
            ],
            id="contradicting actions",
        ),
        pytest.param(
            {"policyName": "p", "validationActions": ["Deny"], "paramRef": {"name": "a", "selector": {}}},
            [
                "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.parameterNotFoundAction: Required value",
            ],
            id="parameters by name and selector",
        ),
    ],
)
def test_validating_binding_causes(spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_validating_binding, {"spec": spec}) == causes


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param(
            {"mutations": [REMOVE_LABELS]},
            [],
            id="valid",
        ),
        pytest.param(
            {}, ["spec.mutations: Required value: mutations must contain at least one item"], id="no mutation"
        ),
        pytest.param(
            {"mutations": [{"patchType": "JSONPatch", "applyConfiguration": {"expression": "Object{}"}}]},
            [
                "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
                'spec.mutations[0].applyConfiguration: Invalid value: "{applyConfiguration}": '
                "must not be specified when patchType is JSONPatch",
            ],
            id="patch of another type",
        ),
        pytest.param(
            {"mutations": [{"patchType": "Merge"}], "reinvocationPolicy": "Always"},
            [
                'spec.mutations[0].patchType: Unsupported value: "Merge": '
                'supported values: "ApplyConfiguration", "JSONPatch"',
                'spec.reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"',
            ],
            id="unknown patch type and reinvocation policy",
        ),
        pytest.param(
            {
                "mutations": [REMOVE_LABELS],
                "matchConstraints": match(operations=["DELETE"]),
            },
            [
                'spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": '
                'supported values: "*", "CONNECT", "CREATE", "UPDATE"'
            ],
            id="mutation of a delete",
        ),
    ],
)
def test_mutating_policy_causes(spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_mutating_policy, policy(**{"reinvocationPolicy": "Never", **spec})) == causes
