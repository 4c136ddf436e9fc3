"""Options of `kubeloop trace` that exclude each other, and files it writes."""

from pathlib import Path

import pytest

from kubeloop.cli.options.options import TraceOptions
from kubeloop.cli.trace.trace import show
from kubeloop.kube.user_error import UserError


@pytest.mark.parametrize(
    ("target", "options", "problem"),
    [
        (None, {"watch": True, "source": Path("a.json")}, "--watch and --from are mutually exclusive"),
        (None, {"watch": True, "html": Path("a.html")}, "--watch writes no file"),
        ("web-1", {}, "cannot trace 'web-1'"),
        ("sts/", {}, "cannot trace 'sts/'"),
        ("/db", {}, "cannot trace '/db'"),
    ],
)
def test_contradicting_options_are_rejected(target, options, problem):
    with pytest.raises(UserError, match=problem):
        show(target, TraceOptions(**options))


def test_json_and_a_file_exclude_each_other(tmp_path):
    source = tmp_path / "traces.json"
    source.write_text('{"resourceSpans": []}')
    with pytest.raises(UserError, match="--json writes no file"):
        show(None, TraceOptions(source=source, as_json=True, otlp=tmp_path / "out.json"))
    assert not (tmp_path / "out.json").exists()


def test_file_without_traces_is_an_error(tmp_path):
    source = tmp_path / "traces.json"
    source.write_text('{"resourceSpans": []}')
    with pytest.raises(UserError, match="there is no pod's trace in"):
        show(None, TraceOptions(source=source, as_json=True))
