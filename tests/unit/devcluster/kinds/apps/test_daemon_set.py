"""Validation of DaemonSets."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.apps.daemon_set import (
    validate_daemon_set,
    validate_daemon_set_status_update,
    validate_daemon_set_update,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import DAEMON_SETS
from support.objects.validation_causes import defaulted, pod, validator_causes, workload


def daemon_set(**spec: Any) -> JSON:
    return defaulted(DAEMON_SETS, workload(**spec))


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({}, [], id="valid"),
        pytest.param({"updateStrategy": {"type": "OnDelete"}}, [], id="update on delete"),
        pytest.param(
            {"selector": {}},
            ["spec.selector: Invalid value: {}: empty selector is invalid for daemonset"],
            id="empty selector",
        ),
        pytest.param(
            {"template": {"metadata": {"labels": {"app": "a"}}, **pod(restartPolicy="Never")}},
            ['spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"'],
            id="restart policy",
        ),
        pytest.param(
            {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}},
            [
                "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: "
                "may not be set when maxUnavailable is non-zero"
            ],
            id="surge and unavailable pods",
        ),
        pytest.param(
            {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}}},
            [
                "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
            ],
            id="neither surge nor unavailable pods",
        ),
        pytest.param(
            {"minReadySeconds": -1, "revisionHistoryLimit": -2},
            [
                "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
                "spec.revisionHistoryLimit: Invalid value: -2: must be greater than or equal to 0",
            ],
            id="negative numbers",
        ),
    ],
)
def test_daemon_set_causes(spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_daemon_set, daemon_set(**spec)) == causes


def test_daemon_set_selector_is_immutable() -> None:
    labels = {"app": "a", "b": "c"}
    old = daemon_set(template={"metadata": {"labels": labels}, **pod()})
    new = daemon_set(template={"metadata": {"labels": labels}, **pod()}, selector={"matchLabels": {"b": "c"}})
    assert validator_causes(validate_daemon_set_update, new, old) == [
        'spec.selector: Invalid value: {"matchLabels":{"b":"c"}}: field is immutable'
    ]


def test_daemon_set_status_causes() -> None:
    new, old = {"status": {"numberReady": -1, "collisionCount": 1}}, {"status": {"collisionCount": 2}}
    assert validator_causes(validate_daemon_set_status_update, new, old) == [
        "status.numberReady: Invalid value: -1: must be greater than or equal to 0",
        "status.collisionCount: Invalid value: 1: cannot be decremented",
    ]
