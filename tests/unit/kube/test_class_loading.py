"""Classes by module and name, and by entry point; errors are tested with the scheduler's plugins."""

from __future__ import annotations

from fractions import Fraction
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from kubeloop.kube.class_loading import load_object, suggestion
from kubeloop.kube.user_error import UserError


def test_class_is_loaded_by_module_and_by_entry_point(monkeypatch):
    assert load_object("fractions:Fraction", "group", "number", ()) is Fraction
    entry_point = EntryPoint("half", "fractions:Fraction", "group")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: EntryPoints([entry_point]))
    assert load_object("half", "group", "number", ()) is Fraction
    with pytest.raises(UserError, match="no number named 'hulf'") as error:
        load_object("hulf", "group", "number", ["whole"])
    assert error.value.hint == "did you mean 'half'?"


def test_suggestion_is_the_most_similar_name():
    assert suggestion("deploymant", ["Deployment", "job"]) == "did you mean 'Deployment'?"
    assert suggestion("x", ["job"]) == ""
