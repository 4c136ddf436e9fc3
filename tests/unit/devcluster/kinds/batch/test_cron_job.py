"""Validation of CronJobs."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.batch.cron_job import STRATEGY, validate_cron_job
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes

TEMPLATE = {
    "spec": {
        "restartPolicy": "Never",
        "dnsPolicy": "ClusterFirst",
        "containers": [
            {
                "name": "c",
                "image": "i",
                "imagePullPolicy": "Always",
                "terminationMessagePolicy": "File",
            }
        ],
    }
}


def cron_job(name: str = "c", job: JSON | None = None, **spec: Any) -> JSON:
    defaults = {"schedule": "* * * * *", "concurrencyPolicy": "Allow"}
    job_template = {"spec": {"template": TEMPLATE, **(job or {})}}
    return {"metadata": {"name": name}, "spec": {**defaults, "jobTemplate": job_template, **spec}}


TZ_IN_SCHEDULE = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"


@pytest.mark.parametrize(
    ("obj", "causes"),
    [
        pytest.param(cron_job("a" * 52, timeZone="Etc/UTC"), [], id="valid"),
        pytest.param(
            cron_job("a" * 53),
            [f'metadata.name: Invalid value: "{"a" * 53}": must be no more than 52 characters'],
            id="name too long for the names of its jobs",
        ),
        pytest.param(
            cron_job(schedule="", concurrencyPolicy="Queue"),
            [
                "spec.schedule: Required value",
                'spec.concurrencyPolicy: Unsupported value: "Queue": supported values: "Allow", "Forbid", "Replace"',
            ],
            id="no schedule and unknown concurrency policy",
        ),
        pytest.param(
            cron_job(schedule="TZ=UTC * * * * *"),
            [f'spec.schedule: Invalid value: "TZ=UTC * * * * *": {TZ_IN_SCHEDULE}'],
            id="time zone in the schedule",
        ),
        pytest.param(
            cron_job(timeZone="local"),
            [
                'spec.timeZone: Invalid value: "local": timeZone must be an explicit time zone as defined in '
                "https://www.iana.org/time-zones",
                'spec.timeZone: Invalid value: "local": unknown time zone local',
            ],
            id="local time zone",
        ),
        pytest.param(
            cron_job(timeZone="Europe/../UTC"),
            ['spec.timeZone: Invalid value: "Europe/../UTC": unknown time zone Europe/../UTC'],
            id="path as a time zone",
        ),
        pytest.param(
            cron_job(job={"selector": {"matchLabels": {"a": "b"}}, "manualSelector": True}),
            [
                'spec.jobTemplate.spec.selector: Invalid value: {"matchLabels":{"a":"b"}}: '
                "`selector` will be auto-generated",
                'spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false"',
            ],
            id="selector of the job",
        ),
        pytest.param(
            cron_job(startingDeadlineSeconds=-1, failedJobsHistoryLimit=-2),
            [
                "spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
                "spec.failedJobsHistoryLimit: Invalid value: -2: must be greater than or equal to 0",
            ],
            id="negative numbers",
        ),
    ],
)
def test_cron_job_causes(obj: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_cron_job, obj) == causes


def test_update_may_keep_the_time_zone_in_the_schedule() -> None:
    old = cron_job(schedule="TZ=UTC * * * * *")
    new = cron_job(schedule="TZ=UTC 0 * * * *")
    assert validator_causes(STRATEGY.validate_update, new, old) == []
    assert validator_causes(STRATEGY.validate_update, new, cron_job()) == [
        f'spec.schedule: Invalid value: "TZ=UTC 0 * * * *": {TZ_IN_SCHEDULE}'
    ]
    new["spec"]["timeZone"] = "UTC"
    assert validator_causes(STRATEGY.validate_update, new, old) == [
        'spec.schedule: Invalid value: "TZ=UTC 0 * * * *": cannot use both timeZone field and TZ or CRON_TZ in schedule'
    ]
