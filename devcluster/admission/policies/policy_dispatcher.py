"""What policies of both kinds do before their own expressions: whom they are asked about, with which parameters, and
whether their conditions hold.

Source: policy/generic/policy_dispatcher.go and webhook/matchconditions of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kubeloop.devcluster.admission.policies.attributes import Attributes
from kubeloop.devcluster.admission.policies.expression_evaluation import MATCH_CONDITIONS_COST_BUDGET, evaluate
from kubeloop.devcluster.admission.policies.matcher import Matcher
from kubeloop.devcluster.admission.policies.parameters import ConfigurationError, collect_params, param_resource
from kubeloop.devcluster.admission.policies.request_variables import namespace_value, request_value
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.deferred_work import DeferredWork, LoopBudget
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.languages.policy_cel.environment import BOOLEAN, Environment, Expression
from kubeloop.devcluster.storage.store import Store
from kubeloop.kube.json_object import JSON

FindKind = Callable[[str, str], ServedResource | None]
"""The resource of an apiVersion and kind, None if there is none."""


class MatchConditionError(Exception):
    """A match condition has no value, and none of the others says no."""


class MatchConditions:
    """A policy's variables and its matchConditions. own: the variables."""

    def __init__(self, spec: JSON, environment: Environment) -> None:
        variables = spec.get("variables") or ()
        self.own = {
            variable["name"]: environment.declare(variable["name"], variable["expression"]) for variable in variables
        }
        conditions = spec.get("matchConditions") or ()
        self._expressions: Sequence[Expression] = [
            environment.compile(condition.get("expression", ""), BOOLEAN) for condition in conditions
        ]

    def hold(self, values: JSON, loop_budget: LoopBudget) -> bool:
        """Do all hold? They know no namespace. Raises ConditionFailed, OutOfBudget, TakesLong."""
        if not self._expressions:
            return True
        values = {**values, "namespaceObject": None}
        results, _ = evaluate(self._expressions, values, self.own, MATCH_CONDITIONS_COST_BUDGET, loop_budget)
        found = [result for result in results if result is not None]
        if any(each.value is False and not each.error for each in found):
            return False
        detail = list(dict.fromkeys(each.error for each in found if each.error))
        if detail:
            raise MatchConditionError(detail[0] if len(detail) == 1 else f"[{', '.join(detail)}]")
        return True


class CompiledPolicy(Protocol):
    """A policy of either kind."""

    name: str
    spec: JSON
    ignores_failures: bool


@dataclass(frozen=True, slots=True)
class Invocation:
    """One policy that is to be run, with one object of parameters or none.

    binding: its name; actions: the binding's validationActions; matched: as which resource the policy sees the request.
    """

    binding: str
    actions: Sequence[str]
    matched: ServedResource
    params: JSON | None


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """Where policies look for what they need beside the request."""

    store: Store
    matcher: Matcher
    find: FindKind
    deferred_work: DeferredWork

    def invocations(
        self, policy: CompiledPolicy, bindings: Sequence[JSON], request: Attributes, fail: Callable[[str, str], None]
    ) -> Iterator[Invocation]:
        """Whenever the policy is to be run on the request. fail: is told of what cannot be: (binding or "", why)."""

        def misconfigured(binding: str, error: Exception) -> None:
            if not policy.ignores_failures:
                fail(binding, f"failed to configure {'binding' if binding else 'policy'}: {error}")

        try:
            matched = self.matcher.match(policy.spec["matchConstraints"], request)
            if matched is None:
                return
            kind = param_resource(policy.spec, self.find)
        except (errors.StatusError, ConfigurationError) as error:
            misconfigured("", error)
            return
        for binding in bindings:
            name, spec = binding["metadata"]["name"], binding["spec"]
            try:
                within = spec.get("matchResources")
                if within is not None and self.matcher.match(within, request) is None:
                    continue
                found = collect_params(kind, spec.get("paramRef"), request.namespace, self.store)
            except (errors.StatusError, ConfigurationError) as error:
                misconfigured(name, error)
                continue
            for params in found:
                yield Invocation(name, spec.get("validationActions") or (), matched, params)

    def values(self, request: Attributes, matched: ServedResource) -> JSON:
        """The variables that every expression has, as one resource of the request's sees them."""
        obj, old = request.seen_as(matched)
        is_within = request.namespace and not request.is_of_namespace
        namespace = self.matcher.namespace(request.namespace) if is_within else None
        return {
            "object": obj,
            "oldObject": old,
            "request": request_value(request, matched),
            "namespaceObject": namespace_value(namespace),
        }
