"""ValidatingAdmissionPolicy: evaluation of policies on a request, and the resulting denial or warnings.

Source: policy/validating/{plugin,dispatcher,validator}.go of v1.36. Audit annotations are evaluated without an audit
log, too, as their errors refuse requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from kubeloop.devcluster.admission.attributes import Attributes
from kubeloop.devcluster.admission.policies.expression_evaluation import (
    COST_BUDGET,
    ExpressionResult,
    OutOfBudget,
    evaluate,
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
from kubeloop.devcluster.api.slow_work import LoopBudget
from kubeloop.kube.json_object import JSON
from kubeloop.kube.policy_cel.environment import (
    BOOL_RESULT,
    STRING_OR_NULL_RESULT,
    STRING_RESULT,
    Environment,
)

_MAX_MESSAGE_BYTES = 5 * 1024
_MAX_ANNOTATION_BYTES = 10 * 1024
_FAILURE_ANNOTATION = "validation.policy.admission.k8s.io/validation_failure"
_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}


@dataclass(frozen=True, slots=True)
class Decision:
    """A failed validation. reason: "" for Invalid. index: of its expression."""

    message: str
    reason: str = ""
    index: int = 0


@dataclass(slots=True)
class Verdict:
    """denials: of validations; policy_failures: denied whatever the binding's validationActions are.

    annotations: values of audit annotations by key.
    """

    denials: list[Decision] = field(default_factory=list)
    policy_failures: list[Decision] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)


class ValidatingPolicy:
    """A compiled ValidatingAdmissionPolicy."""

    def __init__(self, obj: JSON) -> None:
        spec = self.spec = obj["spec"]
        self.name: str = obj["metadata"]["name"]
        self.ignores_failures = spec.get("failurePolicy") == "Ignore"
        environment = Environment(has_params=spec.get("paramKind") is not None)
        self._conditions = MatchConditions(spec, environment)
        self._validations: Sequence[JSON] = spec.get("validations") or ()
        self._rules = [
            environment.compile(validation.get("expression", ""), BOOL_RESULT) for validation in self._validations
        ]
        self._messages = [
            environment.compile(validation["messageExpression"], STRING_RESULT, authorizer=False)
            if validation.get("messageExpression")
            else None
            for validation in self._validations
        ]
        annotations = spec.get("auditAnnotations") or ()
        self._annotation_keys = [annotation.get("key", "") for annotation in annotations]
        self._annotations = [
            environment.compile(annotation.get("valueExpression", ""), STRING_OR_NULL_RESULT)
            for annotation in annotations
        ]

    def evaluate_request(self, values: JSON, loop_budget: LoopBudget) -> Verdict:
        """Evaluate a request with one parameter object or none.

        values: of the variables object, oldObject, request, namespaceObject and params.
        """
        variables = self._conditions.variables
        try:
            if not self._conditions.are_met(values, loop_budget):
                return Verdict()
            results, remaining_budget = evaluate(self._rules, values, variables, COST_BUDGET, loop_budget)
            denials = self._denials(results, values, remaining_budget, loop_budget)
            annotations, _ = evaluate(self._annotations, values, variables, COST_BUDGET, loop_budget)
        except (OutOfBudget, MatchConditionError) as error:
            return Verdict() if self.ignores_failures else Verdict([Decision(str(error))])
        annotation_errors = [Decision(note.error) for note in annotations if note is not None and note.error]
        values_by_key = {
            key: note.value.strip()
            for key, note in zip(self._annotation_keys, annotations, strict=True)
            if note is not None and not note.error and type(note.value) is str and note.value.strip()
        }
        return Verdict(denials, [] if self.ignores_failures else annotation_errors, values_by_key)

    def _denials(
        self, results: Sequence[ExpressionResult | None], values: JSON, budget: int, loop_budget: LoopBudget
    ) -> list[Decision]:
        budget_error = ""
        messages: Sequence[ExpressionResult | None] = ()
        try:
            messages, _ = evaluate(self._messages, values, self._conditions.variables, budget, loop_budget)
        except OutOfBudget as error:
            budget_error = f"failed messageExpression: {error}"
        denials = []
        for index, (validation, result) in enumerate(zip(self._validations, results, strict=True)):
            assert result is not None, "every validation has an expression"
            failure = result.error or budget_error
            if failure:
                if not self.ignores_failures:
                    denials.append(Decision(failure, index=index))
            elif result.value is not True:
                message_result = messages[index]
                message = _message(message_result) or validation.get("message", "").strip()
                message = message or f"failed expression: {validation.get('expression', '').strip()}"
                denials.append(Decision(message, validation.get("reason", ""), index))
        return denials


def _message(result: ExpressionResult | None) -> str:
    """Return the text of a messageExpression; "" if it cannot be used."""
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
        binding_text = f" with binding '{self.binding}'" if self.binding else ""
        return f"ValidatingAdmissionPolicy '{self.policy}'{binding_text} denied request: {self.decision.message}"


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """A policy and the request values that it is evaluated on."""

    policy: ValidatingPolicy
    invocation: Invocation
    values: JSON


async def validate(
    policies: Sequence[tuple[ValidatingPolicy, Sequence[JSON]]],
    attributes: Attributes,
    context: RequestContext,
    dispatcher: Dispatcher,
) -> None:
    """Evaluate all policies, each with its bindings, and add their warnings to the request's.

    Raises StatusError if one denies the request.
    """
    evaluations: list[_Evaluation | _Denial] = []
    for policy, bindings in policies:
        evaluations += await _evaluations(policy, bindings, attributes, dispatcher)
    runnable = [evaluation for evaluation in evaluations if isinstance(evaluation, _Evaluation)]

    def evaluate_request(loop_budget: LoopBudget) -> list[Verdict]:
        return [evaluation.policy.evaluate_request(evaluation.values, loop_budget) for evaluation in runnable]

    verdicts = iter(await context.compute(evaluate_request) if runnable else ())
    denials: list[_Denial] = []
    annotations: dict[str, dict[str, None]] = {}
    for evaluation in evaluations:
        if isinstance(evaluation, _Denial):
            denials.append(evaluation)
        else:
            verdict = next(verdicts)
            denials += _enforce(evaluation, verdict, context)
            for key, value in verdict.annotations.items():
                truncated = value.encode()[:_MAX_ANNOTATION_BYTES].decode("utf-8", "ignore")
                annotations.setdefault(f"{evaluation.policy.name}/{key}", {})[truncated] = None
    for key, values in annotations.items():
        context.annotate(key, ", ".join(values))
    if denials:
        raise _denial_error(attributes, denials[0])


async def _evaluations(
    policy: ValidatingPolicy, bindings: Sequence[JSON], attributes: Attributes, dispatcher: Dispatcher
) -> list[_Evaluation | _Denial]:
    """Return the evaluations of a policy for a request, or denials for its invalid configuration."""
    evaluations: list[_Evaluation | _Denial] = []
    values: JSON | None = None
    for invocation in await dispatcher.invocations(policy, bindings, attributes):
        if isinstance(invocation, Misconfiguration):
            evaluations.append(_Denial(policy.name, invocation.binding, Decision(invocation.message)))
            continue
        values = values or await dispatcher.values(attributes, invocation.matched)
        evaluations.append(_Evaluation(policy, invocation, {**values, "params": invocation.params}))
    return evaluations


def _enforce(evaluation: _Evaluation, verdict: Verdict, context: RequestContext) -> Iterator[_Denial]:
    """Yield the denials of a verdict according to the binding's actions; add its warnings and audit annotation."""
    policy, binding = evaluation.policy.name, evaluation.invocation.binding
    for decision in verdict.denials:
        for action in evaluation.invocation.actions:
            if action == "Deny":
                yield _Denial(policy, binding, decision)
            elif action == "Audit":
                failure = {
                    "message": decision.message,
                    "policy": policy,
                    "binding": binding,
                    "expressionIndex": decision.index,
                    "validationActions": list(evaluation.invocation.actions),
                }
                context.annotate(_FAILURE_ANNOTATION, _go_json([failure]))
            elif action == "Warn":
                policy_and_binding = f"ValidatingAdmissionPolicy '{policy}' with binding '{binding}'"
                context.request.warnings.append(f"Validation failed for {policy_and_binding}: {decision.message}")
    for decision in verdict.policy_failures:
        yield _Denial(policy, binding, decision)


def _go_json(value: object) -> str:
    """Return JSON as Go writes it, in which HTML is escaped."""
    text = msgspec.json.encode(value).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _denial_error(attributes: Attributes, denial: _Denial) -> errors.StatusError:
    message, reason = denial.message, denial.decision.reason or "Invalid"
    error = errors.forbidden(
        attributes.served.resource, attributes.name_in_message, message, causes=[{"message": message}]
    )
    error.reason, error.code = reason, _CODES.get(reason, 422)
    return error
