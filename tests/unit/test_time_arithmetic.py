"""Times and seconds of users are computed by kube.times: datetime raises where Go wraps around or saturates."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("cel", "controllers", "devcluster", "informers", "kube", "kubeloop", "scheduler", "tracing")
_FUNCTION = re.compile("timedelta|fromtimestamp|strptime|fromisoformat")
ALLOWED = {
    "kube/values/times.py": {"timedelta", "fromisoformat"},
    "kube/values/cron_schedule.py": {"timedelta"},  # between local times of one schedule, whose years are limited
    "cel/values.py": {"timedelta"},  # CEL limits the years, and OverflowError is handled
    "kube/validation/string_formats.py": {"fromisoformat"},  # whether a text is a date
    "kubeloop/testing/virtual_time.py": {"timedelta"},  # of the test's own clock
    "kubeloop/testing/faults/control_process.py": {"timedelta"},  # likewise
    "kubeloop/process/logs.py": {"fromtimestamp"},  # of this process' clock
    "devcluster/kubelet/stages/lifecycle.py": {"fromisoformat"},  # whether an annotation is a time
    "tracing/views/time_format.py": {"fromtimestamp"},  # OverflowError is handled
}


def raw_arithmetic(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and function of each timedelta() of a variable, and of each parser that raises for some years."""
    for node in ast.walk(ast.parse(source)) if _FUNCTION.search(source) else ():
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        if name == "timedelta" and not all(map(is_constant, values)):
            yield node.lineno, name
        if name in ("fromtimestamp", "utcfromtimestamp", "strptime"):
            yield node.lineno, name
        if name == "fromisoformat" and ast.unparse(node.func) != "date.fromisoformat":
            yield node.lineno, name


def is_constant(node: ast.expr) -> bool:
    return all(not isinstance(part, ast.Name | ast.Attribute | ast.Call) for part in ast.walk(node))


def test_no_raw_arithmetic_with_times():
    found = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            path = str(file.relative_to(ROOT))
            uses = [
                f"{line}: {name}"
                for line, name in raw_arithmetic(file.read_text())
                if name not in ALLOWED.get(path, ())
            ]
            if uses:
                found[path] = uses
    assert not found, "use time_plus(), seconds_between() and parse_time() of kube.times"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("now + timedelta(seconds=grace)", ["timedelta"]),
        ("timedelta(seconds=30, days=2 * 365)", []),
        ("datetime.datetime.fromisoformat(text)", ["fromisoformat"]),
        ("date.fromisoformat(text)", []),
    ],
)
def test_raw_arithmetic_is_found(source, names):
    assert [name for _, name in raw_arithmetic(source)] == names
