"""Jobs. Source: pkg/apis/batch/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.conditions import is_true
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.selectable_fields import METADATA, field_getter
from kubeloop.devcluster.api.served_resources import JOBS
from kubeloop.devcluster.api.strategy import Strategy, Write
from kubeloop.devcluster.kinds.batch.job_status import index_count, validate_job_status_update
from kubeloop.devcluster.printers.columns import AGE, containers_of, row, selector_of
from kubeloop.devcluster.printers.formatting import (
    human_duration,
    is_terminating,
    spec_of,
    status_of,
)
from kubeloop.devcluster.serializer.defaulting import default_labels_of_template, default_template
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.validation.common.error_list import (
    ErrorList,
    is_valid_selector,
    selector_matches,
    validate_domain_prefixed_path,
    validate_label_selector,
)
from kubeloop.devcluster.validation.pod.pod_spec import template_before, validate_pod_template_spec
from kubeloop.devcluster.validation.warnings.pod_warnings import has_same_spec, hostname_warnings, template_warnings
from kubeloop.kube.json_object import JSON, sorted_map
from kubeloop.kube.objects.resources import POD_GROUPS
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.validation.name_checks import dns_label, qualified_name
from kubeloop.kube.values.times import parse_time, seconds_between

LABEL_SELECTOR, _TEMPLATE = "meta/v1.LabelSelector", "core/v1.PodTemplateSpec"
_NOT_NEGATIVE_FIELDS = (
    "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
    "backoffLimitPerIndex", "maxFailedIndexes",
)  # fmt: skip
_MAX_INDEXES, _HIGH_COMPLETIONS, _MAX_INDEXES_AT_HIGH_COMPLETIONS = 100_000, 100_000, 10_000
_MAX_RULES, _MAX_EXIT_CODES, _MAX_PATTERNS, _MAX_MANAGED_BY_BYTES = 20, 255, 20, 63
_ACTIONS, _STATUSES = ("Count", "FailIndex", "FailJob", "Ignore"), ("False", "True", "Unknown")
_REQUIRES_INDEXED = "requires indexed completion mode"
_LABELS = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")


def validate_job(errors: ErrorList, obj: JSON, old: JSON | None = None) -> None:
    spec, metadata = obj["spec"], obj["metadata"]
    old_labels = (template_before(old) or {}).get("metadata", {}).get("labels", {})
    _validate_generated_selector(
        errors, metadata, spec, _LABELS if old is None or {*_LABELS[2:]} <= {*old_labels} else _LABELS[:2]
    )
    validate_job_spec(errors, "spec", spec, template_before(old))
    _validate_selector(errors, spec)
    completions, name = spec.get("completions", 0), metadata.get("name", "")
    if spec.get("completionMode") == "Indexed" and completions > 0:
        last = f"{name}-{completions - 1}"
        if dns_label(last):
            errors.invalid("metadata.name", name, f"will not able to create pod with invalid DNS label: {last}")


def _validate_generated_selector(errors: ErrorList, metadata: JSON, spec: JSON, labels: Sequence[str]) -> None:
    """Validate a generated selector and the labels that the template must have; older Jobs lack the newer labels."""
    selector = spec.get("selector")
    if spec.get("manualSelector") or selector is None:
        return
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    template_labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
    expected = {label: uid if label.endswith("uid") else name for label in labels}
    for label in labels:
        path = f"spec.template.metadata.labels[{label}]"
        if label not in template_labels:
            errors.required(path, f"must be '{expected[label]}'")
        elif template_labels[label] != expected[label]:
            errors.invalid(path, template_labels, f"must be '{expected[label]}'")
    if is_valid_selector(selector) and not selector_matches(selector, expected):
        errors.invalid("spec.selector", selector, "`selector` not auto-generated", LABEL_SELECTOR)


def _validate_selector(errors: ErrorList, spec: JSON) -> None:
    selector = spec.get("selector")
    if selector is None:
        errors.required("spec.selector")
    else:
        validate_label_selector(errors, "spec.selector", selector)
    if is_valid_selector(selector):
        template_labels = spec.get("template", {}).get("metadata", {}).get("labels")
        if not selector_matches(selector, template_labels or {}):
            detail = "`selector` does not match template `labels`"
            errors.invalid("spec.template.metadata.labels", template_labels, detail)


def validate_job_spec(errors: ErrorList, path: str, spec: JSON, old_template: JSON | None = None) -> None:
    errors.not_negative_fields(path, spec, *_NOT_NEGATIVE_FIELDS)
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        errors.required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if "managedBy" in spec:
        validate_domain_prefixed_path(errors, f"{path}.managedBy", spec["managedBy"])
        errors.at_most_bytes(f"{path}.managedBy", spec["managedBy"], _MAX_MANAGED_BY_BYTES)
    mode = spec.get("completionMode")
    errors.one_of(f"{path}.completionMode", mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed":
        _validate_indexed_job(errors, path, spec)
    elif mode in (None, "NonIndexed"):
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if name in spec:
                errors.invalid(f"{path}.{name}", spec[name], _REQUIRES_INDEXED)
    template = spec.get("template", {})
    if "podFailurePolicy" in spec:
        _validate_failure_policy(errors, f"{path}.podFailurePolicy.rules", spec)
    if "successPolicy" in spec:
        if mode != "Indexed":
            errors.invalid(f"{path}.successPolicy", spec["successPolicy"], _REQUIRES_INDEXED, "batch/v1.SuccessPolicy")
        else:
            _validate_success_policy(errors, f"{path}.successPolicy.rules", spec)
    replacement = spec.get("podReplacementPolicy")
    supported = ("Failed",) if "podFailurePolicy" in spec else ("Failed", "TerminatingOrFailed")
    errors.one_of(f"{path}.podReplacementPolicy", replacement, supported)
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
    if parallelism is not None and parallelism > _MAX_INDEXES:
        detail = f"must be less than or equal to {_MAX_INDEXES} when completion mode is Indexed"
        errors.invalid(f"{path}.parallelism", parallelism, detail)
    if failed is not None:
        if completions is not None and failed > completions:
            errors.invalid(where, failed, "must be less than or equal to completions")
        if failed > _MAX_INDEXES:
            errors.invalid(where, failed, f"must be less than or equal to {_MAX_INDEXES}")
    if completions is None or completions <= _HIGH_COMPLETIONS or "backoffLimitPerIndex" not in spec:
        return
    detail = f"when completions are above {_HIGH_COMPLETIONS} and used with backoff limit per index"
    if failed is None:
        errors.required(where, f"must be specified when completions is above {_HIGH_COMPLETIONS}")
    for name, value in (("parallelism", parallelism), ("maxFailedIndexes", failed)):
        if value is not None and value > _MAX_INDEXES_AT_HIGH_COMPLETIONS:
            errors.invalid(
                f"{path}.{name}", value, f"must be less than or equal to {_MAX_INDEXES_AT_HIGH_COMPLETIONS} {detail}"
            )


def _valid_values(names: Sequence[str]) -> str:
    return f"valid values: [{' '.join(map(quoted, names))}]"


def _validate_failure_policy(errors: ErrorList, path: str, spec: JSON) -> None:
    rules, pod_spec = spec["podFailurePolicy"].get("rules") or (), spec.get("template", {}).get("spec", {})
    errors.at_most(path, rules, _MAX_RULES)
    containers = {
        container.get("name", "") for kind in ("containers", "initContainers") for container in pod_spec.get(kind) or ()
    }
    for i, rule in enumerate(rules):
        where, action = f"{path}[{i}]", rule.get("action", "")
        if not action:
            errors.required(f"{where}.action", _valid_values(_ACTIONS))
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
    errors.required_one_of(f"{path}.operator", operator, ("In", "NotIn"), _valid_values(("In", "NotIn")))
    if name is not None and name not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        errors.invalid(f"{path}.containerName", name, detail)
    if not values:
        errors.invalid(f"{path}.values", codes.get("values"), "at least one value is required")
    elif len(values) > _MAX_EXIT_CODES:
        errors.too_many(f"{path}.values", len(values), _MAX_EXIT_CODES)
    for i, code in enumerate(values):
        if operator == "In" and code == 0:
            errors.invalid(f"{path}.values[{i}]", code, "must not be 0 for the In operator")
        if code in values[:i]:
            errors.duplicate(f"{path}.values[{i}]", code)
    if list(values) != sorted(values):
        errors.invalid(f"{path}.values", values, "must be ordered")


def _validate_pod_conditions(errors: ErrorList, path: str, patterns: Sequence[JSON]) -> None:
    errors.at_most(path, patterns, _MAX_PATTERNS)
    for i, pattern in enumerate(patterns):
        kind, status = pattern.get("type", ""), pattern.get("status", "")
        errors.check(f"{path}[{i}].type", kind, qualified_name)
        errors.required_one_of(f"{path}[{i}].status", status, _STATUSES, _valid_values(_STATUSES))


def _validate_success_policy(errors: ErrorList, path: str, spec: JSON) -> None:
    rules, completions = spec["successPolicy"].get("rules") or (), spec.get("completions", 0)
    errors.require(path, rules, "at least one rules must be specified when the successPolicy is specified")
    errors.at_most(path, rules, _MAX_RULES)
    for i, rule in enumerate(rules):
        where, indexes, count = f"{path}[{i}]", rule.get("succeededIndexes"), rule.get("succeededCount")
        total = 0
        if indexes is None and count is None:
            errors.required(where, "at least one of succeededCount or succeededIndexes must be specified")
        if indexes is not None:
            try:
                total = index_count(indexes, completions)
            except ValueError as error:
                parse_error = f"error parsing succeededIndexes: {error}"
                errors.invalid(f"{where}.succeededIndexes", indexes, parse_error)
        if count is not None:
            errors.not_negative(f"{where}.succeededCount", count)
            limit_message = "must be less than or equal to {} (the number of {})"
            if count > completions:
                errors.invalid(
                    f"{where}.succeededCount", count, limit_message.format(completions, "specified completions")
                )
            if indexes is not None and count > total:
                counted_field = "indexes in the specified succeededIndexes field"
                errors.invalid(f"{where}.succeededCount", count, limit_message.format(total, counted_field))


_IMMUTABLE_FIELDS = (
    ("completionMode", ""), ("podFailurePolicy", "batch/v1.PodFailurePolicy"), ("backoffLimitPerIndex", ""),
    ("managedBy", ""), ("successPolicy", "batch/v1.SuccessPolicy"),
)  # fmt: skip
_SCHEDULING_FIELDS = ("nodeSelector", "tolerations", "schedulingGates")


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
    for name, type_name in _IMMUTABLE_FIELDS:
        errors.immutable(f"spec.{name}", spec.get(name), before.get(name), type_name)


def _validate_template_update(errors: ErrorList, spec: JSON, before: JSON, status: JSON) -> None:
    """Require the template to stay the same, except for scheduling fields of a suspended Job that has not started."""
    template, old_template = spec.get("template", {}), before.get("template", {})
    suspended = any(
        condition.get("type") == "Suspended" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    not_started = bool(before.get("suspend")) and ("startTime" not in status or suspended) and not status.get("active")
    never_started = bool(before.get("suspend")) and "startTime" not in status
    if not_started if errors.gates.enabled("MutableSchedulingDirectivesForSuspendedJobs") else never_started:
        old_template = _with_new_scheduling(old_template, template)
    if before.get("suspend") and not_started and errors.gates.enabled("MutablePodResourcesForSuspendedJobs"):
        old_template = _with_new_resources(old_template, template)
        errors.immutable("spec.template.spec", template.get("spec"), old_template.get("spec"), "core/v1.PodSpec")
    else:
        errors.immutable("spec.template", template, old_template, _TEMPLATE)


def _with_new_scheduling(old_template: JSON, template: JSON) -> JSON:
    pod_spec, new_spec = dict(old_template.get("spec", {})), template.get("spec", {})
    for name in _SCHEDULING_FIELDS:
        pod_spec.pop(name, None)
        if name in new_spec:
            pod_spec[name] = new_spec[name]
    affinity = {k: v for k, v in pod_spec.get("affinity", {}).items() if k != "nodeAffinity"}
    if "nodeAffinity" in new_spec.get("affinity", {}):
        affinity["nodeAffinity"] = new_spec["affinity"]["nodeAffinity"]
    if affinity or new_spec.get("affinity") == {}:
        pod_spec["affinity"] = affinity
    else:
        pod_spec.pop("affinity", None)
    metadata = {k: v for k, v in old_template.get("metadata", {}).items() if k not in ("labels", "annotations")}
    metadata |= {k: v for k, v in template.get("metadata", {}).items() if k in ("labels", "annotations")}
    return {**old_template, "metadata": metadata, "spec": pod_spec}


def _with_new_resources(old_template: JSON, template: JSON) -> JSON:
    pod_spec, new_spec = dict(old_template.get("spec", {})), template.get("spec", {})
    for kind in ("containers", "initContainers"):
        old_containers, new_containers = pod_spec.get(kind) or [], new_spec.get(kind) or []
        if len(old_containers) == len(new_containers):
            pod_spec[kind] = [
                {**container, "resources": new_container.get("resources", {})}
                if container.get("name") == new_container.get("name")
                else container
                for container, new_container in zip(old_containers, new_containers, strict=True)
            ] or pod_spec.get(kind)
            if pod_spec[kind] is None:
                del pod_spec[kind]
    return {**old_template, "spec": pod_spec}


def _default(obj: JSON) -> None:
    spec = obj["spec"]
    default_template(spec)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 0x7FFFFFFF if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    for rule in spec.get("podFailurePolicy", {}).get("rules") or ():
        for condition in rule.get("onPodConditions") or ():
            condition["status"] = condition.get("status") or "True"
    labels = spec.get("template", {}).get("metadata", {}).get("labels")
    if labels and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = labels  # the same dict: labels that the strategy adds appear in both


def _job_status(job: JSON, _now: datetime) -> str:
    for condition in ("Complete", "Failed"):
        if is_true(job, condition):
            return condition
    if is_terminating(job):
        return "Terminating"
    other_conditions = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((other for other in other_conditions if is_true(job, other)), "Running")


def _completions(job: JSON, _now: datetime) -> str:
    spec, succeeded = spec_of(job), status_of(job).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _duration(job: JSON, now: datetime) -> str:
    started, ended = (status_of(job).get(name) for name in ("startTime", "completionTime"))
    if not started:
        return ""
    return human_duration(seconds_between(parse_time(started), parse_time(ended) if ended else now))


def _warnings(job: JSON, old: JSON | None) -> list[str]:
    warnings = [] if old is not None else hostname_warnings(job["metadata"], "Pod names and hostnames")
    return warnings if has_same_spec(job, old) else [*warnings, *job_spec_warnings(job["spec"], "spec")]


def job_spec_warnings(spec: JSON, path: str) -> list[str]:
    exceeds_limits = spec.get("completions", 0) > _HIGH_COMPLETIONS and spec.get("parallelism", 0) > _HIGH_PARALLELISM
    warnings = [f"{path}: {_TOO_MANY_INDEXES}"] if exceeds_limits and spec.get("completionMode") == "Indexed" else []
    return [*warnings, *template_warnings(spec, path)]


_HIGH_PARALLELISM = 10_000

_TOO_MANY_INDEXES = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes "
    "might not be able to track completedIndexes when a big number of indexes fail"
)


def _prepare_create(job: JSON, _write: Write) -> None:
    """Generate a selector and labels with the Job's uid, unless manualSelector is set. Source: generateSelector."""
    spec, metadata = job["spec"], job["metadata"]
    if spec.get("manualSelector"):
        return
    template_metadata = spec.setdefault("template", {}).setdefault("metadata", {})
    labels = template_metadata.setdefault("labels", {})
    for prefix in ("", "batch.kubernetes.io/"):
        labels.setdefault(f"{prefix}controller-uid", metadata["uid"])
        labels.setdefault(f"{prefix}job-name", metadata.get("name", ""))
    if metadata.get("labels") is labels:  # see _default
        metadata["labels"] = sorted_map(labels)
    template_metadata["labels"] = sorted_map(labels)
    selector = spec.setdefault("selector", {})
    match_labels = selector.setdefault("matchLabels", {})
    match_labels.setdefault("batch.kubernetes.io/controller-uid", metadata["uid"])
    selector["matchLabels"] = sorted_map(match_labels)


def _check_update(chain: AdmissionChain, context: RequestContext, job: JSON, old: JSON) -> None:
    is_checked = "JobValidation" in chain.enabled and chain.gates.enabled("GenericWorkload")
    if is_checked and not context.info.subresource:
        check_gang_parallelism(chain.store, job, old)


def check_gang_parallelism(store: ObjectStore, job: JSON, old: JSON) -> None:
    """Raise StatusError 403 if the parallelism of a Job changes whose pods are scheduled as a gang."""
    if job["spec"].get("parallelism") == old["spec"].get("parallelism"):
        return
    metadata = old["metadata"]
    group_name = (old["spec"]["template"]["spec"].get("schedulingGroup") or {}).get("podGroupName")
    if group_name is not None:
        referenced = store.get(POD_GROUPS, metadata["namespace"], group_name)
        pod_groups = [] if referenced is None else [referenced]
    else:
        pod_groups = [
            pod_group
            for pod_group in store.list(POD_GROUPS, metadata["namespace"])
            if _is_controlled_by(pod_group, metadata["uid"])
        ]
    for pod_group in pod_groups:
        if "gang" in pod_group["spec"]["schedulingPolicy"]:
            name = pod_group["metadata"]["name"]
            message = f'cannot change parallelism for a Job referencing gang-scheduled PodGroup "{name}"'
            raise errors.forbidden(JOBS, metadata["name"], message)


def _is_controlled_by(obj: JSON, uid: str) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner["uid"] == uid for owner in owners)


_JOB_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


STRATEGY = Strategy(
    default=_default,
    default_on_read=default_labels_of_template,
    is_defaulted_on_read=lambda job: not job["metadata"].get("labels"),
    template_path=("spec", "template"),
    prepare_create=_prepare_create,
    validate=validate_job,
    validate_update=validate_job_update,
    validate_subresources={"status": validate_job_status_update},
    update_steps="wus",
    warnings=_warnings,
    deletion_warning=_JOB_WARNING,
    check_update=_check_update,
    cells=row(_job_status, _completions, _duration, AGE, *containers_of("spec.template"), selector_of("spec.selector")),
    selectable_fields={**METADATA, "status.successful": field_getter("status.succeeded", "0")},
    unknown_field='field label "{field}" not supported for Job',
)
