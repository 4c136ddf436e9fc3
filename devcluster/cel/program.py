"""Expressions that can be run: nodes become closures, which count what they cost.

An error ends an expression as an exception, but for && and ||, which look whether the other side decides, and so do
all() and exists(). A cost above the limit ends it whatever stands around. Source: cel-go interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kubeloop.devcluster.cel import costs
from kubeloop.devcluster.cel.checker import check
from kubeloop.devcluster.cel.declarations import Overload
from kubeloop.devcluster.cel.functions import FUNCTIONS
from kubeloop.devcluster.cel.lists import total
from kubeloop.devcluster.cel.parser import parse
from kubeloop.devcluster.cel.patterns import compile_pattern
from kubeloop.devcluster.cel.syntax import (
    Call,
    Comprehension,
    ExpressionError,
    Ident,
    InstantiationError,
    Issue,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
)
from kubeloop.devcluster.cel.types import Type
from kubeloop.devcluster.cel.values import (
    NONE,
    CelError,
    Container,
    CostExceeded,
    Optional,
    TypeValue,
    Uint,
    equal,
    is_list,
    is_map,
    lookup,
    no_overload,
    shown,
    type_name,
)

PER_CALL_LIMIT = 1_000_000
_MISSING: Any = object()
EXCEEDED = "operation cancelled: actual cost limit exceeded"


class _Run:
    """One evaluation: the variables by their number, what it has cost, and what functions of a library may ask."""

    __slots__ = ("context", "cost", "limit", "variables")

    def __init__(self, variables: list[Any], limit: int, context: Any) -> None:
        self.variables = variables
        self.context = context
        self.cost = 0
        self.limit = limit


Closure: TypeAlias = Callable[[_Run], Any]


class _Constant:
    """The closure of what is the same in every run, and costs nothing."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, _run: _Run) -> Any:
        return self.value


_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})
_WITH_PATTERNS = frozenset({"matches", "find", "findAll"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """value: if `error` is "". cost: also of what has failed."""

    value: Any
    error: str
    cost: int


@dataclass(frozen=True, slots=True)
class Library:
    """Functions of one's own. They are called with the context that a run is given, and then the arguments."""

    overloads: Mapping[str, list[Overload]]
    functions: Mapping[str, Callable[..., Any]]


_NONE_MORE = Library({}, {})


class Program:
    """A checked expression. type: of what it makes; node: its tree, for estimates."""

    def __init__(self, source: str, variables: Mapping[str, Type], library: Library = _NONE_MORE) -> None:
        """Raises ExpressionError and InstantiationError."""
        self.source = source
        try:
            self.node = parse(source)
            self.type = check(source, self.node, variables, library.overloads)
            self._names = list(variables)
            compiler = _Compiler(self._names, library.functions)
            self._closure = compiler.compile(self.node)
        except RecursionError:
            raise ExpressionError(source, [Issue(-1, "expression recursion limit exceeded: 250")]) from None
        self._slots = compiler.count
        self.used = frozenset(compiler.used)
        """The variables that it names."""

    def run(self, values: Mapping[str, Any], limit: int = PER_CALL_LIMIT, context: Any = None) -> Outcome:
        """Evaluate with these values of the variables; those that are left out have none."""
        variables = [values.get(name, _MISSING) for name in self._names]
        variables += [None] * (self._slots - len(variables))
        run = _Run(variables, limit, context)
        try:
            value = self._closure(run)
        except CelError as error:
            return Outcome(None, str(error), run.cost)
        except (CostExceeded, RecursionError, MemoryError):
            return Outcome(None, EXCEEDED, run.cost)
        return Outcome(None, EXCEEDED, run.cost) if run.cost > limit else Outcome(value, "", run.cost)


class _Compiler:
    def __init__(self, names: list[str], library: Mapping[str, Callable[..., Any]]) -> None:
        self._library = library
        self._scopes: list[dict[str, int]] = [{name: number for number, name in enumerate(names)}]
        self.count = len(names)
        self.used: set[str] = set()

    def compile(self, node: Node) -> Closure:
        match node:
            case Literal():
                return _Constant(node.value)
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListNode():
                return self._list(node)
            case MapNode():
                return self._map(node)
            case Comprehension():
                return self._comprehension(node)
        raise AssertionError(node)  # structs do not pass the checker

    # --- names ----------------------------------------------------------------------------------------------------

    def _slot(self) -> int:
        self.count += 1
        return self.count - 1

    def _ident(self, node: Ident) -> Closure:
        name = node.name.lstrip(".")
        scopes = self._scopes[:1] if node.name.startswith(".") else self._scopes
        number = next((scope[name] for scope in reversed(scopes) if name in scope), None)
        if number is None:
            assert node.type_value is not None
            return _Constant(TypeValue(node.type_value.name))
        if number == self._scopes[0].get(name):
            self.used.add(name)
        slot = number

        def ident(run: _Run) -> Any:
            run.cost += 1
            value = run.variables[slot]
            if value is _MISSING:
                raise CelError(f"no such attribute(s): {name}")
            return value

        return ident

    def _select(self, node: Select) -> Closure:
        if node.type_value is not None:
            return _Constant(TypeValue(node.type_value.name))
        operand, field = self.compile(node.operand), node.field
        if node.test:

            def has(run: _Run) -> Any:
                return _present(operand(run), field)

            return has
        extra = 1 if isinstance(node.operand, Ident | Select) or _is_index(node.operand) else 2

        def select(run: _Run) -> Any:
            value = operand(run)
            run.cost += extra
            if type(value) is Optional:
                return _optional_field(value.value, field) if value.present else NONE
            return _field(value, field)

        return select

    # --- calls ----------------------------------------------------------------------------------------------------

    def _call(self, node: Call) -> Closure:
        args = [self.compile(each) for each in ([node.target] if node.target is not None else []) + node.args]
        if node.name in self._library:
            return _with_context(self._library[node.name], args)
        special = _SPECIAL.get(node.name)
        if special is not None and (node.name not in ("or", "orValue") or len(args) == 2):
            return special(args)
        if node.name == "@in" and isinstance(node.args[1], ListNode):
            known = _texts_of(node.args[1])
            if known is not None:
                return _in_texts(args[0], known)
        function = FUNCTIONS[node.name] if node.name != "sum" else _total(node)
        if args and isinstance(args[0], _Constant) and node.name in _CONVERSIONS:
            try:
                return _Constant(function(args[0].value))
            except CelError as error:
                raise InstantiationError(str(error)) from None
        if node.name in _WITH_PATTERNS and isinstance(args[1], _Constant) and type(args[1].value) is str:
            try:
                compile_pattern(args[1].value)
            except CelError as error:
                raise InstantiationError(str(error)) from None
        return _applied(function, args, costs.CALLS.get(node.name))

    # --- aggregates -----------------------------------------------------------------------------------------------

    def _list(self, node: ListNode) -> Closure:
        elements, optional = [self.compile(each) for each in node.elements], node.optional
        if not optional:
            if all(isinstance(each, _Constant) for each in elements):
                return _Constant([each.value for each in elements if isinstance(each, _Constant)])

            def make(run: _Run) -> Any:
                run.cost += costs.LIST_COST
                return [each(run) for each in elements]

            return make

        def make_some(run: _Run) -> Any:
            run.cost += costs.LIST_COST
            found = []
            for index, each in enumerate(elements):
                value = each(run)
                if index in optional:
                    if type(value) is not Optional:
                        raise CelError(
                            f"cannot initialize optional list element from non-optional value {shown(value)}"
                        )
                    if not value.present:
                        continue
                    value = value.value
                found.append(value)
            return found

        return make_some

    def _map(self, node: MapNode) -> Closure:
        entries = [(self.compile(each.key), self.compile(each.value), each.optional) for each in node.entries]

        def make(run: _Run) -> Any:
            run.cost += costs.MAP_COST
            found: dict[Any, Any] = {}
            for key_of, value_of, optional in entries:
                key, value = key_of(run), value_of(run)
                if type(key) not in (str, int, Uint, bool, float):
                    raise CelError(f"unsupported key type: {type_name(key)}")
                if optional:
                    if type(value) is not Optional:
                        told = "cannot initialize optional entry"
                        raise CelError(f"{told} '{shown(key)}' from non-optional value {shown(value)}")
                    if not value.present:
                        continue
                    value = value.value
                found[key] = value
            return found

        return make

    # --- comprehensions -------------------------------------------------------------------------------------------

    def _comprehension(self, node: Comprehension) -> Closure:
        over = self.compile(node.range)
        init = self.compile(node.init)
        if node.binds:
            return self._bound(node, init)
        self._scopes.append({node.accumulator: self._slot()})
        accumulated = self._scopes[-1][node.accumulator]
        names = {node.var: self._slot()} | ({node.var2: self._slot()} if node.var2 else {})
        self._scopes.append(names)
        slots = tuple(names.values())
        step = node.step
        assert isinstance(step, Call)
        elements = _pairs if node.var2 else _singles
        if step.name in ("_&&_", "_||_"):
            predicate = self.compile(step.args[1])
            self._leave(2)
            return _quantified(over, elements, slots, predicate, ends_at=step.name == "_||_")
        only, step = (step.args[0], step.args[1]) if step.name == "_?_:_" else (None, step)
        assert isinstance(step, Call)
        condition = self.compile(only) if only is not None else None
        if step.name == "_+_" and isinstance(step.args[1], ListNode):
            made = self.compile(step.args[1].elements[0])
            self._leave(2)
            return _listed(over, elements, slots, condition, made)
        if step.name == "_+_":
            self._leave(2)
            assert condition is not None
            return _counted(over, elements, slots, condition)
        stepped = self.compile(step)
        self._leave(2)
        return _folded(over, elements, (*slots, accumulated), init, condition, stepped)

    def _leave(self, count: int) -> None:
        del self._scopes[-count:]

    def _bound(self, node: Comprehension, init: Closure) -> Closure:
        slot = self._slot()
        self._scopes.append({node.accumulator: slot})
        result = self.compile(node.result)
        self._leave(1)

        def bind(run: _Run) -> Any:
            run.cost += costs.LIST_COST
            run.variables[slot] = init(run)
            return result(run)

        return bind


def _is_index(node: Node) -> bool:
    return isinstance(node, Call) and node.name in ("_[_]", "_[?_]", "_?._")


def _texts_of(node: ListNode) -> frozenset[str] | None:
    """The elements, if all are literal texts."""
    values = [each.value for each in node.elements if isinstance(each, Literal) and type(each.value) is str]
    return frozenset(values) if len(values) == len(node.elements) and not node.optional else None


def _in_texts(value: Closure, known: frozenset[str]) -> Closure:
    def contained(run: _Run) -> bool:
        found = value(run)
        return type(found) is str and found in known

    return contained


def _total(node: Call) -> Callable[[Any], Any]:
    overload = node.overloads[0] if len(node.overloads) == 1 else ""
    return lambda values: total(overload, values)


def _with_context(function: Callable[..., Any], args: list[Closure]) -> Closure:
    def call(run: _Run) -> Any:
        run.cost += 1
        return function(run.context, *[each(run) for each in args])

    return call


def _applied(
    function: Callable[..., Any], args: list[Closure], cost: Callable[[tuple[Any, ...], Any], int] | None
) -> Closure:
    if len(args) == 1 and cost is None:
        only = args[0]

        def unary(run: _Run) -> Any:
            run.cost += 1
            return function(only(run))

        return unary
    if len(args) == 2 and cost is None:
        first, second = args

        def binary(run: _Run) -> Any:
            run.cost += 1
            return function(first(run), second(run))

        return binary

    def call(run: _Run) -> Any:
        values = tuple([each(run) for each in args])
        result = function(*values)
        run.cost += 1 if cost is None else cost(values, result)
        return result

    return call


# --- fields and elements ----------------------------------------------------------------------------------------------


def _field(value: Any, field: str) -> Any:
    if type(value) is dict:
        if field in value:
            return value[field]
    elif isinstance(value, Container) and value.is_map:
        found, there = lookup(value, field)
        if there:
            return found
    raise CelError(f"no such key: {field}")


def _present(value: Any, field: str) -> Any:
    if type(value) is Optional:
        return value.present and _present(value.value, field)
    if type(value) is dict:
        return field in value
    return isinstance(value, Container) and value.is_map and bool(lookup(value, field)[1])


def _optional_field(value: Any, field: str) -> Optional:
    return Optional(_field(value, field)) if _present(value, field) else NONE


def _index(value: Any, key: Any) -> tuple[Any, bool]:
    """(element or value, is it there). Raises CelError for what cannot be an index."""
    if is_map(value):
        found: tuple[Any, bool] = lookup(value, key)
        return found
    if is_list(value):
        if type(key) is float and key.is_integer():
            key = int(key)
        if type(key) not in (int, Uint):
            raise CelError(f"unsupported index type '{type_name(key)}' in list")
        return (value[key], True) if 0 <= key < len(value) else (None, False)
    return None, False


def _indexed(args: list[Closure]) -> Closure:
    of, by = args

    def index(run: _Run) -> Any:
        value, key = of(run), by(run)
        run.cost += 1
        if type(value) is Optional:
            found, there = _index(value.value, key) if value.present else (None, False)
            return Optional(found) if there else NONE
        found, there = _index(value, key)
        if not there:
            told = "index out of bounds" if is_list(value) else "no such key"
            raise CelError(f"{told}: {shown(key)}")
        return found

    return index


def _indexed_if_present(args: list[Closure]) -> Closure:
    of, by = args

    def index(run: _Run) -> Any:
        value, key = of(run), by(run)
        run.cost += 1
        if type(value) is Optional:
            if not value.present:
                return NONE
            value = value.value
        found, there = _index(value, key)
        return Optional(found) if there else NONE

    return index


def _selected_if_present(args: list[Closure]) -> Closure:
    of, name = args

    def select(run: _Run) -> Any:
        value, field = of(run), name(run)
        run.cost += 1
        if type(value) is Optional:
            return _optional_field(value.value, field) if value.present else NONE
        return _optional_field(value, field)

    return select


# --- logic ------------------------------------------------------------------------------------------------------------


def _logical(args: list[Closure], *, decides: bool) -> Closure:
    """&& (decided by False) or || (by True): an error counts only if the other side does not decide."""
    left, right = args

    def either(run: _Run) -> Any:
        error: CelError | None = None
        try:
            value = left(run)
            if value is decides:
                return decides
            if type(value) is not bool:
                error = no_overload()
        except CelError as failed:
            error = failed
        value = right(run) if error is None else _attempted(right, run)
        if value is decides:
            return decides
        if error is not None:
            raise error
        if type(value) is not bool:
            raise no_overload()
        return value

    return either


def _attempted(closure: Closure, run: _Run) -> Any:
    try:
        return closure(run)
    except CelError:
        return None


def _negated(args: list[Closure]) -> Closure:
    operand = args[0]

    def negate(run: _Run) -> bool:
        run.cost += 1
        value = operand(run)
        if type(value) is not bool:
            raise no_overload()
        return not value

    return negate


def _conditional(args: list[Closure]) -> Closure:
    condition, then, otherwise = args

    def choose(run: _Run) -> Any:
        value = condition(run)
        if value is True:
            return then(run)
        if value is False:
            return otherwise(run)
        raise no_overload()

    return choose


def _equality(args: list[Closure], *, same: bool) -> Closure:
    left, right = args

    def compare(run: _Run) -> bool:
        one, other = left(run), right(run)
        run.cost += costs.equality(one, other)
        return equal(one, other) is same

    return compare


def _or_optional(args: list[Closure]) -> Closure:
    left, right = args

    def choose(run: _Run) -> Any:
        value = left(run)
        if type(value) is not Optional:
            return value
        return value if value.present else right(run)

    return choose


def _or_value(args: list[Closure]) -> Closure:
    left, right = args

    def choose(run: _Run) -> Any:
        value = left(run)
        if type(value) is not Optional:
            return value
        return value.value if value.present else right(run)

    return choose


_SPECIAL: dict[str, Callable[[list[Closure]], Closure]] = {
    "_&&_": lambda args: _logical(args, decides=False),
    "_||_": lambda args: _logical(args, decides=True),
    "!_": _negated,
    "_?_:_": _conditional,
    "_==_": lambda args: _equality(args, same=True),
    "_!=_": lambda args: _equality(args, same=False),
    "_[_]": _indexed,
    "_[?_]": _indexed_if_present,
    "_?._": _selected_if_present,
    "or": _or_optional,
    "orValue": _or_value,
}


# --- loops ------------------------------------------------------------------------------------------------------------


def _singles(value: Any) -> Iterable[tuple[Any, ...]]:
    if is_list(value) or is_map(value):
        return ((each,) for each in value)
    raise CelError(f"got '{_GO_TYPES.get(type(value), type_name(value))}', expected iterable type")


_GO_TYPES = {
    bool: "types.Bool",
    int: "types.Int",
    Uint: "types.Uint",
    float: "types.Double",
    str: "types.String",
    bytes: "types.Bytes",
    type(None): "types.Null",
}


def _pairs(value: Any) -> Iterable[tuple[Any, ...]]:
    if is_list(value):
        return enumerate(value)
    if is_map(value):
        return ((key, lookup(value, key)[0]) for key in value)
    raise CelError(f"unsupported comprehension range type: {type_name(value)}")


_Elements: TypeAlias = Callable[[Any], Iterable[tuple[Any, ...]]]


def _set(run: _Run, slots: tuple[int, ...], element: tuple[Any, ...]) -> None:
    """Give the loop's variables their values, and see whether the loop has cost too much."""
    if run.cost > run.limit:
        raise CostExceeded
    for slot, value in zip(slots, element, strict=True):
        run.variables[slot] = value


def _quantified(
    over: Closure, elements: _Elements, slots: tuple[int, ...], predicate: Closure, *, ends_at: bool
) -> Closure:
    """all(), which ends at False, or exists(), which ends at True."""
    each_costs = 4 if ends_at else 3

    def quantify(run: _Run) -> Any:
        error: CelError | None = None
        run.cost += 1
        for element in elements(over(run)):
            _set(run, slots, element)
            run.cost += each_costs
            try:
                value = predicate(run)
            except CelError as failed:
                error = error or failed
                continue
            if value is ends_at:
                run.cost += each_costs - 1
                return ends_at
            if type(value) is not bool:
                error = error or no_overload()
        if error is not None:
            raise error
        return not ends_at

    return quantify


def _counted(over: Closure, elements: _Elements, slots: tuple[int, ...], condition: Closure) -> Closure:
    """exists_one()"""

    def count(run: _Run) -> bool:
        found = 0
        run.cost += 2
        for element in elements(over(run)):
            _set(run, slots, element)
            run.cost += 1
            value = condition(run)
            if value is True:
                run.cost += 1
                found += 1
            elif value is not False:
                raise no_overload()
        return found == 1

    return count


def _passes(condition: Closure, run: _Run) -> bool:
    value = condition(run)
    if type(value) is not bool:
        raise no_overload()
    return value


def _listed(
    over: Closure, elements: _Elements, slots: tuple[int, ...], condition: Closure | None, made: Closure
) -> Closure:
    """map(), filter(), transformList()"""

    def collect(run: _Run) -> list[Any]:
        found: list[Any] = []
        run.cost += 1 + costs.LIST_COST
        for element in elements(over(run)):
            _set(run, slots, element)
            run.cost += 1
            if condition is None or _passes(condition, run):
                run.cost += 1 + costs.LIST_COST
                found.append(made(run))
        return found

    return collect


def _folded(
    over: Closure,
    elements: _Elements,
    slots: tuple[int, ...],
    init: Closure,
    condition: Closure | None,
    step: Closure,
) -> Closure:
    """transformMap(), transformMapEntry(); the last slot is the accumulator's."""
    accumulated = slots[-1]

    def fold(run: _Run) -> Any:
        run.cost += 1
        run.variables[accumulated] = init(run)
        for element in elements(over(run)):
            _set(run, slots[:-1], element)
            if condition is None or _passes(condition, run):
                run.variables[accumulated] = step(run)
        return run.variables[accumulated]

    return fold
