"""x-kubernetes-validations: CEL rules of a schema, compiled and evaluated on objects.

A rule sees the value of its schema as `self`, and on updates the corresponding old value as `oldSelf`, if field
names and list keys identify one. A rule that an unchanged value fails gives a warning instead of an error. Source:
apiextensions-apiserver pkg/apiserver/schema/cel.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from kubeloop.cel.costs.cost_estimates import MAX_ESTIMATE, estimate_cost
from kubeloop.cel.program import COST_LIMIT_EXCEEDED, CelProgram
from kubeloop.cel.schema_values import SchemaView
from kubeloop.cel.syntax import ExpressionError, InstantiationError
from kubeloop.cel.types import (
    BOOL,
    MAX_REQUEST_BYTES,
    STRING,
    DeclType,
    Type,
    optional_of,
    schema_decl_type,
)
from kubeloop.cel.values import NONE, CelError, Optional
from kubeloop.devcluster.api.slow_work import LoopBudget
from kubeloop.devcluster.apiextensions.rule_field_path import field_path
from kubeloop.devcluster.apiextensions.structural_schema import (
    EMBEDDED,
    LIST_KEYS,
    LIST_TYPE,
    RULES,
    Schema,
    additional_properties_of,
)
from kubeloop.devcluster.apiextensions.value_validation import Correlation
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.cel_library import KUBERNETES_LIBRARY
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted

BUDGET = 10_000_000
_MAX_MESSAGE_BYTES = 5 * 1024
_SELF = "selfType"
_STOPPED = "no further validation rules will be run"


class ValidationRule:
    """One rule. error, message_error: compilation error of the rule or of its messageExpression, "" if it compiled."""

    __slots__ = (
        "cost",
        "error",
        "field_path",
        "message",
        "message_cost",
        "message_error",
        "optional",
        "program",
        "spec",
        "uses_old_self",
    )

    def __init__(self, spec: JSON, schema: Schema, decl_type: DeclType) -> None:
        self.spec = spec
        self.optional = bool(spec.get("optionalOldSelf"))
        self.program: CelProgram | None = None
        self.message: CelProgram | None = None
        self.error = self.message_error = ""
        self.cost = self.message_cost = 0
        self.uses_old_self = False
        self.field_path = field_path(spec.get("fieldPath") or "", schema) or ""
        if not (spec.get("rule") or "").strip():
            return
        roots = {"self": decl_type, "oldSelf": decl_type}
        types: dict[str, Type] = {
            "self": decl_type.type,
            "oldSelf": optional_of(decl_type.type) if self.optional else decl_type.type,
        }
        program, self.error = _compiled(spec["rule"], types, BOOL, "", "cel expression must evaluate to a bool")
        if program is None:
            return
        self.program, self.uses_old_self = program, "oldSelf" in program.used_variables
        self.cost = estimate_cost(program.node, roots)
        if text := spec.get("messageExpression"):
            not_text = "messageExpression must evaluate to a string"
            self.message, self.message_error = _compiled(text, types, STRING, "messageExpression ", not_text)
            self.message_cost = 0 if self.message is None else estimate_cost(self.message.node, roots)

    @property
    def text(self) -> str:
        """The message or expression by which errors identify the rule."""
        return str((self.spec.get("message") or self.spec["rule"]).strip())


def _compiled(
    text: str, types: dict[str, Type], result: Type, prefix: str, other_type: str
) -> tuple[CelProgram | None, str]:
    """Return the program, or None and an error. other_type: the error for an expression with another result."""
    try:
        program = CelProgram(text, types, KUBERNETES_LIBRARY)
    except ExpressionError as error:
        return None, f"{prefix}compilation failed: {error}"
    except InstantiationError as error:
        return None, f"{prefix or 'program '}instantiation failed: {error}"
    return (program, "") if program.type == result else (None, other_type)


def max_cardinality(decl_type: DeclType) -> int:
    """Return the maximum number of values of this type in one request."""
    return MAX_REQUEST_BYTES // (decl_type.min_size + 1)


@lru_cache(maxsize=512)
def _compile_encoded(schema: bytes, root: bool) -> tuple[tuple[ValidationRule, ...], int]:  # bytes, as a cache key
    decoded: Schema = msgspec.json.decode(schema)
    decl_type = schema_decl_type(decoded, root=root, name=_SELF)
    if decl_type is None:
        return (), 0
    return tuple(ValidationRule(spec, decoded, decl_type) for spec in decoded[RULES]), max_cardinality(decl_type)


def compile_rules(schema: Schema, *, root: bool) -> tuple[tuple[ValidationRule, ...], int]:
    """Return (the rules of a schema itself, the maximum number of evaluations if the schema sets no limit).

    Cached, since a definition is compiled when it is validated and again when it is served.
    """
    return _compile_encoded(msgspec.json.encode(schema), root)


# --- the rules of a whole schema --------------------------------------------------------------------------------------


class RuleTree:
    """The rules of a schema and of all schemas below it."""

    __slots__ = ("_additional", "_fields", "_items", "_rules", "_type", "_view", "schema")

    def __init__(self, schema: Schema, *, root: bool) -> None:
        self.schema = schema
        self._type = schema.get("type") or ""
        self._rules: tuple[ValidationRule, ...] = compile_rules(schema, root=root)[0] if schema.get(RULES) else ()
        self._view = SchemaView(schema, root=root) if self._rules else None
        self._fields: dict[str, RuleTree] = {}
        for name, subschema in (schema.get("properties") or {}).items():
            tree = _tree(subschema)
            if tree is not None:
                self._fields[name] = tree
        items, additional = schema.get("items"), additional_properties_of(schema)[1]
        self._items = _tree(items) if items is not None else None
        self._additional = _tree(additional) if additional is not None else None

    @property
    def is_empty(self) -> bool:
        return not (self._rules or self._fields or self._items or self._additional)

    def check(self, evaluation: RuleEvaluation, value: Any, old: Any, path: str, ratchet: Ratchet) -> None:
        """Evaluate the rules on a value and the values below it. old: None if there is no corresponding old value."""
        if value is None or evaluation.exhausted:
            return
        if self._rules:
            self._run_rules(evaluation, value, old, path, ratchet)
        if type(value) is list and self._items is not None:
            self._check_items(evaluation, value, old, path, ratchet)
        elif type(value) is dict and (self._fields or self._additional is not None):
            old_fields = old if type(old) is dict else {}
            for name, field in value.items():
                tree = self._fields.get(name)
                if tree is not None:
                    child_path = f"{path}.{name}" if path else name
                    tree.check(evaluation, field, old_fields.get(name), child_path, ratchet.field(name))
                if self._additional is not None:
                    self._additional.check(
                        evaluation, field, old_fields.get(name), f"{path}[{name}]", ratchet.field(name)
                    )

    def _check_items(self, evaluation: RuleEvaluation, value: list[Any], old: Any, path: str, ratchet: Ratchet) -> None:
        assert self._items is not None
        keys = self.schema.get(LIST_KEYS) or () if self.schema.get(LIST_TYPE) == "map" else ()
        old_items = {}
        if keys and type(old) is list:
            old_items = {_item_key(item, keys): item for item in reversed(old)}
        for index, item in enumerate(value):
            old_item = old_items.get(_item_key(item, keys)) if old_items else None
            self._items.check(evaluation, item, old_item, f"{path}[{index}]", ratchet.item(index))

    def _run_rules(self, evaluation: RuleEvaluation, value: Any, old: Any, path: str, ratchet: Ratchet) -> None:
        assert self._view is not None
        if evaluation.budget <= 0:
            message = f"validation failed due to running out of cost budget, {_STOPPED}"
            evaluation.stop(path, self._type, message)
            return
        try:
            values: JSON = {"self": self._view.convert(value)}
            old_value = None if old is None else self._view.convert(old)
        except CelError as error:
            evaluation.errors.invalid(path or _NO_PATH, self._type, f"{error} evaluating rule: {self._rules[0].text}")
            return
        for rule in self._rules:
            if rule.error:
                evaluation.errors.invalid(path or _NO_PATH, self._type, f"rule compile error: {rule.error}")
                continue
            if rule.program is None or (rule.uses_old_self and old_value is None and not rule.optional):
                continue
            if rule.optional:
                values["oldSelf"] = NONE if old_value is None else Optional(old_value)
            elif old_value is not None:
                values["oldSelf"] = old_value
            else:
                values.pop("oldSelf", None)
            if not self._run_rule(evaluation, rule, values, value, path, ratchet):
                return

    def _run_rule(
        self, evaluation: RuleEvaluation, rule: ValidationRule, values: JSON, value: Any, path: str, ratchet: Ratchet
    ) -> bool:
        """Evaluate one rule; return False if no rule may be evaluated after it."""
        assert rule.program is not None
        outcome = evaluation.loop_budget.run(rule.program, values)
        if outcome.cost > evaluation.budget:
            message = f"validation failed due to running out of cost budget, {_STOPPED}"
            return evaluation.stop(path, self._type, message)
        evaluation.budget -= outcome.cost
        if outcome.error == COST_LIMIT_EXCEEDED:
            message = f"'{COST_LIMIT_EXCEEDED}': {_STOPPED} due to call cost exceeds limit for rule: {rule.text}"
            return evaluation.stop(path, self._type, message)
        if outcome.error.startswith("no such overload"):
            message = "call arguments did not match a supported operator, function or macro signature for rule"
            evaluation.errors.invalid(path or _NO_PATH, self._type, f"'{outcome.error}': {message}: {rule.text}")
        elif outcome.error:
            evaluation.errors.invalid(path or _NO_PATH, self._type, f"{outcome.error} evaluating rule: {rule.text}")
        elif outcome.value is not True:
            cause_path = _join_path(path, rule.field_path) if rule.field_path else path
            detail = rule.spec.get("message") or f"failed rule: {rule.text}"
            if rule.message is not None:
                evaluated = _evaluate_message(evaluation, rule.message, values, cause_path, self._type)
                if evaluated is None:
                    return False
                detail = evaluated or detail
            unchanged = not rule.uses_old_self and ratchet.unchanged
            evaluation.add_failure(rule, cause_path or _NO_PATH, value, detail.strip(), self._type, unchanged=unchanged)
        return True


_NO_PATH = "<nil>"


def _tree(schema: Schema) -> RuleTree | None:
    tree = RuleTree(schema, root=bool(schema.get(EMBEDDED)))
    return None if tree.is_empty else tree


def _item_key(item: Any, keys: Any) -> Any:
    if type(item) is not dict or any(name not in item for name in keys):
        return None
    return tuple((type(item[name]) is bool, item[name]) for name in keys if not isinstance(item[name], dict | list))


def _join_path(path: str, below: str) -> str:
    if not path or below.startswith("["):
        return f"{path}{below}"
    return f"{path}.{below}"


def _evaluate_message(
    evaluation: RuleEvaluation, message: CelProgram, values: JSON, path: str, type_: str
) -> str | None:
    """Return the text of a messageExpression, "" if it fails, None if it exceeds the cost budget."""
    outcome = evaluation.loop_budget.run(message, values)
    if outcome.cost > evaluation.budget:
        error = f"messageExpression evaluation failed due to running out of cost budget, {_STOPPED}"
        evaluation.stop(path, type_, error)
        return None
    evaluation.budget -= outcome.cost
    if outcome.error == COST_LIMIT_EXCEEDED:
        error = f"{_STOPPED} due to call cost exceeds limit for messageExpression: {quoted(message.source)}"
        evaluation.stop(path, type_, error)
        return None
    text = "" if outcome.error else str(outcome.value).strip()
    return "" if len(text.encode()) > _MAX_MESSAGE_BYTES or "\n" in text else text


# --- findings ---------------------------------------------------------------------------------------------------------


class Ratchet:
    """Ratcheting: whether a value, or its nearest parent with a corresponding old value, is unchanged by an update."""

    __slots__ = ("_own", "_parent", "_unchanged")

    def __init__(self, own: Correlation | None, parent: Correlation | None = None) -> None:
        self._own, self._parent = own, parent
        self._unchanged: bool | None = None

    @property
    def unchanged(self) -> bool:
        if self._unchanged is None:
            correlation = self._own or self._parent
            self._unchanged = correlation is not None and correlation.unchanged
        return self._unchanged

    def field(self, name: str) -> Ratchet:
        if self._own is None:
            return self
        if self._parent is None and name in ("apiVersion", "kind"):
            return Ratchet(None)
        return Ratchet(self._own.field(name), self._own)

    def item(self, index: int) -> Ratchet:
        return self if self._own is None else Ratchet(self._own.item(index), self._own)


class RuleEvaluation:
    """State and result of one evaluation of the rules on an object.

    errors: causes; warnings: failed rules of unchanged values; budget: CEL cost left; exhausted: no more rules may run;
    loop_budget: limits the time of evaluation on the event loop.
    """

    __slots__ = ("budget", "errors", "exhausted", "loop_budget", "warnings")

    def __init__(self, loop_budget: LoopBudget | None = None) -> None:
        self.loop_budget = loop_budget or LoopBudget()
        self.errors = ErrorList()
        self.warnings: list[str] = []
        self.budget = BUDGET
        self.exhausted = False

    def stop(self, path: str, type_: str, message: str) -> bool:
        self.errors.invalid(path or _NO_PATH, type_, message)
        self.exhausted = True
        return False

    def add_failure(
        self, rule: ValidationRule, path: str, value: Any, detail: str, type_: str, *, unchanged: bool
    ) -> None:
        errors = ErrorList() if unchanged else self.errors
        is_container = type_ in ("object", "array")
        match rule.spec.get("reason"):
            case "FieldValueForbidden":
                errors.forbidden(path, detail)
            case "FieldValueRequired":
                errors.required(path, detail)
            case "FieldValueDuplicate":
                errors.duplicate(path, value)
                if is_container:
                    errors[-1]["message"] = "Duplicate value"
            case _ if is_container:
                errors.invalid_without_value(path, detail)
            case _:
                errors.invalid(path, value, detail)
        if unchanged:
            self.warnings += [f"{cause['field']}: {cause['message']}" for cause in errors]


def check_object(tree: RuleTree, obj: JSON, old: JSON | None, loop_budget: LoopBudget | None = None) -> RuleEvaluation:
    """Evaluate all rules on an object; `old`: the object before an update. Raises BudgetExceeded."""
    evaluation = RuleEvaluation(loop_budget)
    ratchet = Ratchet(None if old is None else Correlation(old, obj, tree.schema))
    tree.check(evaluation, obj, old, "", ratchet)
    return evaluation


# --- validation of rules ----------------------------------------------------------------------------------------------

RULE_LIMIT, SCHEMA_LIMIT = 10_000_000, 100_000_000


class Costs:
    """Sum of the estimated costs of all rules of a schema."""

    def __init__(self) -> None:
        self._total = 0
        self._costliest: list[tuple[int, str]] = []

    def add(self, path: str, cost: int) -> None:
        self._total = min(MAX_ESTIMATE, self._total + cost)
        if cost >= SCHEMA_LIMIT // 100:
            self._costliest = sorted([*self._costliest, (cost, path)], key=lambda entry: -entry[0])[:4]

    def check(self, errors: ErrorList, path: str) -> None:
        if self._total <= SCHEMA_LIMIT:
            return
        for _, rule_path in self._costliest:
            message = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
            errors.forbidden(rule_path, message)
        subject = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        errors.forbidden(path, _cost_error(subject, self._total, SCHEMA_LIMIT))


def _cost_error(subject: str, cost: int, limit: int) -> str:
    factor = cost / limit
    excess = "more than 100x" if factor > 100 else f"{factor:.6f}x" if factor < 1.5 else f"{factor:.1f}x"
    advice = (
        "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings"
    )
    return f"{subject} exceeds budget by factor of {excess} ({advice} are declared)"


def check_rules(
    errors: ErrorList,
    schema: Schema,
    path: str,
    *,
    root: bool,
    max_evaluations: int | None,
    uncorrelatable: str,
    costs: Costs,
) -> None:
    """Validate the rules of a schema itself: compilation, estimated cost, use of oldSelf.

    max_evaluations: maximum number of values of the schema in an object, None if unlimited. uncorrelatable: path of the
    list within which old values cannot be identified, "" if there is none.
    """
    rules, default_evaluations = compile_rules(schema, root=root)
    if not rules:
        message = "internal error: failed to construct type information for x-kubernetes-validations rules"
        errors.internal(path, f"{message}: unable to convert structural schema to CEL declarations")
    for index, rule in enumerate(rules):
        rule_path = f"{path}[{index}]"
        cost = min(MAX_ESTIMATE, rule.cost * (default_evaluations if max_evaluations is None else max_evaluations))
        if cost > RULE_LIMIT:
            errors.forbidden(f"{rule_path}.rule", _cost_error("estimated rule cost", cost, RULE_LIMIT))
        costs.add(f"{rule_path}.rule", cost)
        if rule.error:
            errors.append(_invalid_rule(f"{rule_path}.rule", rule.spec, rule.error))
        if rule.message_error:
            errors.append(_invalid_rule(f"{rule_path}.messageExpression", rule.spec, rule.message_error))
        elif rule.message is not None:
            if rule.message_cost > RULE_LIMIT:
                message = _cost_error("estimated messageExpression cost", rule.message_cost, RULE_LIMIT)
                errors.forbidden(f"{rule_path}.messageExpression", message)
            costs.add(f"{rule_path}.messageExpression", rule.message_cost)
        if rule.uses_old_self and uncorrelatable:
            message = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
            errors.invalid(f"{rule_path}.rule", rule.spec["rule"], message)
        elif not rule.uses_old_self and rule.spec.get("optionalOldSelf") is not None:
            message = "may not be set if oldSelf is not used in rule"
            errors.invalid(f"{rule_path}.optionalOldSelf", rule.spec["optionalOldSelf"], message)


_FIELDS = ("rule", "message", "messageExpression", "reason", "fieldPath", "optionalOldSelf")


def _invalid_rule(path: str, rule: JSON, message: str) -> JSON:
    """Return a cause that shows the whole rule, in the form of kube-apiserver's internal type."""
    fields = {name[0].upper() + name[1:]: rule.get(name, _ABSENT.get(name, "")) for name in _FIELDS}
    text = msgspec.json.encode(fields).decode().replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")
    return {"reason": "FieldValueInvalid", "message": f"Invalid value: {text}: {message}", "field": path}


_ABSENT: JSON = {"reason": None, "optionalOldSelf": None}
