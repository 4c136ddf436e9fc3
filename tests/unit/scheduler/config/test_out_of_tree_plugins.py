"""Loading of out-of-tree plugins by module and class, or by entry point."""

from __future__ import annotations

import pytest

from kubeloop.kube.errors import UserError
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


def test_load_by_entry_point(tmp_path, monkeypatch):
    (tmp_path / "rack_plugins.py").write_text("class Rack:\n    name = 'Rack'\n")
    metadata = tmp_path / "rack_plugins-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rack-plugins\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[kubeloop.scheduler_plugins]\nRack = rack_plugins:Rack\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert out_of_tree_plugins.load_plugin_class("Rack").name == "Rack"
