"""CronJobs. Source: pkg/apis/batch/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

import re

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.kinds.batch.job import LABEL_SELECTOR, job_spec_warnings, validate_job_spec
from kubeloop.devcluster.printers.columns import AGE, age_of, containers_of, number_of, row, selector_of, text_of
from kubeloop.devcluster.printers.formatting import (
    NONE,
    UNSET,
)
from kubeloop.devcluster.serializer.defaulting import default_template
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.pod_spec import template_before
from kubeloop.devcluster.validation.warnings.pod_warnings import has_same_spec, hostname_warnings
from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.cron_schedule import is_time_zone, schedule_error

_NAME_LENGTH = 52
_ZONE = re.compile(r"[A-Za-z.\-_0-9+]{1,14}")
_TEMPLATE_SPEC = "spec.jobTemplate.spec"


def validate_cron_job(errors: ErrorList, obj: JSON, old: JSON | None = None) -> None:
    spec, before, name = obj["spec"], {} if old is None else old["spec"], obj["metadata"].get("name", "")
    schedule, zone = spec.get("schedule", ""), spec.get("timeZone")
    if errors.require("spec.schedule", schedule):
        _validate_schedule(errors, schedule, zone, had_zone="TZ" in before.get("schedule", ""))
    errors.not_negative("spec.startingDeadlineSeconds", spec.get("startingDeadlineSeconds"))
    if zone is not None and zone != before.get("timeZone"):
        _validate_time_zone(errors, zone)
    policy = spec.get("concurrencyPolicy", "")
    errors.required_one_of("spec.concurrencyPolicy", policy, ("Allow", "Forbid", "Replace"))
    job = spec.get("jobTemplate", {}).get("spec", {})
    validate_job_spec(errors, _TEMPLATE_SPEC, job, template_before(before.get("jobTemplate")))
    if job.get("selector") is not None:
        detail = "`selector` will be auto-generated"
        errors.invalid(f"{_TEMPLATE_SPEC}.selector", job["selector"], detail, LABEL_SELECTOR)
    if job.get("manualSelector"):
        errors.not_supported(f"{_TEMPLATE_SPEC}.manualSelector", True, ("nil", "false"))
    errors.not_negative_fields("spec", spec, "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    if old is None and len(name) > _NAME_LENGTH:
        errors.invalid("metadata.name", name, f"must be no more than {_NAME_LENGTH} characters")


def _validate_schedule(errors: ErrorList, schedule: str, zone: str | None, *, had_zone: bool) -> None:
    if detail := schedule_error(schedule):
        errors.invalid("spec.schedule", schedule, detail)
    if "TZ" not in schedule:
        return
    if not had_zone:
        errors.invalid("spec.schedule", schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
    elif zone is not None:
        errors.invalid("spec.schedule", schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")


def _validate_time_zone(errors: ErrorList, zone: str) -> None:
    path = "spec.timeZone"
    if not zone:
        errors.invalid(path, zone, "timeZone must be nil or non-empty string")
        return
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not _ZONE.fullmatch(part):
            errors.invalid(path, zone, f"unknown time zone {zone}")
            return
    if zone.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        errors.invalid(path, zone, detail)
    if zone != "Local" and not is_time_zone(zone):
        errors.invalid(path, zone, f"unknown time zone {zone}")


def _default(obj: JSON) -> None:
    spec = obj["spec"]
    default_template(spec.get("jobTemplate", {}).get("spec", {}))
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)


def _warnings(cron_job: JSON, old: JSON | None) -> list[str]:
    spec = cron_job["spec"]
    warnings = [] if old is not None else hostname_warnings(cron_job["metadata"], "Pod names and hostnames")
    if not has_same_spec(cron_job, old):
        warnings += job_spec_warnings(spec.get("jobTemplate", {}).get("spec", {}), "spec.jobTemplate.spec")
    return [*warnings, _ZONE_IN_SCHEDULE] if old is not None and "TZ" in spec.get("schedule", "") else warnings


_ZONE_IN_SCHEDULE = (
    "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
    "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
)


STRATEGY = Strategy(
    default=_default,
    template_path=("spec", "jobTemplate", "spec", "template"),
    validate=validate_cron_job,
    validate_update=update_as_create(validate_cron_job, with_stored=True),
    subresource_steps="",
    warnings=_warnings,
    cells=row(
        text_of("spec.schedule"),
        text_of("spec.timeZone", NONE),
        text_of("spec.suspend", UNSET),
        number_of("status.active"),
        age_of("status.lastScheduleTime", NONE),
        AGE,
        *containers_of("spec.jobTemplate.spec.template"),
        selector_of("spec.jobTemplate.spec.selector"),
    ),
)
