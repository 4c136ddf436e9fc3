"""Programs: parsing, type checking, evaluation and cost limits."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from kubeloop.cel.program import COST_LIMIT_EXCEEDED, CelProgram
from kubeloop.cel.syntax import ExpressionError, InstantiationError
from kubeloop.cel.types import DYN, INT, STRING, list_of, map_of
from kubeloop.cel.values import NONE, Optional


def value(text: str, **variables: Any) -> Any:
    result = CelProgram(text, dict.fromkeys(variables, DYN)).run(variables)
    assert not result.error, result.error
    return result.value


def error(text: str, **variables: Any) -> str:
    return CelProgram(text, dict.fromkeys(variables, DYN)).run(variables).error


def test_operator_precedence():
    assert value("1 + 2 * 3 - 4 / 2 == 5 && !false || 1 > 2")
    assert value("true ? 1 : false ? 2 : 3") == 1
    assert value("-2 + 3") == 1
    assert value("[1, 2][0] + {'a': 4}.a") == 5


def test_logical_operators_absorb_errors_if_the_other_side_decides():
    assert value("1 / x == 1 || true", x=0) is True
    assert value("1 / x == 1 && false", x=0) is False
    assert error("1 / x == 1 && true", x=0) == "division by zero"
    assert value("l.exists(x, 1 / x > 0)", l=[0, 1]) is True
    assert error("l.all(x, 1 / x > 0)", l=[0, 1]) == "division by zero"


def test_equality_distinguishes_bools_from_numbers():
    assert value("x == y", x=1, y=1.0) is True
    assert value("x == y", x=True, y=1) is False
    assert value("x in y", x=True, y={1: "a"}) is False
    assert value("x == y", x=[1, {"a": None}], y=[1.0, {"a": None}]) is True


def test_integer_arithmetic_overflows():
    assert error("x + 1", x=2**63 - 1) == "integer overflow"
    assert error("x * x", x=2**40) == "integer overflow"
    assert error("0u - uint(x)", x=1) == "unsigned integer overflow"


def test_optional_chain_stops_at_a_missing_field():
    assert value("x.?a.b.c.orValue(7)", x={"a": {"b": {}}}) == 7
    assert value("x.?a.b.orValue(7)", x={"a": {"b": 1}}) == 1
    optional = value("x[?'a']", x={"a": None})
    assert isinstance(optional, Optional)
    assert optional.present
    assert value("x.?z", x={}) is NONE


def test_syntax_error_marks_its_position():
    with pytest.raises(ExpressionError) as raised:
        CelProgram("x +\n  'é' + )", {"x": DYN})
    assert str(raised.value).splitlines()[-2:] == [" |   'é' + )", " | ...\uff0e....^"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("self.map(x, x.y)", "type 'string' does not support field selection"),
        ("self.all(x, x)", "expected type 'bool' but found 'string'"),
        ("[1, 'a']", "expected type 'int' but found 'string'"),
        ("self + [1]", "found no matching overload for '_+_' applied to '(list(string), list(int))'"),
        ("self.sort(1)", "found no matching overload for 'sort' applied to 'list(string).(int)'"),
    ],
)
def test_type_errors_are_compile_errors(text, message):
    with pytest.raises(ExpressionError) as raised:
        CelProgram(text, {"self": list_of(STRING)})
    assert message in str(raised.value)


def test_invalid_constant_conversion_fails_at_compile_time():
    with pytest.raises(InstantiationError, match="type conversion error from 'string' to 'int'"):
        CelProgram("true || int('x') == 1", {})


def test_cost_is_counted_and_limited():
    nested = CelProgram("self.all(x, self.all(y, x + y >= 0))", {"self": list_of(INT)})
    assert nested.run({"self": [1, 2]}).cost < 60
    result = nested.run({"self": list(range(1000))}, limit=10_000)
    assert (result.error, result.cost > 10_000) == (COST_LIMIT_EXCEEDED, True)
    assert nested.run({"self": []}).value is True


@pytest.mark.parametrize(
    "text", ["({})", "(1 + {})", "(true ? {} : 1)", "[{}][0]"], ids=["parentheses", "sums", "conditions", "lists"]
)
def test_nesting_of_100_levels_is_evaluated(text: str):
    expression = "1"
    for _ in range(100):
        expression = text.format(expression)
    assert CelProgram(expression, {}).run({}).error == ""


def test_249_parentheses_are_accepted():
    assert CelProgram("(" * 249 + "1" + ")" * 249, {}).run({}).value == 1
    with pytest.raises(ExpressionError, match="expression recursion limit exceeded: 250"):
        CelProgram("(" * 250 + "1" + ")" * 250, {})


def test_duration_sum_of_dyn_items():
    assert CelProgram("dyn([duration('1m'), duration('1s')]).sum() == duration('61s')", {}).run({}).value is True


def test_deep_nesting_is_rejected():
    with pytest.raises(ExpressionError, match="recursion"):
        CelProgram("(" * 3000 + "1" + ")" * 3000, {})
    with pytest.raises(ExpressionError, match="recursion"):
        CelProgram("+".join(["1"] * 5000), {})


def test_exists_with_key_and_value_of_a_map():
    program = CelProgram("m.exists(k, v, v == 1 && k == 'a')", {"m": map_of(STRING, INT)})
    assert program.run({"m": {"a": 1}}).value is True


def test_apiserver_does_not_import_cel_without_rules():
    code = (
        "import sys; import kubeloop.cli.apiserver, kubeloop.devcluster.server.apiserver; "
        "import kubeloop.devcluster.kubelet.nodes.simulated_nodes; "
        "sys.exit(any(name == 'kubeloop.cel.program' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
