"""Evaluation of a policy's expressions: variables, errors and the cost budget."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.admission.policies.expression_evaluation import ExpressionResult, OutOfBudget, evaluate
from kubeloop.devcluster.api.slow_work import BudgetExceeded, LoopBudget
from kubeloop.kube.policy_cel.environment import ANY_RESULT, Environment

VALUES = {"object": {"a": 1}, "oldObject": None, "request": {}, "namespaceObject": None}


@pytest.fixture
def environment() -> Environment:
    return Environment(has_params=False)


def test_results_have_values_and_errors_in_order(environment: Environment):
    texts = ("object.a + 1", "object.b", "1 +")
    expressions = [environment.compile(text, ANY_RESULT) for text in texts]
    results, _ = evaluate([*expressions, None], VALUES, {}, 1000, LoopBudget())
    assert results[0] == ExpressionResult(2)
    assert results[1] is not None
    assert results[1].error == "expression 'object.b' resulted in error: no such key: b"
    assert results[2] is not None
    assert results[2].error.startswith("compilation error: compilation failed: ")
    assert results[3] is None


def test_variable_is_evaluated_once_and_its_cost_is_charged(environment: Environment):
    variables = {"v": environment.declare("v", "[1, 2, 3].all(x, x > 0)")}
    expressions = [environment.compile("variables.v", ANY_RESULT) for _ in range(2)]
    _, left_after_one = evaluate(expressions[:1], VALUES, variables, 1000, LoopBudget())
    results, left_after_two = evaluate(expressions, VALUES, variables, 1000, LoopBudget())
    assert results == [ExpressionResult(True)] * 2
    assert 1000 - left_after_one > left_after_one - left_after_two > 0


def test_failed_variable_is_an_error_of_the_expression(environment: Environment):
    variables = {"v": environment.declare("v", "object.b == 1")}
    expression = environment.compile("variables.v", ANY_RESULT)
    (result,), _ = evaluate([expression], VALUES, variables, 1000, LoopBudget())
    assert result is not None
    assert 'composited variable "v" fails to evaluate: no such key: b' in result.error


def test_expressions_share_one_budget(environment: Environment):
    expression = environment.compile("[1, 2, 3].all(x, x > 0)", ANY_RESULT)
    _, left = evaluate([expression], VALUES, {}, 1000, LoopBudget())
    cost = 1000 - left
    assert evaluate([expression], VALUES, {}, cost, LoopBudget())[1] == 0
    with pytest.raises(OutOfBudget):
        evaluate([expression, expression], VALUES, {}, 2 * cost - 1, LoopBudget())


def test_evaluation_stops_when_the_loop_budget_ends(environment: Environment):
    expression = environment.compile("[1, 2, 3].all(x, x > 0)", ANY_RESULT)
    with pytest.raises(BudgetExceeded):
        evaluate([expression], VALUES, {}, 1000, LoopBudget(1))
