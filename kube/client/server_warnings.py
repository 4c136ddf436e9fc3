"""Warnings of an API server: the header Warning of a response.

Source: apimachinery util/net ParseWarningHeaders, client-go rest/warnings.go.
"""

from __future__ import annotations

import re

_WARNING = re.compile(r'(?:^|,)\s*(\d{3}) \S+ "((?:[^"\\]|\\.)*)"')
_MISCELLANEOUS = "299"  # the only code of API servers


def parse_warnings(header: str) -> list[str]:
    """Return the texts of a Warning header, without duplicates; `header` as a Transport decodes it, in Latin-1."""
    texts = (re.sub(r"\\(.)", r"\1", text) for code, text in _WARNING.findall(header) if code == _MISCELLANEOUS)
    return [text.encode("latin-1", "replace").decode("utf-8", "replace") for text in dict.fromkeys(texts) if text]
