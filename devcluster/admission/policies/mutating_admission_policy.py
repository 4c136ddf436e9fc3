"""MutatingAdmissionPolicy: what policies make of an object before it is looked at and stored.

Policies are run one after the other, each on what those before have left. When one has been run, the server's own
changes are made again, and so are those of the policies that ask for it (reinvocationPolicy IfNeeded). Who owns a
field that a policy sets is not noted. Source: policy/mutating/dispatcher.go, policy/generic/policy_dispatcher.go.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from kubeloop.devcluster.admission.policies.attributes import Attributes
from kubeloop.devcluster.admission.policies.expression_evaluation import COST_BUDGET, OutOfBudget, evaluate
from kubeloop.devcluster.admission.policies.mutation_patches import (
    InvalidResult,
    PatchFailed,
    apply_configuration,
    apply_json_patch,
)
from kubeloop.devcluster.admission.policies.policy_dispatcher import (
    Invocation,
    MatchConditionError,
    MatchConditions,
    PolicyContext,
)
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.deferred_work import DeferredWork, LoopBudget
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.languages.policy_cel.authorizer import Authorizer
from kubeloop.devcluster.languages.policy_cel.environment import Environment, Expression
from kubeloop.devcluster.languages.policy_cel.mutation_objects import APPLIED, MUTATION, OPERATIONS
from kubeloop.devcluster.serializer.conversion import to_stored
from kubeloop.devcluster.serializer.defaulting import apply_defaults
from kubeloop.kube.json_object import JSON


class MutatingPolicy:
    """One MutatingAdmissionPolicy, compiled."""

    def __init__(self, obj: JSON) -> None:
        spec = self.spec = obj["spec"]
        self.name: str = obj["metadata"]["name"]
        self.ignores_failures = spec.get("failurePolicy") == "Ignore"
        self.is_run_again = spec.get("reinvocationPolicy") == "IfNeeded"
        environment = Environment(has_params=spec.get("paramKind") is not None)
        self._conditions = MatchConditions(spec, environment)
        environment.library = MUTATION
        self._mutations: list[Expression] = []
        for mutation in spec.get("mutations") or ():
            is_patch = mutation.get("patchType") == "JSONPatch"
            text = (mutation.get("jsonPatch" if is_patch else "applyConfiguration") or {}).get("expression", "")
            self._mutations.append(environment.compile(text, OPERATIONS if is_patch else APPLIED))

    def run(
        self, values: JSON, asked: ServedResource, matched: ServedResource, loop_budget: LoopBudget, *, only_look: bool
    ) -> MutationResult:
        """Make one change after the other. Raises TakesLong.

        values: as Surroundings.values, with params. asked, matched: what the request names, and as what the policy sees
        it. only_look: do no more than to see whether the conditions hold.
        """
        values = {**values, "authorizer": Authorizer()}
        step = MutationResult(values["object"])
        try:
            if not self._conditions.hold(values, loop_budget) or only_look:
                return step
        except (MatchConditionError, OutOfBudget) as error:
            step.wrong.append(str(error))
            return step
        step.has_run = True
        for mutation in self._mutations:
            try:
                changed = self._mutated(mutation, {**values, "object": step.object}, matched, loop_budget)
                _check_kind_version(asked, matched)
                step.object, step.is_dirty = changed, True
            except (PatchFailed, OutOfBudget) as error:
                step.wrong.append(str(error))
            except InvalidResult as error:
                step.broken = str(error)
                break
        return step

    def _mutated(self, mutation: Expression, values: JSON, served: ServedResource, loop_budget: LoopBudget) -> JSON:
        """What a mutation makes of the variable `object`."""
        results, _ = evaluate([mutation], values, self._conditions.own, COST_BUDGET, loop_budget)
        result = results[0]
        assert result is not None
        if result.error:
            raise PatchFailed(result.error)
        if type(result.value) is list:
            return apply_json_patch(served, values["object"], result.value)
        return apply_configuration(served, values["object"], result.value)


@dataclass(slots=True)
class MutationResult:
    """What one policy has made of an object.

    has_run: did its conditions hold? wrong: what could not be done; broken: why nothing more can be, "" if it can.
    """

    object: JSON
    has_run: bool = False
    is_dirty: bool = False
    wrong: list[str] = field(default_factory=list)
    broken: str = ""


class PolicyRun(NamedTuple):
    """A policy's run in the first round: the same binding and parameters are run again, if need be."""

    policy: str
    binding: str
    params: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """object: as it is to be stored now; again: what is to be run again, None if nothing has been run."""

    object: JSON
    again: frozenset[PolicyRun] | None


def mutate(
    bound: Sequence[tuple[MutatingPolicy, Sequence[JSON]]],
    request: Attributes,
    surroundings: PolicyContext,
    only: frozenset[PolicyRun] | None = None,
) -> Outcome:
    """Run all policies, each with its bindings. only: in the second round, what is run again.

    Raises StatusError for a policy that cannot be run, unless that is to be ignored; Later for one that takes long.
    """
    problems: list[tuple[str, str, str, str]] = []
    chosen: list[tuple[MutatingPolicy, Invocation]] = []
    for policy, bindings in bound:

        def fail(binding: str, why: str, name: str = policy.name) -> None:
            problems.append((name, binding, why, ""))

        found = surroundings.invocations(policy, bindings, request, fail)
        chosen += [(policy, each) for each in found]
    again: set[PolicyRun] = set()
    is_dirty = False
    for policy, each in chosen:
        run = _run_of(policy, each)
        values = {**surroundings.values(request, each.matched), "params": each.params}
        only_look = only is not None and run not in only
        step = _run_policy(
            policy, values, request.served, each.matched, surroundings.deferred_work, only_look=only_look
        )
        if step.broken:
            raise errors.internal_error(step.broken)
        if not policy.ignores_failures:
            problems += [(policy.name, each.binding, why, "Invalid") for why in step.wrong]
        if not step.has_run:
            continue
        is_dirty = is_dirty or step.is_dirty
        request = replace(request, object=_to_request_form(request.served, each.matched, step.object))
        if policy.is_run_again:
            again.add(run)
    if problems:
        raise _denial_error(request, problems)
    assert request.object is not None, "policies are run on what is written"
    return Outcome(request.object, frozenset(again) if is_dirty else None)


def _run_policy(
    policy: MutatingPolicy,
    values: JSON,
    asked: ServedResource,
    matched: ServedResource,
    deferred_work: DeferredWork,
    *,
    only_look: bool,
) -> MutationResult:
    """Run one policy. Raises Later."""

    def key() -> Hashable:
        return policy, asked, matched, only_look, msgspec.json.encode(values)

    return deferred_work.compute_or_defer(
        key, lambda loop_budget: policy.run(values, asked, matched, loop_budget, only_look=only_look)
    )


def _check_kind_version(asked: ServedResource, matched: ServedResource) -> None:
    """v1.36 changes Kubernetes' own kinds in the version alone in which they came. Raises WrongPatch."""
    if matched is not asked and matched.crd_version is None:
        found, wanted = (f"{each.resource.version}.{each.resource.kind}" for each in (matched, asked))
        raise PatchFailed(f"converting ({found}) to ({wanted}): unknown conversion")


def _run_of(policy: MutatingPolicy, invocation: Invocation) -> PolicyRun:
    metadata = (invocation.params or {}).get("metadata") or {}
    params = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    return PolicyRun(policy.name, invocation.binding, params)


def _to_request_form(asked: ServedResource, matched: ServedResource, obj: JSON) -> JSON:
    """An object as a policy leaves it, in the form in which the request's own object is."""
    if asked.crd_version is not None:
        return {**obj, "apiVersion": asked.resource.api_version}
    if matched.storage_resource is None:
        return obj
    stored = to_stored(matched, obj)
    apply_defaults(matched.storage_resource, stored)
    return stored


def _denial_error(request: Attributes, problems: Sequence[tuple[str, str, str, str]]) -> errors.StatusError:
    detail = []
    for policy, binding, why, _ in problems:
        by = f"policy '{policy}' with binding '{binding}'" if binding else f'policy "{policy}"'
        detail.append(f"{by} denied request: {why}")
    causes = [{"message": each} for each in detail]
    error = errors.forbidden(request.served.resource, request.name_in_message, "", causes=causes)
    error.message = detail[0]
    if reason := problems[0][3]:
        error.reason = reason
    return error
