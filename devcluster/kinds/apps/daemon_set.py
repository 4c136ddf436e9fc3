"""DaemonSets. Source: pkg/apis/apps/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy, Write
from kubeloop.devcluster.printers.columns import AGE, containers_of, labels_of, number_of, row, selector_of
from kubeloop.devcluster.serializer.defaulting import default_template
from kubeloop.devcluster.validation.common.error_list import (
    ErrorList,
    is_valid_selector,
    is_zero_int_or_percent,
    selector_matches,
    validate_at_most_100_percent,
    validate_label_selector,
    validate_positive_int_or_percent,
)
from kubeloop.devcluster.validation.common.workload_status import validate_collision_count
from kubeloop.devcluster.validation.pod.pod_spec import template_before, validate_pod_template_spec
from kubeloop.devcluster.validation.pod.workload_template import (
    LABEL_SELECTOR,
    SELECTOR_MISMATCH,
    validate_restart_policy_always,
)
from kubeloop.devcluster.validation.warnings.pod_warnings import workload_warnings
from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.integers import parse_integer


def validate_daemon_set(errors: ErrorList, obj: JSON, old: JSON | None = None) -> None:
    spec = obj["spec"]
    selector, template = spec.get("selector"), spec.get("template", {})
    validate_label_selector(errors, "spec.selector", selector)
    template_labels = template.get("metadata", {}).get("labels")
    if is_valid_selector(selector) and selector != {} and not selector_matches(selector, template_labels or {}):
        errors.invalid("spec.template.metadata.labels", template_labels, SELECTOR_MISMATCH)
    if selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errors.invalid("spec.selector", selector, "empty selector is invalid for daemonset", LABEL_SELECTOR)
    validate_pod_template_spec(errors, "spec.template", template, template_before(old))
    validate_restart_policy_always(errors, "spec.template.spec", template.get("spec", {}), "DaemonSet")
    errors.not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    _validate_daemon_set_strategy(errors, "spec.updateStrategy", spec.get("updateStrategy", {}))
    errors.not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))


def _validate_daemon_set_strategy(errors: ErrorList, path: str, strategy: JSON) -> None:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "OnDelete":
        return
    if kind != "RollingUpdate":
        errors.not_supported(path, strategy, ("RollingUpdate", "OnDelete"), "apps/v1.DaemonSetUpdateStrategy")
        return
    where = f"{path}.rollingUpdate"
    if rolling is None:
        errors.required(where)
        return
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    for check in (validate_positive_int_or_percent, validate_at_most_100_percent):
        check(errors, f"{where}.maxUnavailable", unavailable)
        check(errors, f"{where}.maxSurge", surge)
    if not is_zero_int_or_percent(unavailable) and not is_zero_int_or_percent(surge):
        errors.invalid(f"{where}.maxSurge", surge, "may not be set when maxUnavailable is non-zero")
    elif is_zero_int_or_percent(unavailable) and is_zero_int_or_percent(surge):
        errors.required(f"{where}.maxUnavailable", "cannot be 0 when maxSurge is 0")


def validate_daemon_set_status_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    status = obj.get("status", {})
    for name in ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
                 "observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable",
                 "collisionCount"):  # fmt: skip
        errors.not_negative(f"status.{name}", status.get(name))
    validate_collision_count(errors, obj, old)


def validate_daemon_set_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    if obj["spec"] != old["spec"]:
        errors.immutable("spec.selector", obj["spec"].get("selector"), old["spec"].get("selector"), LABEL_SELECTOR)
        validate_daemon_set(errors, obj, old)


def _default(obj: JSON) -> None:
    spec = obj["spec"]
    obj["metadata"].setdefault("annotations", {}).setdefault("deprecated.daemonset.template.generation", "0")
    default_template(spec)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling_update = strategy.setdefault("rollingUpdate", {})
        rolling_update.setdefault("maxUnavailable", 1)
        rolling_update.setdefault("maxSurge", 0)
    elif "rollingUpdate" in strategy:  # non-pointer fields in Go, which are always encoded
        strategy["rollingUpdate"] = {"maxUnavailable": 0, "maxSurge": 0, **strategy["rollingUpdate"]}
    spec.setdefault("revisionHistoryLimit", 10)


_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def _set_template_generation(daemon_set: JSON, old: JSON | None) -> None:
    """Set the annotation with the generation of a DaemonSet's template, a field of the internal type."""
    annotations = {**daemon_set["metadata"].get("annotations", {})}  # after a patch, it may be the stored object's dict
    daemon_set["metadata"]["annotations"] = annotations
    if old is None:
        sent = annotations.get(_TEMPLATE_GENERATION, "")
        annotations[_TEMPLATE_GENERATION] = sent if sent.isdecimal() and parse_integer(sent) > 0 else "1"
        return
    before = old["metadata"].get("annotations", {}).get(_TEMPLATE_GENERATION, "1")
    changed = daemon_set["spec"]["template"] != old["spec"]["template"]
    annotations[_TEMPLATE_GENERATION] = str(parse_integer(before) + 1) if changed else before


def _prepare_create(daemon_set: JSON, _write: Write) -> None:
    _set_template_generation(daemon_set, None)


def _prepare_update(daemon_set: JSON, old: JSON, _write: Write) -> None:
    _set_template_generation(daemon_set, old)


STRATEGY = Strategy(
    default=_default,
    template_path=("spec", "template"),
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    prepare_status=_prepare_update,
    validate=validate_daemon_set,
    validate_update=validate_daemon_set_update,
    validate_subresources={"status": validate_daemon_set_status_update},
    warnings=workload_warnings,
    cells=row(
        number_of("status.desiredNumberScheduled"),
        number_of("status.currentNumberScheduled"),
        number_of("status.numberReady"),
        number_of("status.updatedNumberScheduled"),
        number_of("status.numberAvailable"),
        labels_of("spec.template.spec.nodeSelector"),
        AGE,
        *containers_of("spec.template"),
        selector_of("spec.selector"),
    ),
)
