"""Times and durations at the limits of Go's types: time.Duration, an int64 of nanoseconds, and time.Time.

Seconds and times of users reach the whole range of their types, where datetime and timedelta raise OverflowError. The
functions here return what Go computes, restricted to the years 1 to 9999. Sources: Go's time package; metav1.Time and
metav1.MicroTime in apimachinery.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)
_SECOND_NS = 1_000_000_000
_MAX_NS = (1 << 63) - 1
_WITHOUT_OVERFLOW = _MAX_NS // _SECOND_NS  # seconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_SECONDS = 86_400
_ERA_SECONDS = 146_097 * _DAY_SECONDS  # 400 years, after which the calendar repeats
ZERO_TIME_SECONDS = -62_135_596_800
"""Go's zero time.Time, 0001-01-01T00:00:00Z, in seconds since 1970: encoded as null."""
# time.Time's calendar starts in this year and ends 2**64 seconds later; times outside of it wrap around.
_FIRST_SECOND = ZERO_TIME_SECONDS - (292_277_022_400 * 3_652_425 // 10_000 + 306) * _DAY_SECONDS
_TIME = re.compile(r"(-?\d{4,})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6})\d*)?Z", re.ASCII)
_OFFSET_TIME = re.compile(r"(.*T.*)([+-])(\d\d):(\d\d)", re.ASCII)


# --- durations --------------------------------------------------------------------------------------------------------


def go_duration(seconds: int) -> int:
    """Return `time.Duration(seconds) * time.Second` in nanoseconds: it wraps around beyond 292 years."""
    return (seconds * _SECOND_NS + (1 << 63)) % (1 << 64) - (1 << 63)


def go_duration_seconds(seconds: int) -> float:
    """Return go_duration() in seconds, for clocks that count seconds."""
    if -_WITHOUT_OVERFLOW <= seconds <= _WITHOUT_OVERFLOW:
        return seconds
    return go_duration(seconds) / _SECOND_NS


def time_plus(moment: datetime, seconds: float) -> datetime:
    """Return `moment.Add(time.Duration(seconds) * time.Second)`, restricted to the years 1 to 9999.

    moment: aware. seconds: an integer of a user wraps around as in Go; a float is a duration that has been parsed.
    """
    try:
        if not isinstance(seconds, int) or -_WITHOUT_OVERFLOW <= seconds <= _WITHOUT_OVERFLOW:
            return moment + timedelta(seconds=seconds)
        return moment + timedelta(microseconds=go_duration(seconds) // 1000)
    except OverflowError:
        is_future = go_duration(seconds) > 0 if isinstance(seconds, int) else seconds > 0
        return LATEST if is_future else EARLIEST


def seconds_between(start: datetime, end: datetime) -> float:
    """Return `end.Sub(start)` in seconds: at most 292 years. Both are aware."""
    limit = _MAX_NS / _SECOND_NS
    return min(limit, max(-limit, (end - start).total_seconds()))


def quoted_text(text: str) -> str:
    """Quote a text as the errors of Go's time package do: other bytes than those of printable ASCII as \\x.."""
    parts = []
    for char in text:
        if char in '"\\':
            parts.append(f"\\{char}")
        elif " " <= char <= "\x7f":
            parts.append(char)
        else:
            parts += [f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogatepass")]
    return f'"{"".join(parts)}"'


# --- times ------------------------------------------------------------------------------------------------------------


def epoch_seconds(moment: datetime) -> int:
    """Return `moment.Unix()`: the whole seconds since 1970, rounded down."""
    since = moment - _EPOCH
    return since.days * _DAY_SECONDS + since.seconds


def epoch_ns(moment: datetime) -> int:
    """Return the nanoseconds since 1970, restricted to 0 and the largest int64, which is in the year 2262."""
    since = moment - _EPOCH
    nanoseconds = (since.days * _DAY_SECONDS + since.seconds) * _SECOND_NS + since.microseconds * 1000
    return 0 if nanoseconds < 0 else min(nanoseconds, _MAX_NS)


def time_text(seconds: int, microseconds: int | None = None) -> str:
    """Format seconds since 1970, of the whole int64 range, as metav1.Time; with microseconds as metav1.MicroTime.

    Years after 9999 have more digits, and years before 0 a sign.
    """
    seconds = (seconds - _FIRST_SECOND) % (1 << 64) + _FIRST_SECOND
    eras, rest = divmod(seconds - ZERO_TIME_SECONDS, _ERA_SECONDS)
    moment = EARLIEST + timedelta(seconds=rest)
    year = moment.year + 400 * eras
    sign, digits = ("-", -year) if year < 0 else ("", year)
    fraction = "" if microseconds is None else f".{microseconds:06d}"
    return f"{sign}{digits:04d}{moment:-%m-%dT%H:%M:%S}{fraction}Z"


def text_seconds(text: str) -> tuple[int, int]:
    """Return the seconds since 1970 and the microseconds of a time that an API server stored. Raises ValueError.

    The inverse of time_text(); other offsets than Z are accepted, too, for the years 0 to 9999.
    """
    offset = 0
    match = _TIME.fullmatch(text)
    if match is None and (with_offset := _OFFSET_TIME.fullmatch(text)):
        match = _TIME.fullmatch(f"{with_offset[1]}Z")
        offset = int(f"{with_offset[2]}{int(with_offset[3]) * 3600 + int(with_offset[4]) * 60}")
    if match is None:
        raise ValueError(f"{text!r} is no RFC 3339 time")
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    eras, year_of_era = divmod(year - 1, 400)
    moment = datetime(year_of_era + 1, month, day, hour, minute, second, tzinfo=UTC)
    return epoch_seconds(moment) + eras * _ERA_SECONDS - offset, int((match[7] or "0").ljust(6, "0"))


def parse_time(text: str) -> datetime:
    """Return a time that an API server stored, as an aware datetime restricted to the years 1 to 9999.

    Raises ValueError for other texts.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        seconds, microseconds = text_seconds(text)
        if seconds < ZERO_TIME_SECONDS:
            return EARLIEST
        try:
            return _EPOCH + timedelta(seconds=seconds, microseconds=microseconds)
        except OverflowError:
            return LATEST
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC")
    return moment


def readable_time(text: str) -> str:
    """Return a stored time outside of the years 1 to 9999 as the first or last second of these; other texts as is."""
    match = _TIME.fullmatch(text)
    if match is None or (len(match[1]) == 4 and match[1] != "0000"):
        return text
    return "9999-12-31T23:59:59Z" if int(match[1]) > 0 else "0001-01-01T00:00:00Z"
