"""CEL environment of admission policies: variables, result types and the authorizer."""

from __future__ import annotations

from kubeloop.cel.types import INT
from kubeloop.kube.policy_cel.authorizer import Authorizer
from kubeloop.kube.policy_cel.environment import ANY_RESULT, BOOL_RESULT, Environment


def test_result_type_is_checked():
    environment = Environment(has_params=False)
    assert environment.compile("object.spec.replicas > 1", BOOL_RESULT).program is not None
    assert environment.compile("'a'", BOOL_RESULT).error == "must evaluate to bool but got string"


def test_params_are_declared_only_with_a_param_kind():
    assert Environment(has_params=True).compile("params.x", ANY_RESULT).error == ""
    assert "undeclared reference to 'params'" in Environment(has_params=False).compile("params.x", ANY_RESULT).error


def test_variables_are_declared_with_their_type():
    environment = Environment(has_params=False)
    assert environment.declare("count", "1 + 2").error == ""
    assert environment.variable_types == {"count": INT}
    assert environment.compile("variables.count > 2", BOOL_RESULT).error == ""


def test_invalid_constant_is_a_valid_expression_without_program():
    expression = Environment(has_params=False).compile("int('x') == 1", BOOL_RESULT)
    assert (expression.program, expression.is_valid_expression) == (None, True)


def test_authorizer_allows_every_check():
    text = "authorizer.group('apps').resource('deployments').namespace('default').check('create').allowed()"
    program = Environment(has_params=False).compile(text, BOOL_RESULT).program
    assert program is not None
    assert program.run({"authorizer": Authorizer(lambda account, attributes: (True, ""))}).value is True
