"""PriorityLevelConfigurations. Source: pkg/apis/flowcontrol/v1/defaults.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.printers.columns import AGE, row, text_of
from kubeloop.devcluster.printers.formatting import NONE
from kubeloop.kube.json_object import JSON


def _default(obj: JSON) -> None:
    limited = obj["spec"].get("limited")
    if limited is not None:
        limited.setdefault("nominalConcurrencyShares", 30)
        limited.setdefault("lendablePercent", 0)
        queuing = limited.get("limitResponse", {}).get("queuing")
        if queuing is not None:
            for name, value in (("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)):
                if not queuing.get(name):
                    queuing[name] = value


_QUEUING = "spec.limited.limitResponse.queuing"

STRATEGY = Strategy(
    default=_default,
    status_metadata=None,
    cells=row(
        text_of("spec.type", NONE),
        text_of("spec.limited.nominalConcurrencyShares", NONE),
        text_of(f"{_QUEUING}.queues", NONE),
        text_of(f"{_QUEUING}.handSize", NONE),
        text_of(f"{_QUEUING}.queueLengthLimit", NONE),
        AGE,
    ),
)
