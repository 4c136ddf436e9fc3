"""Loading of out-of-tree plugins by module and class, or by entry point."""

from __future__ import annotations

import sys

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.config import out_of_tree_plugins


async def test_load_by_module_and_class(monkeypatch):
    monkeypatch.undo()
    assert out_of_tree_plugins.load_plugin_class("fractions:Fraction").__name__ == "Fraction"
    with pytest.raises(UserError, match="cannot load the scheduler plugin"):
        out_of_tree_plugins.load_plugin_class("no.such:Plugin")
    with pytest.raises(UserError, match="no scheduler plugin named 'NoSuch'"):
        out_of_tree_plugins.load_plugin_class("NoSuch")
    with pytest.raises(UserError) as mistyped:
        out_of_tree_plugins.load_plugin_class("NodeResourceFit")
    assert mistyped.value.hint == "did you mean 'NodeResourcesFit'?"


@pytest.mark.parametrize(
    ("source", "problem", "hint"),
    [
        pytest.param("def x(:", "SyntaxError: invalid syntax (broken_plugin", "correct the file", id="syntax"),
        pytest.param("if 1:\nx", "IndentationError: expected an indented block", "correct the file", id="indentation"),
        pytest.param("\n1 / 0", "ZeroDivisionError: division by zero (", "correct the module", id="exception"),
        pytest.param("raise SystemExit(3)", "SystemExit: 3 (", "correct the module", id="exit"),
        pytest.param("import no_such", "No module named 'no_such' (", "install what the module imports", id="import"),
        pytest.param("class Rack: ...", "module 'broken_plugin' has no 'Rak'", "did you mean 'Rack'?", id="class"),
        pytest.param("Rak = 1", "is not a class", "use 'module:Class'", id="no class"),
        pytest.param("x = '\0'", "SyntaxError: source code ", "correct the file", id="null byte"),
    ],
)
def test_module_that_cannot_be_loaded_is_a_user_error(tmp_path, monkeypatch, source: str, problem: str, hint: str):
    (tmp_path / "broken_plugin.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "broken_plugin", raising=False)
    with pytest.raises(UserError) as raised:
        out_of_tree_plugins.load_plugin_class("broken_plugin:Rak")
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("no_such:Rack", "check the name of the module", id="module"),
        pytest.param("json.no_such:Rack", "check the name of the module", id="module in a package"),
        pytest.param(":Rack", "name it 'module:Class'", id="empty module"),
        pytest.param(".a:Rack", "name it 'module:Class'", id="relative module"),
        pytest.param("nodename", "did you mean 'NodeName'?", id="other case"),
        pytest.param("Zzz", "install one that declares", id="nothing similar"),
    ],
)
def test_mistyped_name_has_the_hint_that_fits(name: str, hint: str):
    with pytest.raises(UserError) as raised:
        out_of_tree_plugins.load_plugin_class(name)
    assert raised.value.hint.startswith(hint)


def test_load_by_entry_point(tmp_path, monkeypatch):
    (tmp_path / "rack_plugins.py").write_text("class Rack:\n    name = 'Rack'\n")
    metadata = tmp_path / "rack_plugins-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rack-plugins\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[kubeloop.scheduler_plugins]\nRack = rack_plugins:Rack\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert out_of_tree_plugins.load_plugin_class("Rack").name == "Rack"
