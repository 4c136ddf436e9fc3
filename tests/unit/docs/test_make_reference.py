"""docs/reference/: its pages are those that the code gives, and describe every span and attribute."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
assert SPEC is not None
assert SPEC.loader is not None
make_reference = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(make_reference)
TRACING = (ROOT / "docs" / "tracing.md").read_text()


@pytest.fixture(scope="module")
def pages():
    return make_reference.pages()


@pytest.mark.parametrize("name", ["commands.md", "configuration.md", "metrics.md", "settings.md", "telemetry.md"])
def test_page_is_that_of_the_code(pages, name):
    if name == "metrics.md" and not Path("/proc/self/stat").exists():
        pytest.skip("process metrics are read from /proc")
    assert (ROOT / "docs" / "reference" / name).read_text() == pages[name], "run python docs/make_reference.py"


def test_every_span_is_described():
    names = set(make_reference.span_names()) - {"(named by the plugin)", "reconcile KIND", "VERB KIND"}
    assert len(names) > 40
    missing = [
        name for name in names if not re.search(rf"(^ +|, |`){re.escape(name)}(  |,|`|$)", TRACING, re.MULTILINE)
    ]
    assert missing == []


def test_every_attribute_is_described():
    names = make_reference.attribute_names()
    assert len(names) > 70
    assert [name for name in names if f"`{name}`" not in TRACING] == []


def test_attributes_outside_of_kubeloop_follow_a_semantic_convention(pages):
    own = [line for line in pages["telemetry.md"].splitlines() if line.endswith("|") and "kubeloop's own" in line]
    assert all(line.startswith("| `kubeloop.") for line in own)


def test_metrics_have_the_components_of_a_process(pages):
    for name in (
        "scheduler_schedule_attempts_total",
        "workqueue_depth",
        "kubeloop_traces_open",
        "process_cpu_seconds_total",
    ):
        assert f"| `{name}` |" in pages["metrics.md"]
