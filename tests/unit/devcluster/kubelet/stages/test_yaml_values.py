"""Values of stage files: fields with defaults, and errors that state file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.devcluster.kubelet.stages.yaml_values import YamlValue, read_documents
from kubeloop.kube.user_error import UserError

DOCUMENT = """\
name: web
count: 3
enabled: true
unset: null
logs: today.log
names: [a, b]
inner:
  key: value
"""


def document(tmp_path: Path, text: str = DOCUMENT) -> YamlValue:
    path = tmp_path / "stages.yaml"
    path.write_text(text)
    (value,) = read_documents(path)
    return value


def test_fields_have_their_values_or_defaults(tmp_path):
    fields = document(tmp_path).fields()
    assert "unset" not in fields
    assert (fields.text("name"), fields.text("other"), fields.text("other", "v1")) == ("web", "", "v1")
    assert (fields.number("count"), fields.number("other")) == (3, None)
    assert (fields.boolean("enabled"), fields.boolean("other"), fields.boolean("other", default=True)) == (
        True,
        False,
        True,
    )
    assert (fields.texts("names"), fields.texts("other")) == (("a", "b"), ())
    assert (fields.file("logs"), fields.file("other")) == (tmp_path / "today.log", None)
    assert fields.fields("inner", "key").text("key") == "value"
    assert dict(fields.fields("other", "key")) == {}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\nb: 2\n", 2, "field 'b' is not supported"),
        ("a: 1\na: 2\n", 2, "'a' is set twice"),
        ("- a\n", 1, "a map is required"),
    ],
)
def test_error_of_a_map_states_the_line(tmp_path, text, line, problem):
    with pytest.raises(UserError) as raised:
        document(tmp_path, text).fields("a")
    assert str(raised.value) == f"{tmp_path / 'stages.yaml'}:{line}: {problem}"


def test_required_field_that_is_absent_is_named(tmp_path):
    inner = document(tmp_path).fields().fields("inner")
    assert inner.required("key").text() == "value"
    with pytest.raises(UserError, match=r"stages\.yaml:8: inner: other is missing"):
        inner.required("other")


@pytest.mark.parametrize(
    ("method", "problem"), [("number", "non-negative integer"), ("boolean", "not one of true, false")]
)
def test_scalar_of_another_type_is_an_error(tmp_path, method, problem):
    with pytest.raises(UserError, match=rf"name: 'web' is {problem}|name: 'web' is not a {problem}"):
        getattr(document(tmp_path).fields(), method)("name")
