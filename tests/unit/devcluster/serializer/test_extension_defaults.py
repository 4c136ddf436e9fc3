"""Default values of kinds that extend the API."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.serializer.extension_defaults import DEFAULTS

JSON = dict[str, Any]
ADMISSION = "admissionregistration.k8s.io"
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
EXACTLY = {"allocationMode": "ExactCount", "count": 1}


@pytest.mark.parametrize(
    ("kind", "obj", "defaulted"),
    [
        pytest.param(
            (ADMISSION, "ValidatingWebhookConfiguration"),
            {"webhooks": [{"clientConfig": {"service": {}}, "rules": [{}]}]},
            {"webhooks": [WEBHOOK]},
            id="validating webhook",
        ),
        pytest.param(
            (ADMISSION, "MutatingWebhookConfiguration"),
            {"kind": "MutatingWebhookConfiguration", "webhooks": [{"clientConfig": {"service": {}}, "rules": [{}]}]},
            {"kind": "MutatingWebhookConfiguration", "webhooks": [{**WEBHOOK, "reinvocationPolicy": "Never"}]},
            id="mutating webhook",
        ),
        pytest.param(
            (ADMISSION, "ValidatingAdmissionPolicy"),
            {"spec": {"matchConstraints": {"resourceRules": [{}]}}},
            {"spec": {"failurePolicy": "Fail", "matchConstraints": {**MATCH, "resourceRules": [{"scope": "*"}]}}},
            id="admission policy",
        ),
        pytest.param(
            (ADMISSION, "ValidatingAdmissionPolicyBinding"), {}, {"spec": {}}, id="binding without match resources"
        ),
        pytest.param(
            ("apiextensions.k8s.io", "CustomResourceDefinition"),
            {"spec": {"names": {"kind": "CronTab"}}},
            {
                "spec": {
                    "names": {"kind": "CronTab", "listKind": "CronTabList", "singular": "crontab"},
                    "conversion": {"strategy": "None"},
                }
            },
            id="definition",
        ),
        pytest.param(
            ("flowcontrol.apiserver.k8s.io", "FlowSchema"), {"spec": {}}, {"spec": {"matchingPrecedence": 1000}},
            id="flow schema",
        ),
        pytest.param(
            ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
            {"spec": {"limited": {"limitResponse": {"queuing": {"queues": 0, "handSize": 4}}}}},
            {
                "spec": {
                    "limited": {
                        "limitResponse": {"queuing": {"queues": 64, "handSize": 4, "queueLengthLimit": 50}},
                        "nominalConcurrencyShares": 30,
                        "lendablePercent": 0,
                    }
                }
            },
            id="priority level",
        ),
        pytest.param(
            ("resource.k8s.io", "ResourceClaimTemplate"),
            {"spec": {"spec": {"devices": {"requests": [{"exactly": {}}]}}}},
            {"spec": {"spec": {"devices": {"requests": [{"exactly": EXACTLY}]}}}},
            id="claim template",
        ),
        pytest.param(
            ("resource.k8s.io", "ResourceClaim"),
            {"spec": {"devices": {"requests": [{"firstAvailable": [{"allocationMode": "All"}, {}]}]}}},
            {"spec": {"devices": {"requests": [{"firstAvailable": [{"allocationMode": "All"}, EXACTLY]}]}}},
            id="claim with alternatives",
        ),
        pytest.param(
            ("resource.k8s.io", "ResourceSlice"),
            {"spec": {"devices": [{"nodeAllocatableResourceMappings": {"cpu": {}}}, {}]}},
            {"spec": {"devices": [{"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}, {}]}},
            id="slice",
        ),
        pytest.param(
            ("autoscaling/v1", "HorizontalPodAutoscaler"), {"spec": {}}, {"spec": {"minReplicas": 1}}, id="autoscaler"
        ),
    ],
)  # fmt: skip
def test_defaults_of_a_kind(kind: tuple[str, str], obj: JSON, defaulted: JSON):
    DEFAULTS[kind](obj)
    assert obj == defaulted
