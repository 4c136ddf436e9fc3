"""Check of Python's version, for `python -m kubeloop`, setup.py and the Makefile; any Python 3 can run it."""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(
        "error: kubeloop needs Python 3.11 or later, and this is Python "
        + ".".join(map(str, sys.version_info[:3]))
        + "\n  hint: use a later one, such as python3.13; with make: make PYTHON=python3.13"
    )
