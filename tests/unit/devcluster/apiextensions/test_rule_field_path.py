"""The fieldPath of a rule."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.apiextensions.rule_field_path import field_path

SCHEMA = {
    "properties": {
        "spec": {"properties": {"a.b": {}, "names": {"additionalProperties": {"properties": {"size": {}}}}}},
    }
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (".spec", "spec"),
        (".spec['a.b']", "spec.a.b"),
        (".spec.names['it\\'s'].size", "spec.names[it's].size"),
        pytest.param(".other", None, id="no such field"),
        pytest.param("spec", None, id="no dot"),
        pytest.param(".spec.", None, id="a dot at the end"),
        pytest.param(".spec[names]", None, id="no quotes"),
        pytest.param(".spec['names'", None, id="no closing bracket"),
    ],
)
def test_field_path_has_the_form_of_causes(text: str, expected: str | None):
    assert field_path(text, SCHEMA) == expected
