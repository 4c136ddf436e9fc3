"""Cron schedules of CronJobs: parser, errors, and the next time of a schedule.

The API server validates with it, and the CronJob controller schedules with it. Results are those of Kubernetes' parser,
github.com/robfig/cron, also around daylight saving time.
"""

from __future__ import annotations

import re
import time
import zoneinfo
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec

from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.values.durations import InvalidDuration, parse_duration
from kubeloop.kube.values.integers import parse_integer
from kubeloop.kube.values.times import LATEST, time_plus

_MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11,
    "dec": 12,
}  # fmt: skip
_DAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_BOUNDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}), (0, 23, {}), (1, 31, {}), (1, 12, _MONTHS), (0, 6, _DAYS),
)  # fmt: skip
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MAX_YEARS: Final = 5  # a schedule without a time in so many years has none
_SECOND, _MINUTE, _HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)

_CALENDAR: Final = timedelta(days=146_097)  # 400 years
_MARGIN_YEARS: Final = 20

OffsetFunction = Callable[[datetime], timedelta]
"""Returns the offset from UTC of a time zone at a moment (aware, UTC)."""


class InvalidSchedule(ValueError):
    """The text is not a cron schedule. The message is that of Kubernetes' parser."""


@lru_cache(maxsize=256)
def is_time_zone(name: str) -> bool:
    """Return True for a time zone's name, or for every name if this machine has no time zone database."""
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return name != "UTC" and not zoneinfo.available_timezones()
    return True


class EverySchedule(msgspec.Struct, frozen=True):
    """ "@every 1h30m": a fixed interval of whole seconds, at least one."""

    seconds: int

    def next_after(self, moment: datetime) -> datetime:
        return time_plus(moment.replace(microsecond=0), self.seconds)


class FieldSchedule(msgspec.Struct, frozen=True):
    """Five fields, each the set of values that match.

    any_day: True if the day of month or the day of week is "*" or "?"; a day must then match both, otherwise one of
    them. offset: that of the schedule's time zone.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    offset: OffsetFunction

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first time after `moment` (aware) that matches, in UTC; None if there is none in five years.

        A time that daylight saving time skips has no run; one that occurs twice has two.
        """
        # The calendar repeats every 400 years: the years 1 and 9999 are computed where their neighbours exist, too.
        shift = _CALENDAR * ((moment.year < _MARGIN_YEARS) - (moment.year > 9999 - _MARGIN_YEARS))
        at = self._next_after(moment + shift)
        try:
            return None if at is None else at - shift
        except OverflowError:
            return LATEST  # it is in the year 10000 or later

    def _next_after(self, moment: datetime) -> datetime | None:
        """Advance month, day, hour, minute and second to values that match, one after the other.

        All start over where a part becomes its first value. Source: SpecSchedule.Next, including what it does around
        skipped hours: a day that an hour's step leaves without passing through hour 0 is not checked again.
        """
        at = moment.astimezone(UTC).replace(microsecond=0) + _SECOND
        local = self._local(at)
        last_year = local.year + _MAX_YEARS
        part = 0
        truncated = False  # the parts below the first one that did not match are at their start
        while part or local.year <= last_year:
            if part == 0 and local.month not in self.months:
                start = local if truncated else self._normalized(local.replace(day=1, hour=0, minute=0, second=0))
                year, month = divmod(start.year * 12 + start.month, 12)
                at = self._utc(start.replace(year=year, month=month + 1, day=1) + timedelta(days=start.day - 1))
                local = self._local(at)
                starts_over = local.month == 1
            elif part == 1 and not self._matches_day(local.date()):
                start = local if truncated else self._normalized(local.replace(hour=0, minute=0, second=0))
                following = self._utc(start + timedelta(days=1))
                hour = self._local(following).hour
                following += timedelta(hours=24 - hour if hour > 12 else -hour)  # where midnight is skipped
                # A day that the zone skips, as Apia did on 2011-12-30; v1.36 never gets past it.
                at = following if following > self._utc(start) else self._utc(start) + timedelta(days=1)
                local = self._local(at)
                starts_over = local.day == 1
            elif part == 2 and local.hour not in self.hours:
                at = (at if truncated else self._utc(local.replace(minute=0, second=0))) + _HOUR
                local = self._local(at)
                starts_over = local.hour == 0
            elif part == 3 and local.minute not in self.minutes:
                at = (at if truncated else at.replace(second=0)) + _MINUTE
                local = self._local(at)
                starts_over = local.minute == 0
            elif part == 4 and local.second:
                at += _MINUTE - timedelta(seconds=local.second)
                local = self._local(at)
                starts_over = True
            elif part == 4:
                return at
            else:
                part += 1
                continue
            truncated = True
            if starts_over:
                part = 0
        return None

    def _matches_day(self, day: date) -> bool:
        matches_day, matches_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return matches_day and matches_weekday if self.any_day else matches_day or matches_weekday

    def _local(self, at: datetime) -> datetime:
        """Return the local time at `at`, as an aware time whose tzinfo is UTC."""
        return at + self.offset(at)

    def _utc(self, local: datetime) -> datetime:
        """Return the moment of a local time; if it is skipped or occurs twice, the one that Go's time.Date chooses."""
        offset = self.offset(local)
        if offset != self.offset(local - offset):
            offset = self.offset(local - offset)
        return local - offset

    def _normalized(self, local: datetime) -> datetime:
        """Return the local time at the moment of a local time: another one if it is skipped."""
        return self._local(self._utc(local))


Schedule = EverySchedule | FieldSchedule


@lru_cache(maxsize=1024)
def schedule_error(text: str) -> str:
    """Return the reason why a cron schedule is invalid, in the words of Kubernetes' parser; "" if it is valid."""
    try:
        parse_schedule(text)
    except InvalidSchedule as error:
        return str(error)
    return ""


@lru_cache(maxsize=1024)
def parse_schedule(text: str) -> Schedule:
    """Parse five fields, a descriptor such as "@daily", or "@every 1h", optionally after TZ=ZONE or CRON_TZ=ZONE.

    Without a time zone, the schedule is in this machine's local time. Raises InvalidSchedule.
    """
    offset: OffsetFunction = _machine_offset
    spec = text
    if not spec:
        raise InvalidSchedule("empty spec string")
    if spec.startswith(("TZ=", "CRON_TZ=")):
        zone, space, spec = spec.partition("=")[2].partition(" ")
        if not space:  # as kube-apiserver reports the parser's panic
            raise InvalidSchedule("invalid schedule format: runtime error: slice bounds out of range [:-1]")
        zone = zone or "UTC"
        if zone != "Local":
            if not is_time_zone(zone):
                raise InvalidSchedule(f"provided bad location {zone}: unknown time zone {zone}")
            offset = _zone_offset(zone)
        spec = spec.strip()
    if spec.startswith("@every "):
        try:
            nanoseconds = parse_duration(spec.removeprefix("@every "))
        except InvalidDuration as error:
            raise InvalidSchedule(f"failed to parse duration {spec}: {error}") from None
        return EverySchedule(max(1, nanoseconds // 1_000_000_000))
    if spec.startswith("@"):
        if spec not in _DESCRIPTORS:
            raise InvalidSchedule(f"unrecognized descriptor: {spec}")
        spec = _DESCRIPTORS[spec]
    fields = spec.split()
    if len(fields) != len(_BOUNDS):
        raise InvalidSchedule(f"expected exactly {len(_BOUNDS)} fields, found {len(fields)}: [{' '.join(fields)}]")
    values: list[frozenset[int]] = []
    has_star: list[bool] = []
    for field, bounds in zip(fields, _BOUNDS, strict=True):
        ranges = [_parse_range(part, *bounds) for part in filter(None, field.split(","))]
        values.append(frozenset().union(*(numbers for numbers, _ in ranges)))
        has_star.append(any(star for _, star in ranges))
    minutes, hours, days, months, weekdays = values
    return FieldSchedule(minutes, hours, days, months, weekdays, has_star[2] or has_star[4], offset)


def _parse_range(text: str, minimum: int, maximum: int, names: dict[str, int]) -> tuple[range, bool]:
    """Return the values of "*", "5", "1-5", "*/15" or "10-50/20", and True for a star without steps."""
    steps = text.split("/")
    ends = steps[0].split("-")
    star = ends[0] in ("*", "?")
    if star:
        start, end = minimum, maximum
    else:
        start = _number(ends[0], names)
        if len(ends) > 2:
            raise InvalidSchedule(f"too many hyphens: {text}")
        end = _number(ends[1], names) if len(ends) > 1 else start
    step = 1
    if len(steps) > 2:
        raise InvalidSchedule(f"too many slashes: {text}")
    if len(steps) > 1:
        step = _number(steps[1], {})
        end = maximum if len(ends) == 1 else end
    if start < minimum:
        raise InvalidSchedule(f"beginning of range ({start}) below minimum ({minimum}): {text}")
    if end > maximum:
        raise InvalidSchedule(f"end of range ({end}) above maximum ({maximum}): {text}")
    if start > end:
        raise InvalidSchedule(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise InvalidSchedule(f"step of range should be a positive number: {text}")
    return range(start, end + 1, step), star and step == 1


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not re.fullmatch("[-+]?[0-9]+", text):
        raise InvalidSchedule(f"failed to parse int from {text}: strconv.Atoi: parsing {quoted(text)}: invalid syntax")
    number = parse_integer(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise InvalidSchedule(
            f"failed to parse int from {text}: strconv.Atoi: parsing {quoted(text)}: value out of range"
        )
    if number < 0:
        raise InvalidSchedule(f"negative number ({number}) not allowed: {text}")
    return number


def _zone_offset(name: str) -> OffsetFunction:
    zone = zoneinfo.ZoneInfo(name)
    return lambda at: at.astimezone(zone).utcoffset() or timedelta()


def _machine_offset(at: datetime) -> timedelta:
    return timedelta(seconds=time.localtime(at.timestamp()).tm_gmtoff)
