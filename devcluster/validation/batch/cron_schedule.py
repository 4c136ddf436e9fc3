"""Validation of cron schedules and time zones. Source: the parser of github.com/robfig/cron."""

from __future__ import annotations

import re
import zoneinfo
from functools import lru_cache

from kubeloop.kube.field_errors import quoted


@lru_cache(maxsize=256)
def is_time_zone(name: str) -> bool:
    """Return True for a time zone's name, or for every name if this machine has no time zone database."""
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return name != "UTC" and not zoneinfo.available_timezones()
    return True


_MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11,
    "dec": 12,
}  # fmt: skip
_DAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_BOUNDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}), (0, 23, {}), (1, 31, {}), (1, 12, _MONTHS), (0, 6, _DAYS),
)  # fmt: skip
_DESCRIPTORS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_DURATION = re.compile(r"[-+]?(?:0|(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)")


@lru_cache(maxsize=1024)
def schedule_error(text: str) -> str:
    """Return the reason why a cron schedule is invalid, in the words of Kubernetes' parser; "" if it is valid."""
    spec = text
    if spec.startswith(("TZ=", "CRON_TZ=")):
        zone, _, spec = spec.partition("=")[2].partition(" ")
        if not is_time_zone(zone):
            return f"provided bad location {zone}: unknown time zone {zone}"
        spec = spec.strip()
    if spec.startswith("@"):
        if spec in _DESCRIPTORS:
            return ""
        if spec.startswith("@every "):
            duration = spec.removeprefix("@every ")
            detail = f"failed to parse duration {spec}: time: invalid duration {quoted(duration)}"
            return "" if _DURATION.fullmatch(duration) else detail
        return f"unrecognized descriptor: {spec}"
    fields = spec.split()
    if len(fields) != len(_BOUNDS):
        return f"expected exactly {len(_BOUNDS)} fields, found {len(fields)}: [{' '.join(fields)}]"
    for field, bounds in zip(fields, _BOUNDS, strict=True):
        for part in filter(None, field.split(",")):
            try:
                _check_range(part, *bounds)
            except ValueError as error:
                return str(error)
    return ""


def _check_range(text: str, minimum: int, maximum: int, names: dict[str, int]) -> None:
    steps = text.split("/")
    ends = steps[0].split("-")
    if ends[0] in ("*", "?"):
        start, end = minimum, maximum
    else:
        start = _number(ends[0], names)
        if len(ends) > 2:
            raise ValueError(f"too many hyphens: {text}")
        end = _number(ends[1], names) if len(ends) > 1 else start
    step = 1
    if len(steps) > 2:
        raise ValueError(f"too many slashes: {text}")
    if len(steps) > 1:
        step = _number(steps[1], {})
        end = maximum if len(ends) == 1 else end
    if start < minimum:
        raise ValueError(f"beginning of range ({start}) below minimum ({minimum}): {text}")
    if end > maximum:
        raise ValueError(f"end of range ({end}) above maximum ({maximum}): {text}")
    if start > end:
        raise ValueError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ValueError(f"step of range should be a positive number: {text}")


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not re.fullmatch("[-+]?[0-9]+", text):
        raise ValueError(f"failed to parse int from {text}: strconv.Atoi: parsing {quoted(text)}: invalid syntax")
    if int(text) < 0:
        raise ValueError(f"negative number ({int(text)}) not allowed: {text}")
    return int(text)
