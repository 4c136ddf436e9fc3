"""Dispatch of policies of both kinds: match resources, parameters and match conditions.

Source: policy/generic/policy_dispatcher.go and webhook/matchconditions of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kubeloop.devcluster.admission.attributes import Attributes
from kubeloop.devcluster.admission.policies.expression_evaluation import MATCH_CONDITIONS_COST_BUDGET, evaluate
from kubeloop.devcluster.admission.policies.matcher import Matcher
from kubeloop.devcluster.admission.policies.parameters import ConfigurationError, collect_params, param_resource
from kubeloop.devcluster.admission.policies.request_variables import authorizer_value, namespace_value, request_value
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.api.slow_work import LoopBudget
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.policy_cel.environment import BOOL_RESULT, Environment, Expression

FindKind = Callable[[str, str], ServedResource | None]
"""Returns the resource of an apiVersion and kind; None if there is none."""


class MatchConditionError(Exception):
    """A match condition could not be evaluated, and no other one is false."""


class MatchConditions:
    """A policy's match conditions, and the variables it declares."""

    def __init__(self, spec: JSON, environment: Environment) -> None:
        declarations = spec.get("variables") or ()
        self.variables = {
            variable["name"]: environment.declare(variable["name"], variable["expression"]) for variable in declarations
        }
        conditions = spec.get("matchConditions") or ()
        self._expressions: Sequence[Expression] = [
            environment.compile(condition.get("expression", ""), BOOL_RESULT) for condition in conditions
        ]

    def are_met(self, values: JSON, loop_budget: LoopBudget) -> bool:
        """Return True if all conditions are met; they have no namespaceObject.

        Raises MatchConditionError, OutOfBudget.
        """
        if not self._expressions:
            return True
        values = {**values, "namespaceObject": None}
        results, _ = evaluate(self._expressions, values, self.variables, MATCH_CONDITIONS_COST_BUDGET, loop_budget)
        evaluated = [result for result in results if result is not None]
        if any(result.value is False and not result.error for result in evaluated):
            return False
        messages = list(dict.fromkeys(result.error for result in evaluated if result.error))
        if messages:
            raise MatchConditionError(messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]")
        return True


class CompiledPolicy(Protocol):
    """A compiled policy of either kind."""

    name: str
    spec: JSON
    ignores_failures: bool


@dataclass(frozen=True, slots=True)
class Invocation:
    """One policy to run, with one parameter object or none.

    binding: its name; actions: its validationActions; matched: the resource as which the policy sees the request.
    """

    binding: str
    actions: Sequence[str]
    matched: ServedResource
    params: JSON | None


@dataclass(frozen=True, slots=True)
class Misconfiguration:
    """A policy or binding that cannot be applied. binding: its name, "" for the policy."""

    binding: str
    message: str


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Matches requests with policies and their bindings."""

    store: ObjectStore
    matcher: Matcher
    find_resource: FindKind

    async def invocations(
        self, policy: CompiledPolicy, bindings: Sequence[JSON], request: Attributes
    ) -> list[Invocation | Misconfiguration]:
        """Return the runs of a policy on a request; Misconfigurations are ignored if the failurePolicy is Ignore."""
        result: list[Invocation | Misconfiguration] = []

        def report(binding: str, error: Exception) -> None:
            if not policy.ignores_failures:
                message = f"failed to configure {'binding' if binding else 'policy'}: {error}"
                result.append(Misconfiguration(binding, message))

        try:
            matched = self.matcher.match(policy.spec["matchConstraints"], request)
            if matched is None:
                return []
            kind = param_resource(policy.spec, self.find_resource)
        except (errors.StatusError, ConfigurationError) as error:
            report("", error)
            return result
        for binding in bindings:
            name, spec = binding["metadata"]["name"], binding["spec"]
            try:
                resources = spec.get("matchResources")
                if resources is not None and self.matcher.match(resources, request) is None:
                    continue
                params_list = await collect_params(kind, spec.get("paramRef"), request.namespace, self.store)
            except (errors.StatusError, ConfigurationError) as error:
                report(name, error)
                continue
            actions = spec.get("validationActions") or ()
            result += [Invocation(name, actions, matched, params) for params in params_list]
        return result

    async def values(self, request: Attributes, matched: ServedResource) -> JSON:
        """Return the variables that every expression has, in the API version of `matched`.

        Raises StatusError 500 if a conversion webhook fails.
        """
        obj, old = await request.seen_as(matched)
        in_namespace = request.namespace and not request.is_of_namespace
        namespace = self.matcher.namespace(request.namespace) if in_namespace else None
        return {
            "object": obj,
            "oldObject": old,
            "request": request_value(request, matched),
            "namespaceObject": namespace_value(namespace),
            "authorizer": authorizer_value(request),
        }
