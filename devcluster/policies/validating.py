"""ValidatingAdmissionPolicy: which policies hear of a request, what they find, and what its sender is told.

Source: policy/validating/{plugin,dispatcher,validator}.go of v1.36. Audit annotations are worked out, as their errors
refuse requests; there is no audit log to write them to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kubeloop.devcluster import errors
from kubeloop.devcluster.policies.attributes import Attributes
from kubeloop.devcluster.policies.authorizer import Authorizer
from kubeloop.devcluster.policies.environment import BOOLEAN, TEXT, TEXT_OR_NULL, Environment
from kubeloop.devcluster.policies.evaluation import BUDGET, OutOfBudget, Result, evaluate
from kubeloop.devcluster.policies.invoking import ConditionFailed, Conditions, Surroundings

JSON = dict[str, Any]

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


class Policy:
    """One ValidatingAdmissionPolicy, compiled."""

    def __init__(self, obj: JSON) -> None:
        spec = self.spec = obj["spec"]
        self.name: str = obj["metadata"]["name"]
        self.ignores_failures = spec.get("failurePolicy") == "Ignore"
        environment = Environment(has_params=spec.get("paramKind") is not None)
        self._conditions = Conditions(spec, environment)
        self._validations: Sequence[JSON] = spec.get("validations") or ()
        self._rules = [environment.compile(each.get("expression", ""), BOOLEAN) for each in self._validations]
        self._messages = [
            environment.compile(each["messageExpression"], TEXT, authorizer=False)
            if each.get("messageExpression")
            else None
            for each in self._validations
        ]
        annotations = spec.get("auditAnnotations") or ()
        self._annotations = [environment.compile(each.get("valueExpression", ""), TEXT_OR_NULL) for each in annotations]

    def judge(self, values: JSON) -> Verdict:
        """Run it on a request, with one object of parameters or none.

        values: of the variables object, oldObject, request, namespaceObject and params.
        """
        asked = {**values, "authorizer": Authorizer()}
        try:
            if not self._conditions.hold(asked):
                return Verdict()
            found, left = evaluate(self._rules, asked, self._conditions.own, BUDGET)
            denials = self._denials(found, values, left)
            notes, _ = evaluate(self._annotations, asked, self._conditions.own, BUDGET)
        except (OutOfBudget, ConditionFailed) as error:
            return Verdict() if self.ignores_failures else Verdict([Decision(str(error))])
        failed = [Decision(each.error) for each in notes if each is not None and each.error]
        return Verdict(denials, [] if self.ignores_failures else failed)

    def _denials(self, found: Sequence[Result | None], values: JSON, budget: int) -> list[Decision]:
        spent = ""
        messages: Sequence[Result | None] = ()
        try:
            messages, _ = evaluate(self._messages, values, self._conditions.own, budget)
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


def _message(result: Result | None) -> str:
    """What a messageExpression says, "" if that is nothing to tell."""
    if result is None or result.error or type(result.value) is not str:
        return ""
    text = result.value.strip()
    return "" if len(text.encode()) > _MAX_MESSAGE_BYTES or "\n" in text else text


@dataclass(frozen=True, slots=True)
class _Refusal:
    policy: str
    binding: str
    decision: Decision

    @property
    def message(self) -> str:
        by = f" with binding '{self.binding}'" if self.binding else ""
        return f"ValidatingAdmissionPolicy '{self.policy}'{by} denied request: {self.decision.message}"


def validate(
    bound: Sequence[tuple[Policy, Sequence[JSON]]],
    request: Attributes,
    warnings: list[str],
    surroundings: Surroundings,
) -> None:
    """Ask all policies, each with its bindings. warnings: grows by what they say.

    Raises StatusError if one refuses the request.
    """
    refusals: list[_Refusal] = []
    for policy, bindings in bound:
        _ask(policy, bindings, request, warnings, surroundings, refusals)
    if refusals:
        raise _refused(request, refusals[0])


def _ask(
    policy: Policy,
    bindings: Sequence[JSON],
    request: Attributes,
    warnings: list[str],
    surroundings: Surroundings,
    refusals: list[_Refusal],
) -> None:
    def fail(binding: str, why: str) -> None:
        refusals.append(_Refusal(policy.name, binding, Decision(why)))

    values: JSON | None = None
    for each in surroundings.invocations(policy, bindings, request, fail):
        values = values or surroundings.values(request, each.matched)
        verdict = policy.judge({**values, "params": each.params})
        for decision in verdict.denials:
            for action in each.actions:
                if action == "Deny":
                    refusals.append(_Refusal(policy.name, each.binding, decision))
                elif action == "Warn":
                    by = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{each.binding}'"
                    warnings.append(f"Validation failed for {by}: {decision.message}")
        refusals += [_Refusal(policy.name, each.binding, decision) for decision in verdict.always]


def _refused(request: Attributes, refusal: _Refusal) -> errors.StatusError:
    message, reason = refusal.message, refusal.decision.reason or "Invalid"
    error = errors.forbidden(request.served.resource, request.told_name, message, causes=[{"message": message}])
    error.reason, error.code = reason, _CODES.get(reason, 422)
    return error
