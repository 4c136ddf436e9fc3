"""CSINodes. Source: pkg/apis/storage/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.printers.columns import AGE, number_of, row
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.volumes import validate_csi_driver_name
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import qualified_name

_NODE_ID_LIMIT = 256


def validate_csi_node(errors: ErrorList, obj: JSON) -> None:
    seen: set[str] = set()
    for i, driver in enumerate(obj["spec"].get("drivers") or ()):
        where, name, node_id = f"spec.drivers[{i}]", driver.get("name", ""), driver.get("nodeID", "")
        validate_csi_driver_name(errors, f"{where}.name", name)
        if errors.require(f"{where}.nodeID", node_id) and len(node_id.encode()) > _NODE_ID_LIMIT:
            errors.invalid(f"{where}.nodeID", node_id, f"must be {_NODE_ID_LIMIT} characters or less")
        errors.not_negative(f"{where}.allocatable.count", (driver.get("allocatable") or {}).get("count"))
        errors.unique(f"{where}.name", name, seen)
        _validate_topology_keys(errors, where, driver.get("topologyKeys") or ())


def _validate_topology_keys(errors: ErrorList, path: str, keys: Sequence[str]) -> None:
    for i, key in enumerate(keys):
        errors.require(path, key)
        if key in keys[:i]:
            errors.duplicate(path, key)
        errors.check(path, key, qualified_name)


def validate_csi_node_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    validate_csi_node(errors, obj)
    new = {driver.get("name"): driver for driver in obj["spec"].get("drivers") or ()}
    for before in old["spec"].get("drivers") or ():
        after = new.get(before.get("name"))
        if after is None:
            continue
        new_driver, old_driver = ({**driver, "allocatable": None} for driver in (after, before))
        if new_driver != old_driver:
            reported = {name: value for name, value in after.items() if name != "allocatable"}
            errors.invalid("spec.drivers", reported, "field is immutable", "storage/v1.CSINodeDriver")


STRATEGY = Strategy(
    validate=validate_csi_node,
    validate_update=validate_csi_node_update,
    update_steps="ws",
    cells=row(number_of("spec.drivers"), AGE),
)
