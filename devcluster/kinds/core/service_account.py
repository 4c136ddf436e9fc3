"""ServiceAccounts. Source: pkg/registry/core/serviceaccount of Kubernetes v1.36."""

from __future__ import annotations

from datetime import datetime

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.printers.formatting import Cells, object_age, object_name
from kubeloop.kube.json_object import JSON


def _cells(obj: JSON, now: datetime) -> Cells:
    return [object_name(obj), object_age(obj, now)]


STRATEGY = Strategy(update_steps="uws", cells=_cells)
