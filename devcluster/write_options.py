"""What requests that write have in common in their query: dryRun and fieldManager."""

from __future__ import annotations

from typing import Any

import msgspec

from kubeloop.devcluster import errors
from kubeloop.devcluster.managed import Writer
from kubeloop.devcluster.request import Request

JSON = dict[str, Any]
MAX_MANAGER = 128
"""Bytes of a field manager's name."""
_encode = msgspec.json.Encoder().encode


def writer_of(request: Request) -> Writer:
    """?fieldManager, or the user agent up to its first slash."""
    return Writer(request.option("fieldManager") or request.user_agent.partition("/")[0][:MAX_MANAGER] or "unknown")


def read_dry_run(request: Request, options_kind: str) -> bool:
    """?dryRun; the field manager is looked at with it. Raises StatusError 422."""
    causes = []
    if manager := request.option("fieldManager"):
        if len(manager.encode()) > MAX_MANAGER:
            text = f"Too long: may not be more than {MAX_MANAGER} bytes"
            causes.append(errors.cause("FieldValueTooLong", "fieldManager", text))
        elif not manager.isprintable():
            causes += _unprintable(manager)
    values = request.query.get("dryRun", ())
    if any(value != "All" for value in values):
        text = f'Unsupported value: {_encode(values).decode()}: supported values: "All"'
        causes.append(errors.cause("FieldValueNotSupported", "dryRun", text))
    if causes:
        raise errors.options_invalid(options_kind, causes)
    return bool(values)


def _unprintable(manager: str) -> list[JSON]:
    for place, char in enumerate(manager):
        if not (char == " " or (char.isprintable() and not char.isspace())):
            wrong = f"invalid character U+{ord(char):04X} (at position {place})"
            text = f"Invalid value: {_encode(manager).decode()}: {wrong}"
            return [errors.cause("FieldValueInvalid", "fieldManager", text)]
    return []
