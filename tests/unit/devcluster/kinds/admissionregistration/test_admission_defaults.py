"""Default values of webhook configurations, admission policies and their bindings."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.admissionregistration import (
    mutating_webhook_configuration,
    policies,
    validating_webhook_configuration,
)

JSON = dict[str, Any]
WEBHOOK: JSON = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "timeoutSeconds": 10,
    "clientConfig": {"service": {"port": 443}},
    "rules": [{"scope": "*"}],
}
MATCH: JSON = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}


@pytest.mark.parametrize(
    ("strategy", "added"),
    [
        pytest.param(validating_webhook_configuration.STRATEGY, {}, id="validating"),
        pytest.param(mutating_webhook_configuration.STRATEGY, {"reinvocationPolicy": "Never"}, id="mutating"),
    ],
)
def test_webhook_configuration_has_defaults(strategy: Any, added: JSON):
    obj: JSON = {"webhooks": [{"clientConfig": {"service": {}}, "rules": [{}]}]}
    strategy.default(obj)
    assert obj == {"webhooks": [{**WEBHOOK, **added}]}


def test_admission_policy_has_defaults():
    policy: JSON = {"spec": {"matchConstraints": {"resourceRules": [{}]}}}
    policies.default_policy(policy)
    expected = {"failurePolicy": "Fail", "matchConstraints": {**MATCH, "resourceRules": [{"scope": "*"}]}}
    assert policy == {"spec": expected}


def test_binding_without_match_resources_has_a_spec():
    binding: JSON = {}
    policies.default_binding(binding)
    assert binding == {"spec": {}}
