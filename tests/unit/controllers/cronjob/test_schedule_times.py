"""Scheduled times of a CronJob."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.controllers.cronjob.schedule_times import (
    cron_job_schedule,
    job_name,
    schedule_times,
    seconds_to_next_schedule,
)
from kubeloop.kube.objects.api_types import CronJob, convert
from kubeloop.kube.values.cron_schedule import InvalidSchedule

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def cron_job(schedule: str = "TZ=UTC 0 * * * *", created: datetime = NOON, last: datetime | None = None, **spec: Any):
    status = {"lastScheduleTime": last.isoformat()} if last else {}
    metadata = {"name": "c", "namespace": "ns", "creationTimestamp": created.isoformat()}
    return convert(CronJob, {"metadata": metadata, "spec": {"schedule": schedule, **spec}, "status": status})


def due(job: CronJob, now: datetime) -> tuple[datetime | None, str]:
    times = schedule_times(job, cron_job_schedule(job), now, within_deadline=True)
    return times.latest, times.missed


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(NOON + timedelta(minutes=59), (None, "none"), id="before the first"),
        pytest.param(NOON + timedelta(hours=1), (NOON + timedelta(hours=1), "none"), id="at the first"),
        pytest.param(NOON + timedelta(hours=3.5), (NOON + timedelta(hours=3), "few"), id="three"),
        pytest.param(NOON + timedelta(days=5), (NOON + timedelta(days=5), "many"), id="more than 100"),
    ],
)
def test_latest_scheduled_time(now: datetime, expected: tuple[datetime | None, str]):
    assert due(cron_job(), now) == expected


def test_last_schedule_time_replaces_the_creation():
    job = cron_job(last=NOON + timedelta(hours=2))
    assert due(job, NOON + timedelta(hours=2.5)) == (None, "none")


def test_deadline_excludes_older_times():
    job = cron_job(startingDeadlineSeconds=600)
    assert due(job, NOON + timedelta(hours=3.5)) == (None, "none")
    assert due(job, NOON + timedelta(hours=3, minutes=5)) == (NOON + timedelta(hours=3), "none")


@pytest.mark.parametrize(
    ("seconds", "starts"),
    [
        pytest.param(10**11, True, id="wraps around to 246 years ago"),
        pytest.param(10**10, False, id="wraps around to in 267 years, as in Go"),
        pytest.param(9_223_372_036, True, id="292 years"),
    ],
)
def test_deadline_beyond_292_years_is_that_of_go(seconds: int, starts: bool):
    latest, _ = due(cron_job(startingDeadlineSeconds=seconds), NOON + timedelta(hours=1.5))
    assert latest == (NOON + timedelta(hours=1) if starts else None)


@pytest.mark.parametrize("year", [1, 9999])
def test_last_schedule_time_of_any_year(year: int):
    job = cron_job(last=datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC))
    latest, missed = due(job, NOON)
    assert (latest, missed) == ((NOON, "many") if year == 1 else (None, "none"))
    assert (seconds_to_next_schedule(job, cron_job_schedule(job), NOON) or 0) > 0


def test_irregular_schedule_returns_the_last_time():
    job = cron_job("TZ=UTC 30 6-16/4 * * 1-5", created=datetime(2026, 1, 1, tzinfo=UTC))
    friday = datetime(2026, 1, 9, 15, tzinfo=UTC)
    assert due(job, friday)[0] == datetime(2026, 1, 9, 14, 30, tzinfo=UTC)


def test_schedule_without_times_is_invalid():
    job = cron_job("TZ=UTC 0 0 31 2 *")
    with pytest.raises(InvalidSchedule, match="less than 1 second"):
        due(job, NOON)
    assert seconds_to_next_schedule(job, cron_job_schedule(job), NOON) is None


def test_next_look_is_after_the_next_time():
    job = cron_job()
    schedule = cron_job_schedule(job)
    assert seconds_to_next_schedule(job, schedule, NOON + timedelta(minutes=50)) == pytest.approx(600.1)
    missed = NOON + timedelta(hours=3.5)
    assert seconds_to_next_schedule(job, schedule, missed) == pytest.approx(1800.1)


@pytest.mark.parametrize(
    ("schedule", "zone", "hour"),
    [
        pytest.param("0 3 * * *", "Asia/Tokyo", 18, id="time zone"),
        pytest.param("TZ=UTC 0 3 * * *", "Asia/Tokyo", 3, id="zone in the schedule"),
        pytest.param("TZ=UTC 0 3 * * *", None, 3, id="no time zone"),
    ],
)
def test_time_zone(schedule: str, zone: str | None, hour: int):
    job = cron_job(schedule, **({"timeZone": zone} if zone else {}))
    following = cron_job_schedule(job).next_after(NOON)
    assert following is not None
    assert following.hour == hour


def test_job_name_is_in_minutes_since_the_epoch():
    assert job_name(cron_job(), NOON) == f"c-{int(NOON.timestamp()) // 60}"


@pytest.mark.parametrize(
    ("hours", "following"),
    [
        pytest.param(0.5, 1, id="before the first"),
        pytest.param(1, 2, id="at the first"),
        pytest.param(3.5, 4, id="three"),
        pytest.param(120, 121, id="more than 100"),
    ],
)
def test_following_scheduled_time(hours: float, following: float):
    job, now = cron_job(), NOON + timedelta(hours=hours)
    times = schedule_times(job, cron_job_schedule(job), now, within_deadline=True)
    assert times.following == NOON + timedelta(hours=following)
