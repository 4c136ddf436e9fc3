"""StorageClasses. Source: pkg/apis/storage/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.printers.columns import AGE, boolean_of, row, text_of
from kubeloop.devcluster.printers.formatting import object_name
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.warnings.pod_warnings import DEPRECATED_NODE_LABELS
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import qualified_name


def validate_storage_class(errors: ErrorList, obj: JSON) -> None:
    validate_provisioner(errors, "provisioner", obj.get("provisioner", ""))
    validate_parameters(errors, obj.get("parameters"))
    errors.one_of("reclaimPolicy", obj.get("reclaimPolicy") or None, ("Delete", "Retain"))
    errors.one_of("volumeBindingMode", obj.get("volumeBindingMode", ""), ("Immediate", "WaitForFirstConsumer"))
    terms = obj.get("allowedTopologies", ())
    seen: list[dict[str, set[str]]] = [{} for _ in terms]  # v1.36 starts with as many empty terms
    for i, term in enumerate(terms):
        values = _validate_topology_term(errors, f"allowedTopologies[{i}]", term)
        for _ in range(seen.count(values)):
            errors.duplicate(f"allowedTopologies[{i}].matchLabelExpressions", "")
        seen.append(values)


def validate_provisioner(errors: ErrorList, path: str, name: str) -> None:
    if errors.require(path, name):
        errors.check(path, name.lower(), qualified_name)


_MOST_PARAMETERS, _PARAMETERS_LIMIT = 512, 256 << 10


def validate_parameters(errors: ErrorList, values: JSON | None) -> None:
    if not values:
        return
    if len(values) > _MOST_PARAMETERS:
        errors.too_long("parameters", _MOST_PARAMETERS)
        return
    if "" in values:
        errors.invalid("parameters", "", "field can not be empty.")
    if sum(len(key.encode()) + len(value.encode()) for key, value in values.items()) > _PARAMETERS_LIMIT:
        errors.too_long("parameters", _PARAMETERS_LIMIT)


def _validate_topology_term(errors: ErrorList, path: str, term: JSON) -> dict[str, set[str]]:
    """Validate a topology term; return its values by key. Source: ValidateTopologySelectorTerm."""
    values_by_key: dict[str, set[str]] = {}
    for i, match_label_expression in enumerate(term.get("matchLabelExpressions", ())):
        where, key, values = (
            f"{path}.matchLabelExpressions[{i}]",
            match_label_expression.get("key", ""),
            match_label_expression.get("values") or [],
        )
        errors.require(f"{where}.values", values)
        for j, value in enumerate(values):
            if value in values[:j]:
                errors.duplicate(f"{where}.values[{j}]", value)
        errors.check(f"{where}.key", key, qualified_name)
        if key in values_by_key:
            errors.duplicate(f"{where}.key", key)
        values_by_key[key] = set(values)
    return values_by_key


def _default(obj: JSON) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


def _name(obj: JSON) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    default = any(annotations.get(annotation) == "true" for annotation in _DEFAULT_CLASS)
    return f"{object_name(obj)} (default)" if default else object_name(obj)


def _warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    for i, term in enumerate(obj.get("allowedTopologies", ())):
        for j, match_label_expression in enumerate(term.get("matchLabelExpressions", ())):
            if detail := DEPRECATED_NODE_LABELS.get(match_label_expression.get("key", "")):
                yield f"allowedTopologies[{i}].matchLabelExpressions[{j}].key: {detail}"


STRATEGY = Strategy(
    default=_default,
    validate=validate_storage_class,
    validate_update=update_as_create(
        validate_storage_class, "parameters", "provisioner", "reclaimPolicy", "volumeBindingMode", unchanged=True
    ),
    update_steps="wus",
    warnings=_warnings,
    cells=row(
        text_of("provisioner"),
        text_of("reclaimPolicy", "Delete"),
        text_of("volumeBindingMode", "Immediate"),
        boolean_of("allowVolumeExpansion"),
        AGE,
        name=_name,
    ),
)
