"""Cells and definitions of the columns that a kind's declaration names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubeloop.devcluster.printers.declared_columns import declared_cells, declared_columns

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


def cell(column: str, *, metadata: dict[str, Any] | None = None, **fields: Any) -> Any:
    complete = {"name": "x", "creationTimestamp": "2026-05-01T11:55:00Z", **(metadata or {})}
    name, value = declared_cells((column,), {}, {"metadata": complete, **fields}, NOW)
    assert name == "x"
    return value


def test_column_with_a_path_shows_the_value():
    assert cell("Driver=spec.driver", spec={"driver": "gpu.example.com"}) == "gpu.example.com"
    assert cell("Driver=spec.driver", spec={}) == "<none>"
    assert cell("Modes=spec.modes", spec={"modes": ["a", "b"]}) == "a,b"


def test_number_column_shows_the_length_of_a_list():
    assert cell("Webhooks#=webhooks", webhooks=[{}, {}]) == 2
    assert cell("Webhooks#=webhooks") == 0
    assert cell("Value#=spec.value", spec={"value": 7}) == 7


def test_definitions_start_with_the_name_and_type_numbers():
    definitions = declared_columns(("Driver=spec.driver", "Webhooks#=webhooks", "Age"))
    assert [(column["name"], column["type"], column["format"]) for column in definitions] == [
        ("Name", "string", "name"),
        ("Driver", "string", ""),
        ("Webhooks", "integer", ""),
        ("Age", "string", ""),
    ]


def test_column_without_a_path_is_computed_by_the_strategy():
    obj = {"metadata": {"name": "x"}, "spec": {"size": 3}}
    computed = {"Size": lambda obj, _now: obj["spec"]["size"]}
    assert declared_cells(("Size", "Age"), computed, obj, NOW) == ["x", 3, "<unknown>"]
