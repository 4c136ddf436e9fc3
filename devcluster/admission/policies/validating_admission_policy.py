"""ValidatingAdmissionPolicy: which policies hear of a request, what they find, and what its sender is told.

Source: policy/validating/{plugin,dispatcher,validator}.go of v1.36. Audit annotations are worked out, as their errors
refuse requests; there is no audit log to write them to.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from kubeloop.devcluster.admission.policies.attributes import Attributes
from kubeloop.devcluster.admission.policies.expression_evaluation import (
    COST_BUDGET,
    ExpressionResult,
    OutOfBudget,
    evaluate,
)
from kubeloop.devcluster.admission.policies.policy_dispatcher import (
    Invocation,
    MatchConditionError,
    MatchConditions,
    PolicyContext,
)
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.deferred_work import LoopBudget
from kubeloop.devcluster.languages.policy_cel.authorizer import Authorizer
from kubeloop.devcluster.languages.policy_cel.environment import BOOLEAN, TEXT, TEXT_OR_NULL, Environment
from kubeloop.kube.json_object import JSON

_MAX_MESSAGE_BYTES = 5 * 1024
_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}


@dataclass(frozen=True, slots=True)
class Decision:
    """What one expression has against a request. reason: "" for Invalid."""

    message: str
    reason: str = ""


@dataclass(slots=True)
class Verdict:
    """denials: by validations; always: refused whatever the binding's validationActions are."""

    denials: list[Decision] = field(default_factory=list)
    always: list[Decision] = field(default_factory=list)


class ValidatingPolicy:
    """One ValidatingAdmissionPolicy, compiled."""

    def __init__(self, obj: JSON) -> None:
        spec = self.spec = obj["spec"]
        self.name: str = obj["metadata"]["name"]
        self.ignores_failures = spec.get("failurePolicy") == "Ignore"
        environment = Environment(has_params=spec.get("paramKind") is not None)
        self._conditions = MatchConditions(spec, environment)
        self._validations: Sequence[JSON] = spec.get("validations") or ()
        self._rules = [
            environment.compile(validation.get("expression", ""), BOOLEAN) for validation in self._validations
        ]
        self._messages = [
            environment.compile(validation["messageExpression"], TEXT, authorizer=False)
            if validation.get("messageExpression")
            else None
            for validation in self._validations
        ]
        annotations = spec.get("auditAnnotations") or ()
        self._annotations = [
            environment.compile(annotation.get("valueExpression", ""), TEXT_OR_NULL) for annotation in annotations
        ]

    def judge(self, values: JSON, loop_budget: LoopBudget) -> Verdict:
        """Run it on a request, with one object of parameters or none. Raises TakesLong.

        values: of the variables object, oldObject, request, namespaceObject and params.
        """
        asked = {**values, "authorizer": Authorizer()}
        own = self._conditions.own
        try:
            if not self._conditions.hold(asked, loop_budget):
                return Verdict()
            found, left = evaluate(self._rules, asked, own, COST_BUDGET, loop_budget)
            denials = self._denials(found, values, left, loop_budget)
            notes, _ = evaluate(self._annotations, asked, own, COST_BUDGET, loop_budget)
        except (OutOfBudget, MatchConditionError) as error:
            return Verdict() if self.ignores_failures else Verdict([Decision(str(error))])
        failed = [Decision(note.error) for note in notes if note is not None and note.error]
        return Verdict(denials, [] if self.ignores_failures else failed)

    def _denials(
        self, found: Sequence[ExpressionResult | None], values: JSON, budget: int, loop_budget: LoopBudget
    ) -> list[Decision]:
        spent = ""
        messages: Sequence[ExpressionResult | None] = ()
        try:
            messages, _ = evaluate(self._messages, values, self._conditions.own, budget, loop_budget)
        except OutOfBudget as error:
            spent = f"failed messageExpression: {error}"
        denials = []
        for index, (validation, result) in enumerate(zip(self._validations, found, strict=True)):
            assert result is not None, "every validation has an expression"
            failure = result.error or spent
            if failure:
                if not self.ignores_failures:
                    denials.append(Decision(failure))
            elif result.value is not True:
                said = messages[index]
                message = _message(said) or validation.get("message", "").strip()
                message = message or f"failed expression: {validation.get('expression', '').strip()}"
                denials.append(Decision(message, validation.get("reason", "")))
        return denials


def _message(result: ExpressionResult | None) -> str:
    """What a messageExpression says, "" if that is nothing to tell."""
    if result is None or result.error or type(result.value) is not str:
        return ""
    text = result.value.strip()
    return "" if len(text.encode()) > _MAX_MESSAGE_BYTES or "\n" in text else text


@dataclass(frozen=True, slots=True)
class _Denial:
    policy: str
    binding: str
    decision: Decision

    @property
    def message(self) -> str:
        by = f" with binding '{self.binding}'" if self.binding else ""
        return f"ValidatingAdmissionPolicy '{self.policy}'{by} denied request: {self.decision.message}"


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """A policy, and what it is asked about."""

    policy: ValidatingPolicy
    invocation: Invocation
    values: JSON


def validate(
    bound: Sequence[tuple[ValidatingPolicy, Sequence[JSON]]],
    request: Attributes,
    warnings: list[str],
    surroundings: PolicyContext,
) -> None:
    """Ask all policies, each with its bindings. warnings: grows by what they say.

    Raises StatusError if one refuses the request, Later if asking takes long.
    """
    found = [
        evaluation for policy, bindings in bound for evaluation in _evaluations(policy, bindings, request, surroundings)
    ]
    questions = [each for each in found if isinstance(each, _Evaluation)]

    def key() -> Hashable:
        return tuple(question.policy for question in questions), msgspec.json.encode(
            [question.values for question in questions]
        )

    def judge(loop_budget: LoopBudget) -> list[Verdict]:
        return [question.policy.judge(question.values, loop_budget) for question in questions]

    refusals: list[_Denial] = []
    verdicts = iter(surroundings.deferred_work.compute_or_defer(key, judge) if questions else ())
    for each in found:
        if isinstance(each, _Denial):
            refusals.append(each)
        else:
            refusals += _enforce(each, next(verdicts), warnings)
    if refusals:
        raise _denial_error(request, refusals[0])


def _evaluations(
    policy: ValidatingPolicy, bindings: Sequence[JSON], request: Attributes, surroundings: PolicyContext
) -> list[_Evaluation | _Denial]:
    """What a policy is asked about a request, and what is wrong with its configuration."""
    found: list[_Evaluation | _Denial] = []

    def fail(binding: str, why: str) -> None:
        found.append(_Denial(policy.name, binding, Decision(why)))

    values: JSON | None = None
    for invocation in surroundings.invocations(policy, bindings, request, fail):
        values = values or surroundings.values(request, invocation.matched)
        found.append(_Evaluation(policy, invocation, {**values, "params": invocation.params}))
    return found


def _enforce(question: _Evaluation, verdict: Verdict, warnings: list[str]) -> Iterator[_Denial]:
    """What the binding makes of a verdict. warnings: grows by what it only warns of."""
    policy, binding = question.policy.name, question.invocation.binding
    for decision in verdict.denials:
        for action in question.invocation.actions:
            if action == "Deny":
                yield _Denial(policy, binding, decision)
            elif action == "Warn":
                by = f"ValidatingAdmissionPolicy '{policy}' with binding '{binding}'"
                warnings.append(f"Validation failed for {by}: {decision.message}")
    for decision in verdict.always:
        yield _Denial(policy, binding, decision)


def _denial_error(request: Attributes, refusal: _Denial) -> errors.StatusError:
    message, reason = refusal.message, refusal.decision.reason or "Invalid"
    error = errors.forbidden(request.served.resource, request.name_in_message, message, causes=[{"message": message}])
    error.reason, error.code = reason, _CODES.get(reason, 422)
    return error
