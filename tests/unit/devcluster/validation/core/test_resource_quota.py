"""Validation of ResourceQuotas."""

from __future__ import annotations

from kubeloop.kube.objects.resources import RESOURCE_QUOTAS
from support.validation_causes import create_causes, update_causes


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
