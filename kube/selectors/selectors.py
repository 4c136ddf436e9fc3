"""Label and field selectors: parsed once, matched often, printed as Kubernetes prints them.

A Selector is compiled to one function, because the scheduler and the controllers match millions of times. Source:
apimachinery pkg/labels and pkg/fields. Imports msgspec, `objects` and `validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NoReturn

import msgspec

from kubeloop.kube.objects import api_types
from kubeloop.kube.validation.field_errors import (
    FieldError,
    aggregate_message,
    invalid,
    not_supported,
    parse_int64,
    quoted,
)
from kubeloop.kube.validation.name_checks import label_value, qualified_name

Labels = Mapping[str, str]
Operator = Literal["=", "==", "!=", "in", "notin", "exists", "!", "gt", "lt"]

_OPERATORS: tuple[Operator, ...] = ("in", "notin", "=", "==", "!=", "gt", "lt", "exists", "!")
_LABEL_SELECTOR_OPERATORS: dict[str, Operator] = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


class SelectorError(ValueError):
    """Invalid selector; the message is the API server's."""


class Requirement(msgspec.Struct, frozen=True):
    """One valid condition on one label. `values` keep their order."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        values = ",".join(sorted(self.values))
        match self.operator:
            case "exists":
                return self.key
            case "!":
                return f"!{self.key}"
            case "in" | "notin":
                return f"{self.key} {self.operator} ({values})"
            case "gt":
                return f"{self.key}>{values}"
            case "lt":
                return f"{self.key}<{values}"
            case _:
                return f"{self.key}{self.operator}{values}"

    def compiled(self) -> Callable[[Labels], bool]:
        """Return a function that tests whether labels meet this requirement."""
        key, values = self.key, frozenset(self.values)
        match self.operator:
            case "=" | "==" | "in" if len(values) == 1:
                (value,) = values
                return lambda labels: labels.get(key) == value
            case "=" | "==" | "in":
                return lambda labels: labels.get(key) in values
            case "!=" | "notin":
                return lambda labels: labels.get(key) not in values  # also True without the label
            case "exists":
                return lambda labels: key in labels
            case "!":
                return lambda labels: key not in labels
        bound = parse_int64(self.values[0]) or 0
        above = self.operator == "gt"

        def compares(labels: Labels) -> bool:
            number = parse_int64(labels.get(key, ""))
            return number is not None and (number > bound if above else number < bound)

        return compares


def requirement(key: str, operator: Operator, values: Sequence[str]) -> Requirement:
    """Return a validated Requirement. Raises SelectorError."""
    errors = requirement_errors(key, operator, values)
    if errors:
        raise SelectorError(aggregate_message(errors))
    return Requirement(key, operator, tuple(values))


def requirement_errors(key: str, operator: str, values: Sequence[str], path: str = "") -> list[FieldError]:
    """Return the errors of a requirement. Source: labels.NewRequirement."""
    dot = f"{path}." if path else ""
    errors = []
    if problems := qualified_name(key):
        errors.append(invalid(f"{dot}key", key, "; ".join(problems)))
    problem = ""
    match operator:
        case "in" | "notin" if not values:
            problem = "for 'in', 'notin' operators, values set can't be empty"
        case "=" | "==" | "!=" if len(values) != 1:
            problem = "exact-match compatibility requires one single value"
        case "exists" | "!" if values:
            problem = "values set must be empty for exists and does not exist"
        case "gt" | "lt" if len(values) != 1:
            problem = "for 'Gt', 'Lt' operators, exactly one value is required"
    if problem:
        errors.append(invalid(f"{dot}values", list(values) or None, problem))
    if operator in ("gt", "lt"):
        errors += [
            invalid(f"{dot}values[{index}]", value, "for 'Gt', 'Lt' operators, the value must be an integer")
            for index, value in enumerate(values)
            if parse_int64(value) is None
        ]
    if operator not in _OPERATORS:
        errors.append(not_supported(f"{dot}operator", operator, _OPERATORS))
    for index, value in enumerate(values):
        if problems := label_value(value):
            errors.append(invalid(f"{dot}values[{index}][{key}]", value, "; ".join(problems)))
    return errors


class Selector:
    """Label selector: all requirements must hold. `matches(labels)` is compiled.

    Selectors are equal if they print the same text, so they can be used as cache keys.
    """

    __slots__ = ("_text", "matches", "nothing", "requirements")

    requirements: tuple[Requirement, ...]
    matches: Callable[[Labels], bool]
    nothing: bool

    def __init__(self, requirements: Sequence[Requirement] = (), *, nothing: bool = False) -> None:
        self.requirements = tuple(sorted(requirements, key=lambda requirement_: requirement_.key))
        self.nothing = nothing
        compiled = [requirement_.compiled() for requirement_ in self.requirements]
        self.matches = (lambda _labels: False) if nothing else _all_of(compiled)
        self._text: str | None = None

    @property
    def empty(self) -> bool:
        """True if it selects everything."""
        return not self.requirements and not self.nothing

    def __str__(self) -> str:
        if self._text is None:
            self._text = ",".join(map(str, self.requirements))
        return self._text

    def __repr__(self) -> str:
        return "Selector(nothing)" if self.nothing else f"Selector({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and self.nothing == other.nothing and str(self) == str(other)

    def __hash__(self) -> int:
        return hash((self.nothing, str(self)))


def _all_of(conditions: Sequence[Callable[[Labels], bool]]) -> Callable[[Labels], bool]:
    match conditions:
        case []:
            return lambda _labels: True
        case [only]:
            return only
        case [first, second]:
            return lambda labels: first(labels) and second(labels)

    def all_hold(labels: Labels) -> bool:
        for holds in conditions:  # noqa: SIM110, a generator would cost more than the conditions
            if not holds(labels):
                return False
        return True

    return all_hold


EVERYTHING = Selector()
NOTHING = Selector(nothing=True)


def selector_from(selector: api_types.LabelSelector | None) -> Selector:
    """Compile a metav1.LabelSelector: None selects nothing, an empty one everything. Raises SelectorError."""
    if selector is None:
        return NOTHING
    if not selector.match_labels and not selector.match_expressions:
        return EVERYTHING
    requirements = [requirement(key, "=", (value,)) for key, value in sorted(selector.match_labels.items())]
    for expression in selector.match_expressions:
        operator = _LABEL_SELECTOR_OPERATORS.get(expression.operator)
        if operator is None:
            raise SelectorError(f"{quoted(expression.operator)} is not a valid label selector operator")
        requirements.append(requirement(expression.key, operator, expression.values))
    return Selector(requirements)


def selector_text(selector: api_types.LabelSelector | None) -> str:
    """Return a selector as Go prints it."""
    if selector is None:
        return "nil"
    labels = "".join(f"{name}: {value}," for name, value in sorted(selector.match_labels.items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{it.key},Operator:{it.operator},Values:[{' '.join(it.values)}],}},"
        for it in selector.match_expressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


def selector_from_map(labels: Labels) -> Selector:
    """Select objects with all these labels (Service, nodeSelector), without validation. {} selects everything."""
    return Selector([Requirement(key, "=", (value,)) for key, value in labels.items()]) if labels else EVERYTHING


# --- the string form: "app in (a, b),tier!=front,!gone,gen>3" ---------------------------------------------------------

_SYMBOLS = frozenset({")", ",", "!", "==", "=", ">", "<", "!=", "("})
_SYMBOL_CHARS = frozenset("=!(),><")
_KEYWORDS = frozenset({"in", "notin"})
_OPERATOR_TOKENS: dict[str, Operator] = {
    "in": "in",
    "notin": "notin",
    "=": "=",
    "==": "==",
    "!=": "!=",
    ">": "gt",
    "<": "lt",
}
_END = ""


def parse_label_selector(text: str) -> Selector:
    """Parse a selector of `kubectl -l` or ?labelSelector=. Raises SelectorError."""
    requirements = _LabelSelectorParser(text).requirements()
    return Selector(requirements) if requirements else EVERYTHING


class _LabelSelectorParser:
    """Parser of one selector text. Tokens are strings; "" is the end; an identifier is neither a symbol nor ""."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._position = 0

    def _peek(self) -> str:
        """Return the next token without consuming it."""
        return self._tokens[self._position]

    def _take(self) -> str:
        token = self._tokens[self._position]
        self._position += token != _END
        return token

    def requirements(self) -> list[Requirement]:
        requirements: list[Requirement] = []
        token = self._peek()
        if token == _END:
            return requirements
        if not (_is_identifier(token) or token == "!"):
            _fail(f"found '{token}', expected: !, identifier, or 'end of string'")
        while True:
            try:
                requirements.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            token = self._take()
            if token == _END:
                return requirements
            if token != ",":
                _fail(f"found '{token}', expected: ',' or 'end of string'")
            token = self._peek()
            if not (_is_identifier(token) or token == "!"):
                _fail(f"found '{token}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        key = self._take()
        negated = key == "!"
        if negated:
            key = self._take()
        if not _is_identifier(key):
            _fail(f"found '{key}', expected: identifier")
        if problems := qualified_name(key):
            # Kubernetes prints "<nil>" as the path of this error.
            raise SelectorError(str(invalid("<nil>", key, "; ".join(problems))))
        if negated or self._peek() in {_END, ","}:
            return requirement(key, "!" if negated else "exists", ())
        token = self._take()
        operator = _OPERATOR_TOKENS.get(token)
        if operator is None:
            _fail(f"found '{token}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._values() if operator in {"in", "notin"} else self._value()
        return requirement(key, operator, sorted(set(values)))

    def _value(self) -> list[str]:
        if self._peek() in {_END, ","}:
            return [""]
        token = self._take()
        if not _is_identifier(token):
            _fail(f"found '{token}', expected: identifier")
        return [token]

    def _values(self) -> list[str]:
        """Parse a parenthesised list. "(,a", "(a,,b)" and "(a,)" contain an empty value."""
        token = self._take()
        if token != "(":
            _fail(f"found '{token}' expected: '('")
        token = self._peek()
        if token == ")":
            self._take()
            return [""]
        if not (_is_identifier(token) or token == ","):
            _fail(f"found '{token}', expected: ',', ')' or identifier")
        values: list[str] = []
        while True:
            token = self._take()
            next_token = self._peek()
            if _is_identifier(token):
                values.append(token)
                if next_token == ")":
                    break
                if next_token != ",":
                    _fail(f"found '{next_token}', expected: ',' or ')'")
            elif token == ",":
                if not values:
                    values.append("")
                if next_token in {")", ","}:
                    values.append("")
                if next_token == ")":
                    break
            else:
                _fail(f"found '{token}', expected: ',', or identifier")
        self._take()
        return values


def _is_identifier(token: str) -> bool:
    return token != _END and token not in _SYMBOLS


def _fail(problem: str) -> NoReturn:
    raise SelectorError(problem)


def _tokens(text: str) -> list[str]:
    """Split into identifiers (including keywords) and symbols, longest first, and "" at the end. NUL ends the text."""
    text = text.partition("\0")[0]
    tokens, position = [], 0
    while position < len(text):
        char = text[position]
        start = position
        if char in " \t\r\n":
            position += 1
            continue
        if char in _SYMBOL_CHARS:
            position += 2 if text[position : position + 2] in _SYMBOLS else 1
        else:
            while position < len(text) and text[position] not in _SYMBOL_CHARS and text[position] not in " \t\r\n":
                position += 1
        tokens.append(text[start:position])
    return [*tokens, _END]


# --- field selectors: "status.phase=Running,spec.nodeName!=a" ---------------------------------------------------------


class FieldSelector:
    """Field selector: all `terms` must hold: (field, "=" or "!=", value). A missing field counts as ""."""

    __slots__ = ("matches", "terms")

    terms: tuple[tuple[str, Literal["=", "!="], str], ...]
    matches: Callable[[Mapping[str, str]], bool]

    def __init__(self, terms: Sequence[tuple[str, Literal["=", "!="], str]] = ()) -> None:
        self.terms = tuple(terms)
        self.matches = _all_of([_field_condition(*term) for term in self.terms])

    @property
    def empty(self) -> bool:
        """True if it selects everything."""
        return not self.terms

    def __str__(self) -> str:
        return ",".join(f"{field}{operator}{_escaped(value)}" for field, operator, value in self.terms)

    def __repr__(self) -> str:
        return f"FieldSelector({str(self)!r})"

    def exact(self, field: str) -> str | None:
        """Return the value that `field` must equal; None if there is no such term."""
        return next((value for name, operator, value in self.terms if name == field and operator == "="), None)


def _field_condition(field: str, operator: str, value: str) -> Callable[[Mapping[str, str]], bool]:
    if operator == "=":
        return lambda fields: fields.get(field, "") == value
    return lambda fields: fields.get(field, "") != value


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def _unescaped(value: str) -> str:
    out, escaping = [], False
    for char in value:
        if escaping:
            if char not in "\\,=":
                _fail(f"invalid field selector: invalid escape sequence: \\{char}")
            out.append(char)
            escaping = False
        elif char == "\\":
            escaping = True
        elif char in ",=":
            _fail(f"invalid field selector: unescaped character in value: {ord(char)}")
        else:
            out.append(char)
    if escaping:
        _fail("invalid field selector: invalid escape sequence: \\")
    return "".join(out)


def _field_terms(text: str) -> list[str]:
    """Split at unescaped commas."""
    parts, start, escaping = [], 0, False
    for position, char in enumerate(text):
        if escaping:
            escaping = False
        elif char == "\\":
            escaping = True
        elif char == ",":
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return [part for part in sorted(parts, key=str.encode) if part]


def parse_field_selector(text: str) -> FieldSelector:
    """Parse a selector of `kubectl --field-selector` or ?fieldSelector=. Raises SelectorError."""
    terms: list[tuple[str, Literal["=", "!="], str]] = []
    for part in _field_terms(text):
        at = next((at for at in range(len(part)) if part[at] == "=" or part.startswith("!=", at)), None)
        if at is None:
            _fail(f"invalid selector: '{text}'; can't understand '{part}'")
        field, rest = part[:at], part[at:]
        value = _unescaped(rest[2:] if rest.startswith(("!=", "==")) else rest[1:])
        if field or value:
            terms.append((field, "!=" if rest.startswith("!=") else "=", value))
    return FieldSelector(terms)
