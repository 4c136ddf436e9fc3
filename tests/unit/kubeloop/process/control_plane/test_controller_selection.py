"""Selection of controllers: names, classes, modules and entry points."""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.process.control_plane.controller_selection import ControllerSelection, select_controllers
from kubeloop.process.control_plane.controller_table import CONTROLLER_TABLE, CONTROLLERS
from support.controllers.sites import Sites

ALL_KUBERNETES_NAMES = ",".join(row.kubernetes_name for row in CONTROLLER_TABLE)


@pytest.mark.parametrize(
    ("text", "controllers"),
    [
        pytest.param("deployment, scheduler", {"deployment", "scheduler"}, id="names"),
        pytest.param("*", set(CONTROLLERS), id="all"),
        pytest.param("*,-scheduler", set(CONTROLLERS) - {"scheduler"}, id="all but one"),
        pytest.param(f"{ALL_KUBERNETES_NAMES},scheduler", set(CONTROLLERS), id="Kubernetes' names"),
        pytest.param(
            "*,-garbage-collector-controller", set(CONTROLLERS) - {"garbagecollector"}, id="all but Kubernetes'"
        ),
        pytest.param("deployment,deployment-controller", {"deployment"}, id="one controller under both names"),
    ],
)
def test_names_select_controllers(text, controllers):
    assert select_controllers(text) == ControllerSelection(frozenset(controllers))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("deploy", "no controller named 'deploy'"),
        ("scheduler-controller", "no controller named 'scheduler-controller'"),
        ("-*", "no controller named '*'"),
        ("", "no controller is left"),
        ("scheduler,-scheduler", "no controller is left"),
    ],
)
def test_invalid_selection_is_rejected(text, problem):
    with pytest.raises(UserError) as wrong:
        select_controllers(text)
    assert f"--controllers: {problem}" in str(wrong.value)


def test_errors_name_the_option_of_the_caller():
    for text in ("deploy", "", "no_such_module:Sites"):
        with pytest.raises(UserError, match=r"^controllers: ") as wrong:
            select_controllers(text, "controllers")
        assert "--controllers" not in f"{wrong.value} {wrong.value.hint}"


OPERATOR = """
from kubeloop.controllers.api import Controller, For
from kubeloop.controllers.api.resources import PODS

class Labels(Controller):
    name = "labels"
    watches = (For(PODS),)

class Nameless(Controller):
    watches = (For(PODS),)

class Text: ...
"""


@pytest.fixture
def operator(tmp_path, monkeypatch):
    """A module in the working directory, which is not on the path."""
    (tmp_path / "my_operator.py").write_text(OPERATOR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "my_operator", raising=False)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])


def test_module_in_the_working_directory_is_selected(operator):
    selection = select_controllers("my_operator:Labels,deployment")
    assert selection.built_in == {"deployment"}
    assert [factory.name for factory in selection.custom] == ["labels"]


def test_classes_and_partials_are_selected():
    with_records = functools.partial(Sites, records=set())
    assert select_controllers([Sites, "scheduler"]) == ControllerSelection(frozenset({"scheduler"}), (Sites,))
    assert select_controllers([with_records]) == ControllerSelection(frozenset(), (with_records,))


def test_entry_point_is_selected_by_its_name(operator, monkeypatch):
    entry_point = EntryPoint("labels", "my_operator:Labels", "kubeloop.controllers")
    monkeypatch.syspath_prepend(".")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: EntryPoints([entry_point]))
    assert [factory.name for factory in select_controllers("labels").custom] == ["labels"]


@pytest.mark.parametrize(
    ("entry", "problem", "hint"),
    [
        pytest.param("my_operator:Label", "has no 'Label'", "did you mean 'Labels'?", id="class"),
        pytest.param("no_such:Labels", "No module named 'no_such'", "PYTHONPATH", id="module"),
        pytest.param("my_operator:Text", "is not a Controller", "subclass of", id="no controller"),
        pytest.param("my_operator:Nameless", "has no name", 'name = "', id="no name"),
        pytest.param("deploymant", "no controller named", "did you mean 'deployment'?", id="built-in"),
    ],
)
def test_entry_that_selects_nothing_has_a_hint(operator, entry: str, problem: str, hint: str):
    with pytest.raises(UserError) as error:
        select_controllers(entry)
    assert problem in str(error.value)
    assert hint in error.value.hint
