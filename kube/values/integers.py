"""Integers in texts of users, which may have more digits than int() accepts."""

from __future__ import annotations

from kubeloop.cel.go_text import parse_integer as parse_integer  # noqa: PLC0414 # exported
