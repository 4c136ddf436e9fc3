"""Expressions by themselves: parsed, checked, estimated and run."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from kubeloop.devcluster.languages.cel.cost_estimates import MAX_ESTIMATE, estimate_cost
from kubeloop.devcluster.languages.cel.program import COST_LIMIT_EXCEEDED, Program
from kubeloop.devcluster.languages.cel.schema_values import SchemaView
from kubeloop.devcluster.languages.cel.syntax import ExpressionError, InstantiationError
from kubeloop.devcluster.languages.cel.types import (
    DYN,
    INT,
    STRING,
    escape,
    list_of,
    map_of,
    schema_decl_type,
    unescape,
)
from kubeloop.devcluster.languages.cel.values import NONE, Duration, Optional, Timestamp, go_float


def value(text: str, **variables: Any) -> Any:
    outcome = Program(text, dict.fromkeys(variables, DYN)).run(variables)
    assert not outcome.error, outcome.error
    return outcome.value


def error(text: str, **variables: Any) -> str:
    return Program(text, dict.fromkeys(variables, DYN)).run(variables).error


def test_operators_bind_as_in_the_language():
    assert value("1 + 2 * 3 - 4 / 2 == 5 && !false || 1 > 2")
    assert value("true ? 1 : false ? 2 : 3") == 1
    assert value("-2 + 3") == 1
    assert value("[1, 2][0] + {'a': 4}.a") == 5


def test_an_error_counts_only_if_the_other_side_does_not_decide():
    assert value("1 / x == 1 || true", x=0) is True
    assert value("1 / x == 1 && false", x=0) is False
    assert error("1 / x == 1 && true", x=0) == "division by zero"
    assert value("l.exists(x, 1 / x > 0)", l=[0, 1]) is True
    assert error("l.all(x, 1 / x > 0)", l=[0, 1]) == "division by zero"


def test_what_python_takes_for_equal_and_the_language_does_not():
    assert value("x == y", x=1, y=1.0) is True
    assert value("x == y", x=True, y=1) is False
    assert value("x in y", x=True, y={1: "a"}) is False
    assert value("x == y", x=[1, {"a": None}], y=[1.0, {"a": None}]) is True


def test_integers_do_not_grow():
    assert error("x + 1", x=2**63 - 1) == "integer overflow"
    assert error("x * x", x=2**40) == "integer overflow"
    assert error("0u - uint(x)", x=1) == "unsigned integer overflow"


def test_numbers_are_shown_as_by_go():
    assert [go_float(each) for each in (1.0, 0.1, 1e6, 123456.5, 1e-5, -2.5e30)] == [
        "1", "0.1", "1e+06", "123456.5", "1e-05", "-2.5e+30",
    ]  # fmt: skip


def test_optionals_end_a_chain_where_a_field_is_missing():
    assert value("x.?a.b.c.orValue(7)", x={"a": {"b": {}}}) == 7
    assert value("x.?a.b.orValue(7)", x={"a": {"b": 1}}) == 1
    found = value("x[?'a']", x={"a": None})
    assert isinstance(found, Optional)
    assert found.present
    assert value("x.?z", x={}) is NONE


def test_a_syntax_error_says_where():
    with pytest.raises(ExpressionError) as wrong:
        Program("x +\n  'é' + )", {"x": DYN})
    assert str(wrong.value).splitlines()[-2:] == [" |   'é' + )", " | ...\uff0e....^"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("self.map(x, x.y)", "type 'string' does not support field selection"),
        ("self.all(x, x)", "expected type 'bool' but found 'string'"),
        ("[1, 'a']", "expected type 'int' but found 'string'"),
        ("self + [1]", "found no matching overload for '_+_' applied to '(list(string), list(int))'"),
        ("self.sort(1)", "found no matching overload for 'sort' applied to 'list(string).(int)'"),
    ],
)
def test_types_are_checked_before_anything_runs(text, told):
    with pytest.raises(ExpressionError) as wrong:
        Program(text, {"self": list_of(STRING)})
    assert told in str(wrong.value)


def test_a_constant_that_cannot_be_converted_is_found_without_running():
    with pytest.raises(InstantiationError, match="type conversion error from 'string' to 'int'"):
        Program("true || int('x') == 1", {})


def test_costs_are_counted_and_limited():
    nested = Program("self.all(x, self.all(y, x + y >= 0))", {"self": list_of(INT)})
    assert nested.run({"self": [1, 2]}).cost < 60
    outcome = nested.run({"self": list(range(1000))}, limit=10_000)
    assert (outcome.error, outcome.cost > 10_000) == (COST_LIMIT_EXCEEDED, True)
    assert nested.run({"self": []}).value is True


def test_a_chain_too_deep_is_refused_and_not_a_crash():
    with pytest.raises(ExpressionError, match="recursion"):
        Program("(" * 3000 + "1" + ")" * 3000, {})
    with pytest.raises(ExpressionError, match="recursion"):
        Program("+".join(["1"] * 5000), {})


def test_estimates_follow_the_limits_of_schemas():
    def most(schema: dict[str, Any], text: str) -> int:
        found = schema_decl_type(schema, root=False)
        assert found is not None
        return estimate_cost(Program(text, {"self": found.type}).node, {"self": found})

    bounded = {"type": "array", "maxItems": 10, "items": {"type": "integer"}}
    assert most(bounded, "self.all(x, x > 0)") == 10 * 5 + 2
    assert most({"type": "array", "items": {"type": "string"}}, "self.all(x, self.all(y, x == y))") > 10**12
    assert most({"type": "string"}, "self.contains('a')") < MAX_ESTIMATE


def test_names_are_escaped_where_identifiers_could_not_be():
    names = ["a", "a-b", "c.d/e", "f__g", "namespace"]
    assert [escape(each) for each in names] == [
        "a", "a__dash__b", "c__dot__d__slash__e", "f__underscores__g", "__namespace__",
    ]  # fmt: skip
    assert [unescape(str(escape(each))) for each in names] == names
    assert escape("1a") is None
    assert escape("a b") is None


def test_a_schema_makes_times_durations_and_doubles_of_json():
    view = SchemaView(
        {
            "type": "object",
            "properties": {
                "when": {"type": "string", "format": "date-time"},
                "for": {"type": "string", "format": "duration"},
                "ratio": {"type": "number"},
                "null": {"type": "string", "nullable": True},
            },
        }
    )
    seen = view.of({"when": "1970-01-01T01:00:00+01:00", "for": "1m", "ratio": 1, "null": None})
    assert seen.find("when") == (Timestamp(0, 3600), True)
    assert seen.find("__for__") == (Duration(60 * 10**9), True)
    ratio, _ = seen.find("ratio")
    assert type(ratio) is float
    assert seen.find("__null__") == (None, False)  # a field that is null counts as absent


def test_maps_and_lists_of_other_types_are_not_mixed_up():
    program = Program("m.exists(k, v, v == 1 && k == 'a')", {"m": map_of(STRING, INT)})
    assert program.run({"m": {"a": 1}}).value is True


def test_servers_without_rules_do_not_load_the_compiler():
    code = (
        "import sys; import kubeloop.cli.apiserver, kubeloop.devcluster.server.apiserver; "
        "import kubeloop.devcluster.kubelet.simulated_nodes; "
        "sys.exit(any(name == 'kubeloop.devcluster.languages.cel' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
