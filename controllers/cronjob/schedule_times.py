"""Times of a CronJob: which scheduled time is due, and when to look again. Pure functions.

Source: pkg/controller/cronjob/utils.go.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from kubeloop.kube.objects.api_types import CronJob
from kubeloop.kube.values.cron_schedule import InvalidSchedule, Schedule, is_time_zone, parse_schedule
from kubeloop.kube.values.times import epoch_seconds, seconds_between, time_plus

CLOCK_TOLERANCE_SECONDS = 0.1
"""Delay after a scheduled time, because clocks differ."""

_MANY_MISSED = 100


class ScheduleTimes(msgspec.Struct, frozen=True):
    """Scheduled times in an interval that ends now.

    latest: the last scheduled time in it; None without one. following: the first scheduled time after it; None if there
    is none. missed: an estimate of how many were missed.
    """

    latest: datetime | None
    following: datetime | None
    missed: Literal["none", "few", "many"]


def cron_job_schedule(cron_job: CronJob) -> Schedule:
    """Return the schedule of a CronJob in its time zone. Raises InvalidSchedule."""
    spec = cron_job.spec
    in_zone = spec.time_zone is not None and "TZ" not in spec.schedule and is_time_zone(spec.time_zone)
    return parse_schedule(f"TZ={spec.time_zone} {spec.schedule}" if in_zone else spec.schedule)


def schedule_times(cron_job: CronJob, schedule: Schedule, now: datetime, *, within_deadline: bool) -> ScheduleTimes:
    """Return the scheduled times since the last one that was processed.

    within_deadline: leave out times that startingDeadlineSeconds excludes. Raises InvalidSchedule for a schedule
    without times, such as February 31.
    """
    earliest = cron_job.status.last_schedule_time or cron_job.metadata.creation_timestamp or now
    deadline_seconds = cron_job.spec.starting_deadline_seconds
    if within_deadline and deadline_seconds is not None:
        earliest = max(earliest, time_plus(now, -deadline_seconds))
    first = schedule.next_after(earliest)
    if first is not None and now < first:
        return ScheduleTimes(None, first, "none")
    second = schedule.next_after(first) if first is not None else None
    if first is None or second is None:
        raise InvalidSchedule("time difference between two schedules is less than 1 second")
    if now < second:
        return ScheduleTimes(first, second, "none")
    # Estimated from the first interval: after a year without the controller, a search of all times would take long.
    interval_seconds = round(seconds_between(first, second))
    missed = int((now - first).total_seconds()) // interval_seconds + 1
    latest = None
    at = schedule.next_after(time_plus(first, float((missed - 2) * interval_seconds)))
    while at is not None and at <= now:
        latest, at = at, schedule.next_after(at)
    return ScheduleTimes(latest, at, "many" if missed > _MANY_MISSED else "few")


def seconds_to_next_schedule(cron_job: CronJob, schedule: Schedule, now: datetime) -> float | None:
    """Return the seconds until the next scheduled time is due; None if there is none."""
    try:
        following = schedule_times(cron_job, schedule, now, within_deadline=False).following
    except InvalidSchedule:
        following = schedule.next_after(now)
    return None if following is None else seconds_until(following, now)


def seconds_until(scheduled: datetime, now: datetime) -> float:
    """Return the seconds until a scheduled time is due."""
    return seconds_between(now, scheduled) + CLOCK_TOLERANCE_SECONDS


def job_name(cron_job: CronJob, scheduled: datetime) -> str:
    """Return the name of the Job for a scheduled time: the same for every try, so that none is created twice."""
    return f"{cron_job.metadata.name}-{int(epoch_seconds(scheduled) / 60)}"
