"""Paths of the endpoint's pages about traces, for the process that serves them and for clients."""

from __future__ import annotations

TRACES_PATH = "/debug/traces"
NAMES_PATH = f"{TRACES_PATH}/names"
TRACES_PAGE_PATH = "/traces"
