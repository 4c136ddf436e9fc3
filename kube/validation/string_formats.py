"""String formats of schemas that Kubernetes v1.36 supports.

Sources: apiextensions-apiserver pkg/apiserver/validation/formats.go, kube-openapi pkg/validation/strfmt.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from datetime import date
from ipaddress import IPv4Address, IPv6Address, ip_network
from urllib.parse import urlsplit

NUMBER_FORMATS = {"integer": ("int32", "int64"), "number": ("float", "double")}


def _matches(pattern: str, flags: int = 0) -> Callable[[str], bool]:
    # compiled on first use: most servers never need a format
    return lambda text: re.fullmatch(pattern, text, flags | re.ASCII) is not None


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


def _cidr(text: str) -> bool:
    return "/" in text and not text.endswith("/") and _parses(lambda network: ip_network(network, strict=False))(text)


def _uri(text: str) -> bool:
    try:
        split = urlsplit(text)
    except ValueError:
        return False
    return bool(text) and (bool(split.scheme) or text.startswith("/")) and not re.search(r"[\x00-\x20\x7f]", text)


_MAIL = r"(?:.*<)?[^@\s<>(),;:\\\"\[\]]+@[^@\s<>(),;:\\\"]+>?"


_HOST_LABEL = r"[^\W_](?:(?:[^\W_]|-){0,61}[^\W_])?"


def _hostname(text: str) -> bool:
    labels = text.split(".")
    if not text or len(text) > 255 or not all(re.fullmatch(_HOST_LABEL, label) for label in labels):
        return False
    return len(labels) == 1 or (len(labels[-1]) >= 2 and not any(map(str.isdigit, labels[-1])))


def _isbn(length: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        digits = re.sub(r"[\s-]", "", text)
        if length == 10 and re.fullmatch(r"\d{9}[\dXx]", digits):
            values = [10 if digit in "Xx" else int(digit) for digit in digits]
            return sum((index + 1) * value for index, value in enumerate(values)) % 11 == 0
        if length == 13 and re.fullmatch(r"\d{13}", digits):
            return sum((1, 3)[index % 2] * int(digit) for index, digit in enumerate(digits)) % 10 == 0
        return False

    return check


_CARD = (
    r"(?:4\d{12}(?:\d{3})?|5[1-5]\d{14}|6(?:011|5\d\d)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}|(?:2131|1800|35\d{3})\d{11})"
)  # fmt: skip


def _credit_card(text: str) -> bool:
    digits = re.sub(r"\D", "", text)
    if not re.fullmatch(_CARD, digits, re.ASCII):
        return False
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + index % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _rgb(text: str) -> bool:
    match = re.fullmatch(r"rgb\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)", text, re.ASCII)
    return match is not None and all(int(channel) <= 255 for channel in match.groups())


_DATE_TIME = r"(\d{4}-\d\d-\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|[+-]\d\d:?\d\d)"


def _date_time(text: str) -> bool:
    match = re.fullmatch(_DATE_TIME, text)
    if match is None or not _parses(date.fromisoformat)(match[1]):
        return False
    return int(match[2]) < 24 and int(match[3]) < 60 and int(match[4]) < 60


def _base64(text: str) -> bool:
    try:
        b64decode(text, validate=True)
    except ValueError:
        return False
    return bool(text)


_UNITS = r"(?:ns|us|µs|μs|ms|s|m|h)"
_go_duration = _matches(rf"[+-]?(?:0|(?:(?:\d+(?:\.\d*)?|\.\d+){_UNITS})+)")
_SCALA_UNITS = (
    "days?", "d", "hours?", "hrs?", "h", "minutes?", "mins?", "m", "seconds?", "secs?", "s", "milliseconds?",
    "milli", "millis", "ms", "microseconds?", "micro", "micros", "us", "µs", "nanoseconds?", "nano", "nanos", "ns",
    "weeks?", "w",
)  # fmt: skip
_scala_duration = _matches(rf"(?:\d+\s*(?:{'|'.join(_SCALA_UNITS)})\s*)+", re.IGNORECASE)


def _duration(text: str) -> bool:
    return _go_duration(text) or _scala_duration(text.strip())


def _uuid(third: str, fourth: str) -> Callable[[str], bool]:
    return _matches(rf"[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{third}-?{fourth}-?[0-9a-f]{{12}}", re.IGNORECASE)


_SHORT_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_short_name = _matches(_SHORT_NAME)
_long_name = _matches(rf"{_SHORT_NAME}(\.{_SHORT_NAME})*")

_CHECKS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _matches("[0-9a-fA-F]{24}"),
    "uri": _uri,
    "email": lambda text: re.fullmatch(_MAIL, text) is not None and ".." not in text,
    "hostname": _hostname,
    "ipv4": _parses(IPv4Address),
    "ipv6": _parses(IPv6Address),
    "cidr": _cidr,
    "mac": _matches(r"(?:[0-9a-f]{2}([:-]))(?:[0-9a-f]{2}\1){4,}[0-9a-f]{2}|(?:[0-9a-f]{4}\.){2,}[0-9a-f]{4}", re.I),
    "uuid": _uuid("[0-9a-f]{4}", "[0-9a-f]{4}"),
    "uuid3": _uuid("3[0-9a-f]{3}", "[0-9a-f]{4}"),
    "uuid4": _uuid("4[0-9a-f]{3}", "[89ab][0-9a-f]{3}"),
    "uuid5": _uuid("5[0-9a-f]{3}", "[89ab][0-9a-f]{3}"),
    "isbn": lambda text: _isbn(10)(text) or _isbn(13)(text),
    "isbn10": _isbn(10),
    "isbn13": _isbn(13),
    "creditcard": _credit_card,
    "ssn": _matches(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "hexcolor": _matches("#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _rgb,
    "byte": _base64,
    "password": lambda _text: True,
    "date": lambda text: bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text)) and _parses(date.fromisoformat)(text),
    "duration": _duration,
    "datetime": _date_time,
    "k8sshortname": lambda text: len(text) <= 63 and _short_name(text),
    "k8slongname": lambda text: len(text) <= 253 and _long_name(text),
}
"""Checks by format name without dashes, which are ignored in comparisons."""


def is_known_format(type_: str, name: str) -> bool:
    """Return True if the format is defined for schemas of this type ("" for untyped ones)."""
    if type_ in ("", "string"):
        return name.replace("-", "") in _CHECKS
    return name in NUMBER_FORMATS.get(type_, ())


def has_format(name: str, text: str) -> bool:
    """Return True if the text has this format, which must be known."""
    return _CHECKS[name.replace("-", "")](text)
