"""Validation of Jobs. Source: pkg/apis/batch/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.api.name_checks import dns_label, qualified_name
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.field_checks import (
    is_valid_selector,
    selector_matches,
    validate_label_selector,
)
from kubeloop.devcluster.validation.networking.ingress import validate_domain_prefixed_path
from kubeloop.devcluster.validation.pod.pod_spec import template_before, validate_pod_template_spec
from kubeloop.kube.json_object import JSON

LABEL_SELECTOR, _TEMPLATE = "meta/v1.LabelSelector", "core/v1.PodTemplateSpec"
_NOT_NEGATIVE = (
    "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
    "backoffLimitPerIndex", "maxFailedIndexes",
)  # fmt: skip
_MOST_INDEXES, _MANY_COMPLETIONS, _FEWER_INDEXES = 100_000, 100_000, 10_000
_MOST_RULES, _MOST_EXIT_CODES, _MOST_PATTERNS, _MANAGER_LENGTH = 20, 255, 20, 63
_ACTIONS, _STATUSES = ("Count", "FailIndex", "FailJob", "Ignore"), ("False", "True", "Unknown")
_NEEDS_INDEXES = "requires indexed completion mode"
_LABELS = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")


def validate_job(errors: ErrorList, obj: JSON, old: JSON | None = None) -> None:
    spec, metadata = obj["spec"], obj["metadata"]
    had = (template_before(old) or {}).get("metadata", {}).get("labels", {})
    _validate_generated_selector(
        errors, metadata, spec, _LABELS if old is None or {*_LABELS[2:]} <= {*had} else _LABELS[:2]
    )
    validate_job_spec(errors, "spec", spec, template_before(old))
    _validate_selector(errors, spec)
    completions, name = spec.get("completions", 0), metadata.get("name", "")
    if spec.get("completionMode") == "Indexed" and completions > 0:
        last = f"{name}-{completions - 1}"
        if dns_label(last):
            errors.invalid("metadata.name", name, f"will not able to create pod with invalid DNS label: {last}")


def _validate_generated_selector(errors: ErrorList, metadata: JSON, spec: JSON, labels: Sequence[str]) -> None:
    """labels: that the template must have; an older Job may be without those that are younger than it."""
    selector = spec.get("selector")
    if spec.get("manualSelector") or selector is None:
        return
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    found = spec.get("template", {}).get("metadata", {}).get("labels", {})
    expected = {label: uid if label.endswith("uid") else name for label in labels}
    for label in labels:
        path = f"spec.template.metadata.labels[{label}]"
        if label not in found:
            errors.required(path, f"must be '{expected[label]}'")
        elif found[label] != expected[label]:
            errors.invalid(path, found, f"must be '{expected[label]}'")
    if is_valid_selector(selector) and not selector_matches(selector, expected):
        errors.invalid("spec.selector", selector, "`selector` not auto-generated", LABEL_SELECTOR)


def _validate_selector(errors: ErrorList, spec: JSON) -> None:
    selector = spec.get("selector")
    if selector is None:
        errors.required("spec.selector")
    else:
        validate_label_selector(errors, "spec.selector", selector)
    if is_valid_selector(selector):
        found = spec.get("template", {}).get("metadata", {}).get("labels")
        if not selector_matches(selector, found or {}):
            detail = "`selector` does not match template `labels`"
            errors.invalid("spec.template.metadata.labels", found, detail)


def validate_job_spec(errors: ErrorList, path: str, spec: JSON, old_template: JSON | None = None) -> None:
    for name in _NOT_NEGATIVE:
        errors.not_negative(f"{path}.{name}", spec.get(name))
        if name == "maxFailedIndexes" and name in spec and "backoffLimitPerIndex" not in spec:
            errors.required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if "managedBy" in spec:
        validate_domain_prefixed_path(errors, f"{path}.managedBy", spec["managedBy"])
        if len(spec["managedBy"].encode()) > _MANAGER_LENGTH:
            errors.too_long(f"{path}.managedBy", _MANAGER_LENGTH)
    mode = spec.get("completionMode")
    if mode is not None and mode not in ("NonIndexed", "Indexed"):
        errors.not_supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed":
        _validate_indexed_job(errors, path, spec)
    elif mode in (None, "NonIndexed"):
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if name in spec:
                errors.invalid(f"{path}.{name}", spec[name], _NEEDS_INDEXES)
    template = spec.get("template", {})
    if "podFailurePolicy" in spec:
        _validate_failure_policy(errors, f"{path}.podFailurePolicy.rules", spec)
    if "successPolicy" in spec:
        if mode != "Indexed":
            errors.invalid(f"{path}.successPolicy", spec["successPolicy"], _NEEDS_INDEXES, "batch/v1.SuccessPolicy")
        else:
            _validate_success_policy(errors, f"{path}.successPolicy.rules", spec)
    replacement = spec.get("podReplacementPolicy")
    supported = ("Failed",) if "podFailurePolicy" in spec else ("Failed", "TerminatingOrFailed")
    if replacement is not None and replacement not in supported:
        errors.not_supported(f"{path}.podReplacementPolicy", replacement, supported)
    validate_pod_template_spec(errors, f"{path}.template", template, old_template)
    where, policy = f"{path}.template.spec.restartPolicy", template.get("spec", {}).get("restartPolicy", "")
    if policy in ("", "Always"):
        errors.required(where, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        errors.not_supported(where, policy, ("OnFailure", "Never"))
    elif "podFailurePolicy" in spec and policy != "Never":
        errors.invalid(where, policy, 'only "Never" is supported when podFailurePolicy is specified')


def _validate_indexed_job(errors: ErrorList, path: str, spec: JSON) -> None:
    completions, parallelism, failed = (spec.get(name) for name in ("completions", "parallelism", "maxFailedIndexes"))
    where = f"{path}.maxFailedIndexes"
    if completions is None:
        errors.required(f"{path}.completions", "when completion mode is Indexed")
    if parallelism is not None and parallelism > _MOST_INDEXES:
        detail = f"must be less than or equal to {_MOST_INDEXES} when completion mode is Indexed"
        errors.invalid(f"{path}.parallelism", parallelism, detail)
    if failed is not None:
        if completions is not None and failed > completions:
            errors.invalid(where, failed, "must be less than or equal to completions")
        if failed > _MOST_INDEXES:
            errors.invalid(where, failed, f"must be less than or equal to {_MOST_INDEXES}")
    if completions is None or completions <= _MANY_COMPLETIONS or "backoffLimitPerIndex" not in spec:
        return
    detail = f"when completions are above {_MANY_COMPLETIONS} and used with backoff limit per index"
    if failed is None:
        errors.required(where, f"must be specified when completions is above {_MANY_COMPLETIONS}")
    for name, value in (("parallelism", parallelism), ("maxFailedIndexes", failed)):
        if value is not None and value > _FEWER_INDEXES:
            errors.invalid(f"{path}.{name}", value, f"must be less than or equal to {_FEWER_INDEXES} {detail}")


def _values(names: Sequence[str]) -> str:
    return f"valid values: [{' '.join(map(quoted, names))}]"


def _validate_failure_policy(errors: ErrorList, path: str, spec: JSON) -> None:
    rules, pod = spec["podFailurePolicy"].get("rules") or (), spec.get("template", {}).get("spec", {})
    if len(rules) > _MOST_RULES:
        errors.too_many(path, len(rules), _MOST_RULES)
    containers = {each.get("name", "") for kind in ("containers", "initContainers") for each in pod.get(kind) or ()}
    for i, rule in enumerate(rules):
        where, action = f"{path}[{i}]", rule.get("action", "")
        if not action:
            errors.required(f"{where}.action", _values(_ACTIONS))
        elif action not in _ACTIONS:
            errors.not_supported(f"{where}.action", action, _ACTIONS)
        elif action == "FailIndex" and "backoffLimitPerIndex" not in spec:
            errors.invalid(f"{where}.action", action, "requires the backoffLimitPerIndex to be set")
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if codes is not None:
            _validate_exit_codes(errors, f"{where}.onExitCodes", codes, containers)
        _validate_pod_conditions(errors, f"{where}.onPodConditions", conditions)
        if codes is not None and conditions:
            errors.invalid_without_value(where, "specifying both OnExitCodes and OnPodConditions is not supported")
        elif codes is None and not conditions:
            errors.invalid_without_value(where, "specifying one of OnExitCodes and OnPodConditions is required")


def _validate_exit_codes(errors: ErrorList, path: str, codes: JSON, containers: set[str]) -> None:
    operator, values, name = codes.get("operator", ""), codes.get("values") or [], codes.get("containerName")
    if not operator:
        errors.required(f"{path}.operator", _values(("In", "NotIn")))
    elif operator not in ("In", "NotIn"):
        errors.not_supported(f"{path}.operator", operator, ("In", "NotIn"))
    if name is not None and name not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        errors.invalid(f"{path}.containerName", name, detail)
    if not values:
        errors.invalid(f"{path}.values", codes.get("values"), "at least one value is required")
    elif len(values) > _MOST_EXIT_CODES:
        errors.too_many(f"{path}.values", len(values), _MOST_EXIT_CODES)
    for i, code in enumerate(values):
        if operator == "In" and code == 0:
            errors.invalid(f"{path}.values[{i}]", code, "must not be 0 for the In operator")
        if code in values[:i]:
            errors.duplicate(f"{path}.values[{i}]", code)
    if list(values) != sorted(values):
        errors.invalid(f"{path}.values", values, "must be ordered")


def _validate_pod_conditions(errors: ErrorList, path: str, patterns: Sequence[JSON]) -> None:
    if len(patterns) > _MOST_PATTERNS:
        errors.too_many(path, len(patterns), _MOST_PATTERNS)
    for i, pattern in enumerate(patterns):
        kind, status = pattern.get("type", ""), pattern.get("status", "")
        errors.invalid_each(f"{path}[{i}].type", kind, qualified_name(kind))
        if not status:
            errors.required(f"{path}[{i}].status", _values(_STATUSES))
        elif status not in _STATUSES:
            errors.not_supported(f"{path}[{i}].status", status, _STATUSES)


def _validate_success_policy(errors: ErrorList, path: str, spec: JSON) -> None:
    rules, completions = spec["successPolicy"].get("rules") or (), spec.get("completions", 0)
    if not rules:
        errors.required(path, "at least one rules must be specified when the successPolicy is specified")
    if len(rules) > _MOST_RULES:
        errors.too_many(path, len(rules), _MOST_RULES)
    for i, rule in enumerate(rules):
        where, indexes, count = f"{path}[{i}]", rule.get("succeededIndexes"), rule.get("succeededCount")
        total = 0
        if indexes is None and count is None:
            errors.required(where, "at least one of succeededCount or succeededIndexes must be specified")
        if indexes is not None:
            try:
                total = index_count(indexes, completions)
            except ValueError as error:
                detail = f"error parsing succeededIndexes: {error}"
                errors.invalid(f"{where}.succeededIndexes", indexes, detail)
        if count is not None:
            errors.not_negative(f"{where}.succeededCount", count)
            detail = "must be less than or equal to {} (the number of {})"
            if count > completions:
                errors.invalid(f"{where}.succeededCount", count, detail.format(completions, "specified completions"))
            if indexes is not None and count > total:
                of = "indexes in the specified succeededIndexes field"
                errors.invalid(f"{where}.succeededCount", count, detail.format(total, of))


def index_interval(text: str, completions: int) -> tuple[int, int]:
    """The first and last of "2-4", or of "3". Raises ValueError in Kubernetes' words."""

    def index(part: str) -> int:
        if not re.fullmatch("[-+]?[0-9]+", part):
            raise ValueError(f"cannot convert string to integer for index: {quoted(part)}")
        if int(part) >= completions:
            raise ValueError(f"too large index: {quoted(part)}")
        return int(part)

    parts = text.split("-")
    if len(parts) > 2:
        detail = "violates the requirement that an index interval can have at most two parts separated by '-'"
        raise ValueError(f"the fragment {quoted(text)} {detail}")
    first = index(parts[0])
    last = index(parts[1]) if len(parts) > 1 else first
    if len(parts) > 1 and first >= last:
        raise ValueError(f"non-increasing order, previous: {first}, current: {last}")
    return first, last


def index_count(text: str, completions: int) -> int:
    """How many indexes there are in "0,2-4". Raises ValueError in Kubernetes' words."""
    total, before = 0, -1
    for interval in text.split(",") if text else ():
        first, last = index_interval(interval, completions)
        if before >= first:
            raise ValueError(f"non-increasing order, previous: {before}, current: {first}")
        total, before = total + last - first + 1, last
    return total


_FIXED = (
    ("completionMode", ""), ("podFailurePolicy", "batch/v1.PodFailurePolicy"), ("backoffLimitPerIndex", ""),
    ("managedBy", ""), ("successPolicy", "batch/v1.SuccessPolicy"),
)  # fmt: skip
_SCHEDULING = ("nodeSelector", "tolerations", "schedulingGates")


def validate_job_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    spec, before = obj["spec"], old["spec"]
    if spec == before:
        return
    validate_job(errors, obj, old)
    validate_job_spec(errors, "spec", spec, template_before(old))
    _validate_selector(errors, spec)
    completions = spec.get("completions")
    if spec.get("completionMode") != "Indexed":
        errors.immutable("spec.completions", completions, before.get("completions"))
    elif completions not in (None, before.get("completions"), spec.get("parallelism")):
        errors.invalid("spec.completions", completions, "can only be modified in tandem with spec.parallelism")
    errors.immutable("spec.selector", spec.get("selector"), before.get("selector"), LABEL_SELECTOR)
    _validate_template_update(errors, spec, before, old.get("status") or {})
    for name, type_name in _FIXED:
        errors.immutable(f"spec.{name}", spec.get(name), before.get(name), type_name)


def _validate_template_update(errors: ErrorList, spec: JSON, before: JSON, status: JSON) -> None:
    """A template stays as it is, but for what concerns scheduling while the Job is suspended and not begun."""
    template, was = spec.get("template", {}), before.get("template", {})
    stopped = any(
        condition.get("type") == "Suspended" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    idle = bool(before.get("suspend")) and ("startTime" not in status or stopped) and not status.get("active")
    if idle:
        was = _with_scheduling_of(was, template)
    if before.get("suspend") and idle:
        was = _with_resources_of(was, template)
        errors.immutable("spec.template.spec", template.get("spec"), was.get("spec"), "core/v1.PodSpec")
    else:
        errors.immutable("spec.template", template, was, _TEMPLATE)


def _with_scheduling_of(was: JSON, template: JSON) -> JSON:
    pod, new = dict(was.get("spec", {})), template.get("spec", {})
    for name in _SCHEDULING:
        pod.pop(name, None)
        if name in new:
            pod[name] = new[name]
    affinity = {k: v for k, v in pod.get("affinity", {}).items() if k != "nodeAffinity"}
    if "nodeAffinity" in new.get("affinity", {}):
        affinity["nodeAffinity"] = new["affinity"]["nodeAffinity"]
    if affinity or new.get("affinity") == {}:
        pod["affinity"] = affinity
    else:
        pod.pop("affinity", None)
    metadata = {k: v for k, v in was.get("metadata", {}).items() if k not in ("labels", "annotations")}
    metadata |= {k: v for k, v in template.get("metadata", {}).items() if k in ("labels", "annotations")}
    return {**was, "metadata": metadata, "spec": pod}


def _with_resources_of(was: JSON, template: JSON) -> JSON:
    pod, new = dict(was.get("spec", {})), template.get("spec", {})
    for kind in ("containers", "initContainers"):
        mine, theirs = pod.get(kind) or [], new.get(kind) or []
        if len(mine) == len(theirs):
            pod[kind] = [
                {**one, "resources": other.get("resources", {})} if one.get("name") == other.get("name") else one
                for one, other in zip(mine, theirs, strict=True)
            ] or pod.get(kind)
            if pod[kind] is None:
                del pod[kind]
    return {**was, "spec": pod}
