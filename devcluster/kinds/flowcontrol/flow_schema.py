"""FlowSchemas. Source: pkg/apis/flowcontrol/v1/defaults.go of Kubernetes v1.36."""

from __future__ import annotations

from datetime import datetime

from kubeloop.devcluster.api.conditions import condition_of
from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.printers.columns import AGE, number_of, row, text_of
from kubeloop.devcluster.printers.formatting import NONE
from kubeloop.kube.json_object import JSON


def _default(obj: JSON) -> None:
    if not obj["spec"].get("matchingPrecedence"):
        obj["spec"]["matchingPrecedence"] = 1000


def _dangling_condition(obj: JSON, _now: datetime) -> str:
    condition = condition_of(obj, "Dangling")
    return "?" if condition is None else str(condition.get("status", ""))


STRATEGY = Strategy(
    default=_default,
    status_metadata=None,
    cells=row(
        text_of("spec.priorityLevelConfiguration.name", NONE),
        number_of("spec.matchingPrecedence"),
        text_of("spec.distinguisherMethod.type", NONE),
        AGE,
        _dangling_condition,
    ),
)
