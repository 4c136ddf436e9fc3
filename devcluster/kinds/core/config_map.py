"""ConfigMaps. Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from base64 import b64decode

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.kinds.core.secret import DATA_LIMIT, validate_immutable_data
from kubeloop.devcluster.printers.columns import AGE, row
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import config_key


def validate_config_map(errors: ErrorList, obj: JSON) -> None:
    data, binary = obj.get("data", {}), obj.get("binaryData", {})
    total = 0
    for key, value in sorted(data.items()):
        errors.check(f"data[{key}]", key, config_key)
        if key in binary:
            errors.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        total += len(value.encode())
    for key, value in sorted(binary.items()):
        errors.check(f"binaryData[{key}]", key, config_key)
        total += len(b64decode(value or ""))
    if total > DATA_LIMIT:
        errors.too_long("[]", DATA_LIMIT)


def validate_config_map_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    defaults: JSON = {"data": {}}
    validate_immutable_data(errors, defaults | obj, defaults | old, "data", "binaryData")
    if any(obj.get(name) != old.get(name) for name in ("data", "binaryData")):
        validate_config_map(errors, obj)


STRATEGY = Strategy(
    validate=validate_config_map,
    validate_update=validate_config_map_update,
    update_steps="usw",
    validated_as_sent=True,
    cells=row(lambda obj, _now: len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), AGE),
)
