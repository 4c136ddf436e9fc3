"""Validation of ResourceQuotas."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kinds.core.resource_quota import (
    validate_resource_quota,
    validate_resource_quota_status_update,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import RESOURCE_QUOTAS
from support.objects.validation_causes import create_causes, update_causes, validator_causes


def test_resource_quota_names_and_scopes():
    body = {"spec": {"hard": {"bogus": "1", "secrets": "1.5"}, "scopes": ["BestEffort", "NotBestEffort"]}}
    scopes = '["BestEffort","NotBestEffort"]'
    assert create_causes(RESOURCE_QUOTAS, body) == [
        'spec.hard[bogus]: Invalid value: "bogus": must be a standard resource type or fully qualified',
        'spec.hard[bogus]: Invalid value: "bogus": must be a standard resource for quota',
        'spec.hard[secrets]: Invalid value: "1500m": must be an integer',
        f"spec.scopes: Invalid value: {scopes}: unsupported scope applied to resource",
        f"spec.scopes: Invalid value: {scopes}: unsupported scope applied to resource",
        f"spec.scopes: Invalid value: {scopes}: conflicting scopes",
    ]
    with_scope = {"spec": {"hard": {"pods": "1"}, "scopes": ["Terminating"]}}
    assert update_causes(RESOURCE_QUOTAS, {"spec": {"hard": {"pods": "1"}}}, with_scope) == [
        'spec.scopes: Invalid value: ["Terminating"]: field is immutable'
    ]


EXPRESSION = "spec.scopeSelector.matchExpressions"


@pytest.mark.parametrize(
    ("expression", "causes"),
    [
        pytest.param({"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}, [], id="valid"),
        pytest.param(
            {"scopeName": "Large", "operator": "Exists"},
            [f'{EXPRESSION}.scopeName: Invalid value: "Large": unsupported scope'],
            id="unknown scope",
        ),
        pytest.param(
            {"scopeName": "PriorityClass", "operator": "NotIn"},
            [
                f"{EXPRESSION}.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' "
                "for scope selector"
            ],
            id="NotIn without values",
        ),
        pytest.param(
            {"scopeName": "PriorityClass", "operator": "Exists", "values": ["high"]},
            [
                f"{EXPRESSION}.values: Invalid value: [\"high\"]: must be no value when `operator` is 'Exist' or "
                "'DoesNotExist' for scope selector"
            ],
            id="Exists with values",
        ),
        pytest.param(
            {"scopeName": "BestEffort", "operator": "DoesNotExist"},
            [
                f"{EXPRESSION}.operator: Invalid value: \"DoesNotExist\": must be 'Exists' when scope is any of "
                "ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
                "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
            ],
            id="scope that only exists",
        ),
    ],
)
def test_scope_selector_causes(expression: JSON, causes: list[str]) -> None:
    spec = {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [expression]}}
    assert validator_causes(validate_resource_quota, {"spec": spec}) == causes


def test_resource_quota_status_amounts_are_not_negative() -> None:
    status = {"hard": {"requests.cpu": "1"}, "used": {"requests.cpu": "-1", "count/pods": "0"}}
    assert validator_causes(validate_resource_quota_status_update, {"status": status}, {}) == [
        'status.used[requests.cpu]: Invalid value: "-1": must be greater than or equal to 0'
    ]
