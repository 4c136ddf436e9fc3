"""Text of JSON values as Go's fmt prints them. Source: fmt, strconv."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any


def go_print(value: Any) -> str:
    """Return a value as %v formats it."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case float():
            return go_float(value)
        case list():
            return f"[{' '.join(go_print(element) for element in value)}]"
        case dict():
            return f"map[{' '.join(f'{key}:{go_print(element)}' for key, element in sorted(value.items()))}]"
    return str(value)


def go_float(value: float) -> str:
    """Return the shortest text of a float64, with an exponent from 1e+06 on (%g)."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    decimal = Decimal(repr(value)).normalize()
    if -4 <= decimal.adjusted() < 6 or not value:
        return f"{decimal:f}"
    return re.sub(r"e([+-])(\d)$", r"e\g<1>0\2", f"{decimal:e}")
