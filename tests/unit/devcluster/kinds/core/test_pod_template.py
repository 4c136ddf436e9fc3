"""Validation of PodTemplates."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.api.served_resources import POD_TEMPLATES
from kubeloop.devcluster.kinds.core.pod_template import STRATEGY, validate_pod_template
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import defaulted, pod, validator_causes


def pod_template(**spec: Any) -> JSON:
    return defaulted(POD_TEMPLATES, {"template": pod(**spec)})


def test_pod_template_causes() -> None:
    assert validator_causes(validate_pod_template, pod_template()) == []
    assert validator_causes(validate_pod_template, pod_template(restartPolicy="Sometimes")) == [
        'template.spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"'
    ]


def test_unchanged_pod_template_is_not_validated() -> None:
    invalid = pod_template(restartPolicy="Sometimes")
    assert validator_causes(STRATEGY.validate_update, invalid, invalid) == []
    assert len(validator_causes(STRATEGY.validate_update, invalid, pod_template())) == 1
