"""Checks of selectors and pod templates that workloads share."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.validation.pod.workload_template import (
    validate_restart_policy_always,
    validate_workload_selector,
    validate_workload_template,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import DEPLOYMENTS
from support.objects.validation_causes import defaulted, validator_causes, workload


@pytest.mark.parametrize(
    ("selector", "causes"),
    [
        pytest.param({"matchLabels": {"a": "b"}}, [], id="valid"),
        pytest.param(None, ["spec.selector: Required value"], id="none"),
        pytest.param({"matchLabels": {}}, ["spec.selector: Invalid value: {}: must not be empty"], id="empty"),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
            [
                "spec.selector.matchExpressions[0].values: Forbidden: "
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            ],
            id="values of Exists",
        ),
    ],
)
def test_workload_selector_causes(selector: JSON | None, causes: list[str]) -> None:
    assert validator_causes(validate_workload_selector, "spec.selector", selector, "must not be empty") == causes


@pytest.mark.parametrize(
    ("selector", "causes"),
    [
        pytest.param({"matchLabels": {"app": "a"}}, [], id="matches the template"),
        pytest.param(
            {"matchLabels": {"app": "b"}},
            ['spec.template.metadata.labels: Invalid value: {"app":"a"}: `selector` does not match template `labels`'],
            id="does not match the template",
        ),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "Bad"}]},
            [
                'spec.selector: Invalid value: {"matchExpressions":[{"key":"a","operator":"Bad"}]}: '
                "invalid label selector"
            ],
            id="invalid",
        ),
    ],
)
def test_workload_template_causes(selector: JSON, causes: list[str]) -> None:
    spec = {**defaulted(DEPLOYMENTS, workload())["spec"], "selector": selector}
    assert validator_causes(validate_workload_template, "spec", spec, "ReplicaSet") == causes


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({"restartPolicy": "Always"}, [], id="Always"),
        pytest.param(
            {}, ['spec.restartPolicy: Unsupported value: "": supported values: "Always"'], id="no restart policy"
        ),
        pytest.param(
            {"restartPolicy": "Always", "activeDeadlineSeconds": 1},
            ["spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in DaemonSet is not Supported"],
            id="deadline",
        ),
    ],
)
def test_restart_policy_of_a_workload_is_always(spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_restart_policy_always, "spec", spec, "DaemonSet") == causes
