"""Entry points of validation: rules that hold for every kind."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import BY_PATH, RUNTIME_CLASSES
from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.validation.validate import validate_create, validate_update
from kubeloop.kube.objects.resources import (
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    SERVICES,
    STORAGE_CLASSES,
    Resource,
)
from support.objects.validation_causes import cause_texts, defaulted, update_causes, workload


@pytest.mark.parametrize("resource", [served.resource for served in BY_PATH.values() if served.is_stored], ids=str)
def test_every_kind_requires_a_name(resource: Resource[Any]) -> None:
    obj = {"metadata": {"namespace": "default"} if resource.namespaced else {}, "spec": {}}
    assert "metadata.name: Required value: name or generateName is required" in cause_texts(
        validate_create(strategy_of(resource), resource, obj)
    )


def test_error_found_by_store_and_strategy_is_listed_twice() -> None:
    old, new = defaulted(DEPLOYMENTS, workload()), defaulted(DEPLOYMENTS, workload())
    new["metadata"]["uid"] = "other"
    assert (
        cause_texts(validate_update(strategy_of(DEPLOYMENTS), DEPLOYMENTS, new, old))
        == ['metadata.uid: Invalid value: "other": field is immutable'] * 2
    )


JSON = dict[str, Any]


def labelled(label: str, **fields: Any) -> JSON:
    return {"metadata": {"name": "a", "labels": {"k": label}}, **fields}


@pytest.mark.parametrize(
    ("resource", "body", "times"),
    [
        (SERVICES, {"spec": {"ports": [{"port": 1}]}}, 3),  # store (new metadata, change) and strategy (change)
        (STORAGE_CLASSES, {"provisioner": "a.b/c"}, 4),  # and once more for the new metadata alone
        (RUNTIME_CLASSES, {"handler": "h"}, 4),
        (CSI_STORAGE_CAPACITIES, {"storageClassName": "s"}, 4),
        (CSI_NODES, {"spec": {"drivers": []}}, 3),  # for the new metadata, not for the change
        (POD_DISRUPTION_BUDGETS, {"spec": {"minAvailable": 1}}, 2),  # store only
    ],
)
def test_metadata_errors_repeat_as_often_as_in_each_strategy(resource: Resource[Any], body: JSON, times: int):
    causes = update_causes(resource, labelled("a", **body), labelled("-", **body))
    assert [cause.partition(":")[0] for cause in causes] == ["metadata.labels"] * times
