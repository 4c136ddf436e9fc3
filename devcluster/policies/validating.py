"""ValidatingAdmissionPolicy: which policies hear of a request, what they find, and what its sender is told.

Source: policy/validating/{plugin,dispatcher,validator}.go of v1.36. Audit annotations are worked out, as their errors
refuse requests; there is no audit log to write them to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubeloop.devcluster import errors
from kubeloop.devcluster.policies.attributes import Attributes
from kubeloop.devcluster.policies.authorizer import Authorizer
from kubeloop.devcluster.policies.environment import (
    BOOLEAN,
    TEXT,
    TEXT_OR_NULL,
    Environment,
    Expression,
    namespace_value,
    request_value,
)
from kubeloop.devcluster.policies.evaluation import BUDGET, MATCH_BUDGET, OutOfBudget, Result, evaluate
from kubeloop.devcluster.policies.matching import Matcher
from kubeloop.devcluster.policies.parameters import WrongConfiguration, kind_of_parameters, parameters
from kubeloop.devcluster.registry import Served
from kubeloop.devcluster.storage import Store

JSON = dict[str, Any]
FindKind = Callable[[str, str], Served | None]
"""The resource of an apiVersion and kind."""

_MAX_MESSAGE_BYTES = 5 * 1024
_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}


@dataclass(frozen=True, slots=True)
class Decision:
    """What one expression has against a request. reason: "" for Invalid; is_error: the expression itself failed."""

    message: str
    reason: str = ""
    is_error: bool = False


@dataclass(slots=True)
class Verdict:
    """denials: by validations; always: refused whatever the binding's validationActions are."""

    denials: list[Decision] = field(default_factory=list)
    always: list[Decision] = field(default_factory=list)


class Conditions:
    """A policy's matchConditions."""

    def __init__(self, spec: JSON, environment: Environment) -> None:
        conditions = spec.get("matchConditions") or ()
        self._expressions = [environment.compile(each.get("expression", ""), BOOLEAN) for each in conditions]

    def meets(self, values: JSON, own: dict[str, Expression]) -> bool:
        """Do all hold? Raises CelFailure if none says no, and one fails; OutOfBudget."""
        if not self._expressions:
            return True
        results, _ = evaluate(self._expressions, {**values, "namespaceObject": None}, own, MATCH_BUDGET)
        found = [each for each in results if each is not None]
        if any(each.value is False and not each.error for each in found):
            return False
        told = list(dict.fromkeys(each.error for each in found if each.error))
        if told:
            raise ConditionFailed(told[0] if len(told) == 1 else f"[{', '.join(told)}]")
        return True


class ConditionFailed(Exception):
    """A match condition has no value."""


class Policy:
    """One ValidatingAdmissionPolicy, compiled."""

    def __init__(self, obj: JSON) -> None:
        spec = self.spec = obj["spec"]
        self.name: str = obj["metadata"]["name"]
        self.ignores_failures = spec.get("failurePolicy") == "Ignore"
        environment = Environment(has_params=spec.get("paramKind") is not None)
        self._own = {
            each["name"]: environment.declare(each["name"], each["expression"]) for each in spec.get("variables") or ()
        }
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
            if not self._conditions.meets(asked, self._own):
                return Verdict()
            found, left = evaluate(self._rules, asked, self._own, BUDGET)
            denials = self._denials(found, values, left)
            notes, _ = evaluate(self._annotations, asked, self._own, BUDGET)
        except (OutOfBudget, ConditionFailed) as error:
            return Verdict() if self.ignores_failures else Verdict([Decision(str(error), is_error=True)])
        failed = [Decision(each.error, is_error=True) for each in notes if each is not None and each.error]
        return Verdict(denials, [] if self.ignores_failures else failed)

    def _denials(self, found: Sequence[Result | None], values: JSON, budget: int) -> list[Decision]:
        spent = ""
        messages: Sequence[Result | None] = ()
        try:
            messages, _ = evaluate(self._messages, values, self._own, budget)
        except OutOfBudget as error:
            spent = f"failed messageExpression: {error}"
        denials = []
        for index, (validation, result) in enumerate(zip(self._validations, found, strict=True)):
            assert result is not None, "every validation has an expression"
            failure = result.error or spent
            if failure:
                if not self.ignores_failures:
                    denials.append(Decision(failure, is_error=True))
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
class Bound:
    """A policy with the bindings that put it in force, as they are stored."""

    policy: Policy
    bindings: Sequence[JSON]


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
    all_bound: Sequence[Bound],
    request: Attributes,
    warnings: list[str],
    matcher: Matcher,
    find: FindKind,
    store: Store,
) -> None:
    """Ask all policies. warnings: grows by what they say. Raises StatusError if one refuses the request."""
    refusals: list[_Refusal] = []
    for bound in all_bound:
        _ask(bound, request, matcher, find, store, warnings, refusals)
    if refusals:
        raise _refused(request, refusals[0])


def _ask(
    bound: Bound,
    request: Attributes,
    matcher: Matcher,
    find: FindKind,
    store: Store,
    warnings: list[str],
    refusals: list[_Refusal],
) -> None:
    policy = bound.policy

    def misconfigured(what: str, binding: str, error: Exception) -> None:
        if not policy.ignores_failures:
            decision = Decision(f"failed to configure {what}: {error}", is_error=True)
            refusals.append(_Refusal(policy.name, binding, decision))

    try:
        matched = matcher.match(policy.spec["matchConstraints"], request)
        if matched is None:
            return
        kind = kind_of_parameters(policy.spec, find)
    except (errors.StatusError, WrongConfiguration) as error:
        misconfigured("policy", "", error)
        return
    values: JSON | None = None
    for binding in bound.bindings:
        name, spec = binding["metadata"]["name"], binding["spec"]
        try:
            if spec.get("matchResources") is not None and matcher.match(spec["matchResources"], request) is None:
                continue
            found = parameters(kind, spec.get("paramRef"), request.namespace, store)
        except (errors.StatusError, WrongConfiguration) as error:
            misconfigured("binding", name, error)
            continue
        for params in found:
            values = values or _values(request, matched, matcher)
            verdict = policy.judge({**values, "params": params})
            for decision in verdict.denials:
                for action in spec.get("validationActions") or ():
                    if action == "Deny":
                        refusals.append(_Refusal(policy.name, name, decision))
                    elif action == "Warn":
                        told = f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding '{name}'"
                        warnings.append(f"{told}: {decision.message}")
            refusals += [_Refusal(policy.name, name, each) for each in verdict.always]


def _values(request: Attributes, matched: Served, matcher: Matcher) -> JSON:
    obj, old = request.seen_as(matched)
    namespace = matcher.namespace(request.namespace) if request.namespace and not request.is_of_namespace else None
    return {
        "object": obj,
        "oldObject": old,
        "request": request_value(request, matched),
        "namespaceObject": namespace_value(namespace),
    }


def _refused(request: Attributes, refusal: _Refusal) -> errors.StatusError:
    name = request.name or ("Unknown" if request.object is None else errors.told_name(request.object))
    message, reason = refusal.message, refusal.decision.reason or "Invalid"
    error = errors.forbidden(request.served.resource, name, message, causes=[{"message": message}])
    error.reason, error.code = reason, _CODES.get(reason, 422)
    return error
