"""Options of `kubeloop trace` that exclude each other, and files it writes."""

from pathlib import Path
from typing import Any

import pytest

from kubeloop.cli.trace import show
from kubeloop.kube.errors import UserError

OPTIONS: dict[str, Any] = {
    "target": None,
    "namespace": None,
    "as_json": False,
    "watch": False,
    "html": None,
    "perfetto": None,
    "otlp": None,
    "source": None,
    "endpoint": None,
}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"watch": True, "source": Path("a.json")}, "--watch and --from are mutually exclusive"),
        ({"watch": True, "html": Path("a.html")}, "--watch writes no file"),
        ({"target": "node/a"}, "node/a"),
    ],
)
def test_contradicting_options_are_rejected(options, problem):
    with pytest.raises(UserError, match=problem):
        show(**{**OPTIONS, **options})


def test_json_and_a_file_exclude_each_other(tmp_path):
    source = tmp_path / "traces.json"
    source.write_text('{"resourceSpans": []}')
    with pytest.raises(UserError, match="--json writes no file"):
        show(**{**OPTIONS, "source": source, "as_json": True, "otlp": tmp_path / "out.json"})
    assert not (tmp_path / "out.json").exists()


def test_file_without_traces_is_an_error(tmp_path):
    source = tmp_path / "traces.json"
    source.write_text('{"resourceSpans": []}')
    with pytest.raises(UserError, match="there is no pod's trace in"):
        show(**{**OPTIONS, "source": source, "as_json": True})
