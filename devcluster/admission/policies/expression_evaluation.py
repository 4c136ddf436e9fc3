"""Evaluation of a policy's expressions within a cost budget; variables are evaluated on first use.

Source: k8s.io/apiserver pkg/admission/plugin/cel/{activation,condition,composition}.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubeloop.cel.types import unescape
from kubeloop.cel.values import CelError, ContainerValue, no_overload
from kubeloop.devcluster.api.slow_work import LoopBudget
from kubeloop.kube.json_object import JSON
from kubeloop.kube.policy_cel.environment import Expression

COST_BUDGET = 10_000_000
MATCH_CONDITIONS_COST_BUDGET = 2_500_000


class OutOfBudget(Exception):
    """The expressions of a policy exceeded their cost budget together."""

    def __init__(self) -> None:
        super().__init__("validation failed due to running out of cost budget, no further validation rules will be run")


@dataclass(frozen=True, slots=True)
class ExpressionResult:
    """Result of one expression; `value` is valid if `error` is ""."""

    value: Any
    error: str = ""


class Variables(ContainerValue):
    """Variables that a policy declares. cost: of the variables evaluated since it was last reset."""

    __slots__ = ("_evaluated", "_expressions", "_loop_budget", "_values", "cost")
    is_map = True

    def __init__(self, expressions: Mapping[str, Expression], loop_budget: LoopBudget) -> None:
        self._expressions = expressions
        self._loop_budget = loop_budget
        self._evaluated: dict[str, Any] = {}
        self._values: JSON = {}
        self.cost = 0

    def with_variables(self, values: JSON) -> JSON:
        """Return all variables of an expression: `values` and these."""
        self._values = {**values, "variables": self}
        return self._values

    def __len__(self) -> int:
        return len(self._expressions)

    def find(self, key: Any) -> tuple[Any, bool]:
        """Return (value, True), or (None, False) for an undeclared variable. Raises CelError if evaluation failed."""
        if type(key) is not str:
            raise no_overload()
        name = unescape(key)
        if name is None or name not in self._expressions:
            return None, False
        if name not in self._evaluated:
            self._evaluated[name] = self._evaluate(name)
        value = self._evaluated[name]
        if isinstance(value, CelError):
            raise value
        return value, True

    def _evaluate(self, name: str) -> Any:
        expression = self._expressions[name]
        if expression.program is None:
            return CelError(f'composited variable "{name}" fails to compile: {expression.error}')
        outcome = self._loop_budget.run(expression.program, self._values)
        self.cost += outcome.cost
        if outcome.error:
            return CelError(f'composited variable "{name}" fails to evaluate: {outcome.error}')
        return outcome.value

    def equals(self, other: Any) -> bool:
        return other is self


def evaluate(
    expressions: Iterable[Expression | None],
    values: JSON,
    variable_expressions: Mapping[str, Expression],
    budget: int,
    loop_budget: LoopBudget,
) -> tuple[Sequence[ExpressionResult | None], int]:
    """Return a result per expression (None for an absent one), and the remaining budget.

    Raises OutOfBudget; BudgetExceeded if the loop budget ends before.
    """
    variables = Variables(variable_expressions, loop_budget)
    values = variables.with_variables(values)
    results: list[ExpressionResult | None] = []
    for expression in expressions:
        if expression is None:
            results.append(None)
            continue
        if expression.program is None:
            results.append(ExpressionResult(None, f"compilation error: {expression.error}"))
            continue
        outcome = loop_budget.run(expression.program, values)
        budget -= outcome.cost + variables.cost
        variables.cost = 0
        if budget < 0:
            raise OutOfBudget
        error = f"expression '{expression.text}' resulted in error: {outcome.error}" if outcome.error else ""
        results.append(ExpressionResult(outcome.value, error))
    return results, budget
