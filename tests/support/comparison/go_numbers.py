"""Random quantities and cron schedules at the limits of Go's numbers, with the results of Go.

Recorded from resource.Quantity of apimachinery v0.36 and github.com/robfig/cron v3. Records of quantities have format,
milli value, sign, text and value; those of schedules the two times after `since`; those of invalid texts the error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_RECORDS = Path(__file__).with_suffix(".jsonl")


def go_numbers(kind: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the texts of a kind, "quantity" or "schedule", with their results."""
    records = map(json.loads, _RECORDS.read_text().splitlines())
    return [(record.pop(kind), record) for record in records if kind in record]
