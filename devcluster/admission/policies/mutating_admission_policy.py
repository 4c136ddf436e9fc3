"""MutatingAdmissionPolicy: policies that change an object before validation and storage.

Policies run one after the other, each on the result of those before. Afterwards the server's own mutations run again,
and so do the policies with reinvocationPolicy IfNeeded. Ownership of the fields that a policy sets is not recorded.
Source: policy/mutating/dispatcher.go, policy/generic/policy_dispatcher.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from kubeloop.devcluster.admission.attributes import Attributes, written_resource
from kubeloop.devcluster.admission.policies.expression_evaluation import COST_BUDGET, OutOfBudget, evaluate
from kubeloop.devcluster.admission.policies.mutation_patches import (
    InvalidResult,
    PatchFailed,
    apply_configuration,
    apply_json_patch,
)
from kubeloop.devcluster.admission.policies.policy_dispatcher import (
    Dispatcher,
    Invocation,
    MatchConditionError,
    MatchConditions,
    Misconfiguration,
)
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.api.slow_work import LoopBudget
from kubeloop.devcluster.languages.mutation_objects import (
    APPLY_CONFIGURATION_RESULT,
    JSON_PATCH_RESULT,
    MUTATION_LIBRARY,
)
from kubeloop.devcluster.serializer.conversion import to_stored
from kubeloop.devcluster.serializer.defaulting import apply_defaults
from kubeloop.kube.json_object import JSON
from kubeloop.kube.policy_cel.environment import Environment, Expression


class MutatingPolicy:
    """A compiled MutatingAdmissionPolicy."""

    def __init__(self, obj: JSON) -> None:
        spec = self.spec = obj["spec"]
        self.name: str = obj["metadata"]["name"]
        self.ignores_failures = spec.get("failurePolicy") == "Ignore"
        self.is_reinvoked = spec.get("reinvocationPolicy") == "IfNeeded"
        environment = Environment(has_params=spec.get("paramKind") is not None)
        self._conditions = MatchConditions(spec, environment)
        environment.library = MUTATION_LIBRARY
        self._mutations: list[Expression] = []
        for mutation in spec.get("mutations") or ():
            is_patch = mutation.get("patchType") == "JSONPatch"
            text = (mutation.get("jsonPatch" if is_patch else "applyConfiguration") or {}).get("expression", "")
            self._mutations.append(
                environment.compile(text, JSON_PATCH_RESULT if is_patch else APPLY_CONFIGURATION_RESULT)
            )

    def run(
        self,
        values: JSON,
        requested: ServedResource,
        matched: ServedResource,
        loop_budget: LoopBudget,
        *,
        conditions_only: bool,
    ) -> MutationResult:
        """Run the mutations in order.

        values: of Dispatcher.values, with params. requested, matched: the resource of the body, and the one as which
        the policy sees it. conditions_only: evaluate only the match conditions.
        """
        result = MutationResult(values["object"])
        try:
            if not self._conditions.are_met(values, loop_budget) or conditions_only:
                return result
        except (MatchConditionError, OutOfBudget) as error:
            result.failures.append(str(error))
            return result
        result.conditions_met = True
        for mutation in self._mutations:
            try:
                changed = self._mutated(mutation, {**values, "object": result.object}, matched, loop_budget)
                _check_kind_version(requested, matched)
                result.object, result.is_dirty = changed, True
            except (PatchFailed, OutOfBudget) as error:
                result.failures.append(str(error))
            except InvalidResult as error:
                result.fatal_error = str(error)
                break
        return result

    def _mutated(self, mutation: Expression, values: JSON, served: ServedResource, loop_budget: LoopBudget) -> JSON:
        """Return the variable `object` after one mutation."""
        results, _ = evaluate([mutation], values, self._conditions.variables, COST_BUDGET, loop_budget)
        result = results[0]
        assert result is not None
        if result.error:
            raise PatchFailed(result.error)
        if type(result.value) is list:
            return apply_json_patch(served, values["object"], result.value)
        return apply_configuration(served, values["object"], result.value)


@dataclass(slots=True)
class MutationResult:
    """Result of one policy on an object.

    failures: mutations that failed; fatal_error: failure that ends the request, or "".
    """

    object: JSON
    conditions_met: bool = False
    is_dirty: bool = False
    failures: list[str] = field(default_factory=list)
    fatal_error: str = ""


class PolicyRun(NamedTuple):
    """Identity of a policy's run, equal in the first and second round."""

    policy: str
    binding: str
    params: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """object: to be stored; reinvocable: runs to repeat if it changes later; is_changed: a policy changed it."""

    object: JSON
    reinvocable: frozenset[PolicyRun]
    is_changed: bool


async def mutate(
    policies: Sequence[tuple[MutatingPolicy, Sequence[JSON]]],
    attributes: Attributes,
    context: RequestContext,
    dispatcher: Dispatcher,
    repeated_runs: frozenset[PolicyRun] | None = None,
) -> Outcome:
    """Run all policies, each with its bindings. repeated_runs: in the second round, the runs to repeat.

    Raises StatusError if a policy fails, unless its failurePolicy is Ignore.
    """
    failures: list[tuple[str, str, str, str]] = []
    invocations: list[tuple[MutatingPolicy, Invocation]] = []
    for policy, bindings in policies:
        for invocation in await dispatcher.invocations(policy, bindings, attributes):
            if isinstance(invocation, Misconfiguration):
                failures.append((policy.name, invocation.binding, invocation.message, ""))
            else:
                invocations.append((policy, invocation))
    reinvocations: set[PolicyRun] = set()
    is_dirty = False
    for policy, invocation in invocations:
        run = _run_of(policy, invocation)
        requested, written = (
            written_resource(served, attributes.subresource) for served in (attributes.served, invocation.matched)
        )
        values = {**await dispatcher.values(attributes, invocation.matched), "params": invocation.params}
        conditions_only = repeated_runs is not None and run not in repeated_runs
        result = await context.compute(partial(policy.run, values, requested, written, conditions_only=conditions_only))
        if result.is_dirty and attributes.subresource == "scale" and attributes.served.crd_version is not None:
            result.failures.append(_UNCONVERTIBLE_SCALE)
        if result.fatal_error:
            raise errors.internal_error(result.fatal_error)
        if not policy.ignores_failures:
            failures += [(policy.name, invocation.binding, problem, "Invalid") for problem in result.failures]
        if not result.conditions_met:
            continue
        is_dirty = is_dirty or result.is_dirty
        obj = _to_request_form(requested, written, result.object)
        attributes = replace(attributes, object=obj)
        if policy.is_reinvoked:
            reinvocations.add(run)
    if failures:
        raise _denial_error(attributes, failures)
    assert attributes.object is not None, "policies run on writes"
    return Outcome(attributes.object, frozenset(reinvocations), is_dirty)


_UNCONVERTIBLE_SCALE = "request to convert CR to an invalid group/version: autoscaling/v1"
"""v1.36's error for every policy that changes the Scale of a custom resource."""


def _check_kind_version(requested: ServedResource, matched: ServedResource) -> None:
    """Raise PatchFailed for built-in kinds in another version than the request's: v1.36 cannot convert them back."""
    if matched is not requested and matched.crd_version is None:
        matched_kind, requested_kind = (
            f"{served.resource.version}.{served.resource.kind}" for served in (matched, requested)
        )
        raise PatchFailed(f"converting ({matched_kind}) to ({requested_kind}): unknown conversion")


def _run_of(policy: MutatingPolicy, invocation: Invocation) -> PolicyRun:
    metadata = (invocation.params or {}).get("metadata") or {}
    params = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    return PolicyRun(policy.name, invocation.binding, params)


def _to_request_form(requested: ServedResource, matched: ServedResource, obj: JSON) -> JSON:
    """Return the object of a policy in the version of the request's object."""
    if requested.crd_version is not None:
        return {**obj, "apiVersion": requested.resource.api_version}
    if matched.storage_resource is None:
        return obj
    stored = to_stored(matched, obj)
    apply_defaults(matched.storage_resource, stored)
    return stored


def _denial_error(attributes: Attributes, failures: Sequence[tuple[str, str, str, str]]) -> errors.StatusError:
    messages = []
    for policy, binding, problem, _ in failures:
        policy_and_binding = f"policy '{policy}' with binding '{binding}'" if binding else f'policy "{policy}"'
        messages.append(f"{policy_and_binding} denied request: {problem}")
    causes = [{"message": message} for message in messages]
    error = errors.forbidden(attributes.served.resource, attributes.name_in_message, "", causes=causes)
    error.message = messages[0]
    if reason := failures[0][3]:
        error.reason = reason
    return error
