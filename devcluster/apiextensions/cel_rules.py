"""x-kubernetes-validations: rules in a schema, compiled, and run on objects.

A rule sees the value that its schema describes as `self`, and on updates the one before as `oldSelf`, where fields and
keys tell which that is. What a rule refuses that has not changed is a warning. Source: apiextensions-apiserver
pkg/apiserver/schema/cel.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from kubeloop.devcluster.api.deferred_work import LoopBudget
from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.apiextensions.structural_schema import (
    EMBEDDED,
    LIST_KEYS,
    LIST_TYPE,
    RULES,
    Schema,
    additional,
)
from kubeloop.devcluster.apiextensions.value_validation import Correlation
from kubeloop.devcluster.languages.cel.cost_estimates import MAX_ESTIMATE, estimate_cost
from kubeloop.devcluster.languages.cel.program import COST_LIMIT_EXCEEDED, Program
from kubeloop.devcluster.languages.cel.schema_values import SchemaView
from kubeloop.devcluster.languages.cel.syntax import ExpressionError, InstantiationError
from kubeloop.devcluster.languages.cel.types import (
    BOOL,
    MAX_REQUEST_BYTES,
    STRING,
    DeclType,
    Type,
    optional_of,
    schema_decl_type,
)
from kubeloop.devcluster.languages.cel.values import NONE, CelError, Optional
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON

BUDGET = 10_000_000
_MAX_MESSAGE_BYTES = 5 * 1024
_SELF = "selfType"
_NO_MORE = "no further validation rules will be run"


class Rule:
    """One rule. error, message_error: why it, or its messageExpression, could not be compiled; "" if it could."""

    __slots__ = (
        "cost",
        "error",
        "field_path",
        "given",
        "message",
        "message_cost",
        "message_error",
        "optional",
        "program",
        "uses_old",
    )

    def __init__(self, given: JSON, schema: Schema, of: DeclType) -> None:
        self.given = given
        self.optional = bool(given.get("optionalOldSelf"))
        self.program: Program | None = None
        self.message: Program | None = None
        self.error = self.message_error = ""
        self.cost = self.message_cost = 0
        self.uses_old = False
        self.field_path = field_path(given["fieldPath"], schema) if given.get("fieldPath") else ""
        if not (given.get("rule") or "").strip():
            return
        roots = {"self": of, "oldSelf": of}
        types: dict[str, Type] = {"self": of.type, "oldSelf": optional_of(of.type) if self.optional else of.type}
        try:
            program = Program(given["rule"], types)
        except ExpressionError as error:
            self.error = f"compilation failed: {error}"
            return
        except InstantiationError as error:
            self.error = f"program instantiation failed: {error}"
            return
        if program.type != BOOL:
            self.error = "cel expression must evaluate to a bool"
            return
        self.program, self.uses_old = program, "oldSelf" in program.used_variables
        self.cost = estimate_cost(program.node, roots)
        if given.get("messageExpression"):
            self._compile_message(given["messageExpression"], types, roots)

    def _compile_message(self, text: str, types: dict[str, Type], roots: dict[str, DeclType]) -> None:
        try:
            message = Program(text, types)
        except ExpressionError as error:
            self.message_error = f"messageExpression compilation failed: {error}"
            return
        except InstantiationError as error:
            self.message_error = f"messageExpression instantiation failed: {error}"
            return
        if message.type != STRING:
            self.message_error = "messageExpression must evaluate to a string"
            return
        self.message = message
        self.message_cost = estimate_cost(message.node, roots)

    @property
    def text(self) -> str:
        """As errors name the rule."""
        return str((self.given.get("message") or self.given["rule"]).strip())


def max_cardinality(of: DeclType) -> int:
    """How often a value of this type can be in one request."""
    return MAX_REQUEST_BYTES // (of.min_size + 1)


@lru_cache(maxsize=512)
def _compiled(schema: bytes, root: bool) -> tuple[tuple[Rule, ...], int]:  # a key
    decoded: Schema = msgspec.json.decode(schema)
    of = schema_decl_type(decoded, root=root, name=_SELF)
    if of is None:
        return (), 0
    return tuple(Rule(each, decoded, of) for each in decoded[RULES]), max_cardinality(of)


def compiled(schema: Schema, *, root: bool) -> tuple[tuple[Rule, ...], int]:
    """(the rules right at a schema, how often they apply at most where nothing else limits that).

    A definition is compiled when it is checked and again when it is served: the second time, this remembers.
    """
    return _compiled(msgspec.json.encode(schema), root)


# --- field paths ------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]]+", re.S)
_ESCAPE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


class WrongPath(ValueError):
    """A fieldPath that leads nowhere."""


def field_path(text: str, schema: Schema) -> str:
    """A rule's fieldPath as causes have it, "" for one that leads nowhere."""
    try:
        return parse_field_path(text, schema)
    except WrongPath:
        return ""


def parse_field_path(text: str, schema: Schema) -> str:
    """Fields as .name or ['name'], keys of maps likewise. Raises WrongPath."""
    tokens, path, at = _TOKEN.findall(text), "", 0
    current: Schema | None = schema
    while at < len(tokens):
        if at + 1 >= len(tokens):
            raise WrongPath("unexpected end of JSON path")
        name = tokens[at + 1]
        if tokens[at] == "[":
            if len(name) < 2 or name[0] != "'" or name[-1] != "'":
                raise WrongPath(f"expected single quoted string but got {name}")
            name = re.sub(r"\\(.)", lambda match: _ESCAPE.get(match[1], match[1]), name[1:-1])
            if tokens[at + 2 : at + 3] != ["]"]:
                raise WrongPath("unexpected end of JSON path")
            at += 3
        elif tokens[at] == ".":
            at += 2
        else:
            raise WrongPath(f"expected [ or . but got: {tokens[at]}")
        properties = (current or {}).get("properties")
        if properties is not None:
            current = properties.get(name)
            path += f".{name}" if path else name
        else:
            current = additional(current or {})[1]
            path += f"[{name}]"
        if current is None:
            raise WrongPath("does not refer to a valid field")
    return path


# --- the rules of a whole schema --------------------------------------------------------------------------------------


class RuleTree:
    """The rules at a schema and below it."""

    __slots__ = ("_fields", "_items", "_more", "_rules", "_type", "_view", "schema")

    def __init__(self, schema: Schema, *, root: bool) -> None:
        self.schema = schema
        self._type = schema.get("type") or ""
        self._rules: tuple[Rule, ...] = compiled(schema, root=root)[0] if schema.get(RULES) else ()
        self._view = SchemaView(schema, root=root) if self._rules else None
        self._fields: dict[str, RuleTree] = {}
        for name, below in (schema.get("properties") or {}).items():
            tree = _tree(below)
            if tree is not None:
                self._fields[name] = tree
        items, more = schema.get("items"), additional(schema)[1]
        self._items = _tree(items) if items is not None else None
        self._more = _tree(more) if more is not None else None

    @property
    def has_own(self) -> bool:
        """Are there rules right at the schema, and not below it alone?"""
        return bool(self._rules)

    @property
    def is_empty(self) -> bool:
        return not (self._rules or self._fields or self._items or self._more)

    def check(self, found: Findings, value: Any, old: Any, path: str, correlation: Ratchet) -> None:
        """Run the rules on a value and what is in it. old: None where there is none to compare with."""
        if value is None or found.exhausted:
            return
        if self._rules:
            self._run(found, value, old, path, correlation)
        if type(value) is list and self._items is not None:
            self._check_items(found, value, old, path, correlation)
        elif type(value) is dict and (self._fields or self._more is not None):
            before = old if type(old) is dict else {}
            for name, each in value.items():
                tree = self._fields.get(name)
                if tree is not None:
                    below = f"{path}.{name}" if path else name
                    tree.check(found, each, before.get(name), below, correlation.field(name))
                if self._more is not None:
                    self._more.check(found, each, before.get(name), f"{path}[{name}]", correlation.field(name))

    def _check_items(self, found: Findings, value: list[Any], old: Any, path: str, correlation: Ratchet) -> None:
        assert self._items is not None
        keys = self.schema.get(LIST_KEYS) or () if self.schema.get(LIST_TYPE) == "map" else ()
        before = {}
        if keys and type(old) is list:
            before = {_keys_of(each, keys): each for each in reversed(old)}
        for index, each in enumerate(value):
            earlier = before.get(_keys_of(each, keys)) if before else None
            self._items.check(found, each, earlier, f"{path}[{index}]", correlation.item(index))

    def _run(self, found: Findings, value: Any, old: Any, path: str, correlation: Ratchet) -> None:
        assert self._view is not None
        if found.budget <= 0:
            told = f"validation failed due to running out of cost budget, {_NO_MORE}"
            found.stop(path, self._type, told)
            return
        try:
            values: JSON = {"self": self._view.convert(value)}
            before = None if old is None else self._view.convert(old)
        except CelError as error:
            found.errors.invalid(path or _NO_PATH, self._type, f"{error} evaluating rule: {self._rules[0].text}")
            return
        for rule in self._rules:
            if rule.error:
                found.errors.invalid(path or _NO_PATH, self._type, f"rule compile error: {rule.error}")
                continue
            if rule.program is None or (rule.uses_old and before is None and not rule.optional):
                continue
            if rule.optional:
                values["oldSelf"] = NONE if before is None else Optional(before)
            elif before is not None:
                values["oldSelf"] = before
            else:
                values.pop("oldSelf", None)
            if not self._run_one(found, rule, values, value, path, correlation):
                return

    def _run_one(self, found: Findings, rule: Rule, values: JSON, value: Any, path: str, correlation: Ratchet) -> bool:
        """False: no rule may be run after this one."""
        assert rule.program is not None
        outcome = found.loop_budget.run(rule.program, values)
        if outcome.cost > found.budget:
            told = f"validation failed due to running out of cost budget, {_NO_MORE}"
            return found.stop(path, self._type, told)
        found.budget -= outcome.cost
        if outcome.error == COST_LIMIT_EXCEEDED:
            told = f"'{COST_LIMIT_EXCEEDED}': {_NO_MORE} due to call cost exceeds limit for rule: {rule.text}"
            return found.stop(path, self._type, told)
        if outcome.error.startswith("no such overload"):
            told = "call arguments did not match a supported operator, function or macro signature for rule"
            found.errors.invalid(path or _NO_PATH, self._type, f"'{outcome.error}': {told}: {rule.text}")
        elif outcome.error:
            found.errors.invalid(path or _NO_PATH, self._type, f"{outcome.error} evaluating rule: {rule.text}")
        elif outcome.value is not True:
            where = _joined(path, rule.field_path) if rule.field_path else path
            detail = rule.given.get("message") or f"failed rule: {rule.text}"
            if rule.message is not None:
                said = _message(found, rule.message, values, where, self._type)
                if said is None:
                    return False
                detail = said or detail
            ratcheted = not rule.uses_old and correlation.unchanged
            found.refuse(rule, where or _NO_PATH, value, detail.strip(), self._type, ratcheted=ratcheted)
        return True


_NO_PATH = "<nil>"


def _tree(schema: Schema) -> RuleTree | None:
    tree = RuleTree(schema, root=bool(schema.get(EMBEDDED)))
    return None if tree.is_empty else tree


def _keys_of(item: Any, keys: Any) -> Any:
    if type(item) is not dict or any(name not in item for name in keys):
        return None
    return tuple((type(item[name]) is bool, item[name]) for name in keys if not isinstance(item[name], dict | list))


def _joined(path: str, below: str) -> str:
    if not path or below.startswith("["):
        return f"{path}{below}"
    return f"{path}.{below}"


def _message(found: Findings, message: Program, values: JSON, path: str, type_: str) -> str | None:
    """What a messageExpression says; "" if it fails, None if it costs too much."""
    outcome = found.loop_budget.run(message, values)
    if outcome.cost > found.budget:
        told = f"messageExpression evaluation failed due to running out of cost budget, {_NO_MORE}"
        found.stop(path, type_, told)
        return None
    found.budget -= outcome.cost
    if outcome.error == COST_LIMIT_EXCEEDED:
        told = f"{_NO_MORE} due to call cost exceeds limit for messageExpression: {quoted(message.source)}"
        found.stop(path, type_, told)
        return None
    text = "" if outcome.error else str(outcome.value).strip()
    return "" if len(text.encode()) > _MAX_MESSAGE_BYTES or "\n" in text else text


# --- what was found ---------------------------------------------------------------------------------------------------


class Ratchet:
    """Has a value, or the nearest one around it that has a counterpart before the update, stayed as it was?"""

    __slots__ = ("_around", "_here", "_unchanged")

    def __init__(self, here: Correlation | None, around: Correlation | None = None) -> None:
        self._here, self._around = here, around
        self._unchanged: bool | None = None

    @property
    def unchanged(self) -> bool:
        if self._unchanged is None:
            correlation = self._here or self._around
            self._unchanged = correlation is not None and correlation.unchanged
        return self._unchanged

    def field(self, name: str) -> Ratchet:
        if self._here is None:
            return self
        if self._around is None and name in ("apiVersion", "kind"):
            return Ratchet(None)
        return Ratchet(self._here.field(name), self._here)

    def item(self, index: int) -> Ratchet:
        return self if self._here is None else Ratchet(self._here.item(index), self._here)


class Findings:
    """errors: causes; warnings: what unchanged values have against rules; budget: what is left of it.

    allowance: of what is run.
    """

    __slots__ = ("budget", "errors", "exhausted", "loop_budget", "warnings")

    def __init__(self, loop_budget: LoopBudget | None = None) -> None:
        self.loop_budget = loop_budget or LoopBudget()
        self.errors = ErrorList()
        self.warnings: list[str] = []
        self.budget = BUDGET
        self.exhausted = False

    def stop(self, path: str, type_: str, told: str) -> bool:
        self.errors.invalid(path or _NO_PATH, type_, told)
        self.exhausted = True
        return False

    def refuse(self, rule: Rule, path: str, value: Any, detail: str, type_: str, *, ratcheted: bool) -> None:
        errors = ErrorList() if ratcheted else self.errors
        whole = type_ in ("object", "array")
        match rule.given.get("reason"):
            case "FieldValueForbidden":
                errors.forbidden(path, detail)
            case "FieldValueRequired":
                errors.required(path, detail)
            case "FieldValueDuplicate":
                errors.duplicate(path, value)
                if whole:
                    errors[-1]["message"] = "Duplicate value"
            case _ if whole:
                errors.invalid_without_value(path, detail)
            case _:
                errors.invalid(path, value, detail)
        if ratcheted:
            self.warnings += [f"{each['field']}: {each['message']}" for each in errors]


def check_object(tree: RuleTree, obj: JSON, old: JSON | None, loop_budget: LoopBudget | None = None) -> Findings:
    """Run all rules on an object, and on what it was before if it is updated. Raises TakesLong."""
    found = Findings(loop_budget)
    ratchet = Ratchet(None if old is None else Correlation(old, obj, tree.schema))
    tree.check(found, obj, old, "", ratchet)
    return found


# --- what a definition's rules must be --------------------------------------------------------------------------------

RULE_LIMIT, SCHEMA_LIMIT = 10_000_000, 100_000_000


class Costs:
    """What all rules of a schema cost at most."""

    def __init__(self) -> None:
        self._total = 0
        self._most: list[tuple[int, str]] = []

    def add(self, path: str, cost: int) -> None:
        self._total = min(MAX_ESTIMATE, self._total + cost)
        if cost >= SCHEMA_LIMIT // 100:
            self._most = sorted([*self._most, (cost, path)], key=lambda each: -each[0])[:4]

    def check(self, errors: ErrorList, path: str) -> None:
        if self._total <= SCHEMA_LIMIT:
            return
        for _, where in self._most:
            told = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
            errors.forbidden(where, told)
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        errors.forbidden(path, _too_much(what, self._total, SCHEMA_LIMIT))


def _too_much(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:.6f}x" if factor < 1.5 else f"{factor:.1f}x"
    advice = (
        "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings"
    )
    return f"{what} exceeds budget by factor of {shown} ({advice} are declared)"


def check_rules(
    errors: ErrorList, schema: Schema, path: str, *, root: bool, times: int | None, uncorrelated: str, costs: Costs
) -> None:
    """The rules right at a schema: do they compile, are they cheap enough, may they ask for what was before?

    times: how many values of the schema an object has at most; None if nothing limits that. uncorrelated: the path of
    the schema within which nothing tells what was before, "" if there is none.
    """
    rules, most = compiled(schema, root=root)
    if not rules:
        told = "internal error: failed to construct type information for x-kubernetes-validations rules"
        errors.internal(path, f"{told}: unable to convert structural schema to CEL declarations")
    for index, rule in enumerate(rules):
        where = f"{path}[{index}]"
        cost = min(MAX_ESTIMATE, rule.cost * (most if times is None else times))
        if cost > RULE_LIMIT:
            errors.forbidden(f"{where}.rule", _too_much("estimated rule cost", cost, RULE_LIMIT))
        costs.add(f"{where}.rule", cost)
        if rule.error:
            errors.append(_invalid_rule(f"{where}.rule", rule.given, rule.error))
        if rule.message_error:
            errors.append(_invalid_rule(f"{where}.messageExpression", rule.given, rule.message_error))
        elif rule.message is not None:
            if rule.message_cost > RULE_LIMIT:
                told = _too_much("estimated messageExpression cost", rule.message_cost, RULE_LIMIT)
                errors.forbidden(f"{where}.messageExpression", told)
            costs.add(f"{where}.messageExpression", rule.message_cost)
        if rule.uses_old and uncorrelated:
            told = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
            errors.invalid(f"{where}.rule", rule.given["rule"], told)
        elif not rule.uses_old and rule.given.get("optionalOldSelf") is not None:
            told = "may not be set if oldSelf is not used in rule"
            errors.invalid(f"{where}.optionalOldSelf", rule.given["optionalOldSelf"], told)


_FIELDS = ("rule", "message", "messageExpression", "reason", "fieldPath", "optionalOldSelf")


def _invalid_rule(path: str, rule: JSON, told: str) -> JSON:
    """A cause that shows the whole rule, in the form that kube-apiserver has of it."""
    shown = {name[0].upper() + name[1:]: rule.get(name, _ABSENT.get(name, "")) for name in _FIELDS}
    text = msgspec.json.encode(shown).decode().replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")
    return {"reason": "FieldValueInvalid", "message": f"Invalid value: {text}: {told}", "field": path}


_ABSENT: JSON = {"reason": None, "optionalOldSelf": None}
