"""Expressions that can be run: nodes become closures, which count what they cost.

An error ends an expression as an exception, but for && and ||, which look whether the other side decides, and so do
all() and exists(). A cost above the limit ends it whatever stands around. Source: cel-go interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeloop.devcluster.languages.cel import runtime_costs
from kubeloop.devcluster.languages.cel.checker import check
from kubeloop.devcluster.languages.cel.closures import (
    INT_ARITHMETIC,
    MISSING,
    NUMBER_COMPARISONS,
    OPERATOR_CLOSURES,
    SAME_NUMBERS,
    SAME_SCALARS,
    Closure,
    Constant,
    Run,
    all_or_exists,
    constant_pattern_match,
    element_pairs,
    exists_one,
    fold_map,
    function_call,
    get_field,
    get_optional_field,
    has_field,
    in_string_set,
    int_arithmetic,
    library_call,
    map_or_filter,
    no_matching_overload,
    number_comparison,
    scalar_equality,
    single_elements,
)
from kubeloop.devcluster.languages.cel.declarations import Overload
from kubeloop.devcluster.languages.cel.list_functions import total
from kubeloop.devcluster.languages.cel.parser import parse
from kubeloop.devcluster.languages.cel.schema_values import TypedMap
from kubeloop.devcluster.languages.cel.standard_functions import FUNCTIONS
from kubeloop.devcluster.languages.cel.string_functions import compiled_pattern
from kubeloop.devcluster.languages.cel.syntax import (
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
    Struct,
)
from kubeloop.devcluster.languages.cel.types import Type
from kubeloop.devcluster.languages.cel.values import (
    NONE,
    CelError,
    CostExceeded,
    NoOverload,
    Optional,
    TypeValue,
    Uint,
    display,
    type_name,
)

PER_CALL_LIMIT = 1_000_000
COST_LIMIT_EXCEEDED = "operation cancelled: actual cost limit exceeded"


_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})
_WITH_PATTERNS = frozenset({"matches", "find", "findAll"})
_TELL_NO_TYPES = frozenset({"contains", "endsWith", "matches", "startsWith"})
"""Functions that do not say to whom they do not apply; nor do operators."""


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """value: if `error` is "". cost: also of what has failed."""

    value: Any
    error: str
    cost: int


@dataclass(frozen=True, slots=True)
class Library:
    """Functions of one's own. They are called with the context that a run is given, and then the arguments.

    costs: what calls cost, by arguments and result; 1 for those that are not here. structs: types of structs that
    expressions may make, by their names; make: what is made, by that name and the fields.
    """

    overloads: Mapping[str, list[Overload]]
    functions: Mapping[str, Callable[..., Any]]
    costs: Mapping[str, Callable[[tuple[Any, ...], Any], int]] = field(default_factory=dict)
    structs: Callable[[str], Type | None] = lambda _name: None
    make: Callable[[str, dict[str, Any]], Any] | None = None


_NONE_MORE = Library({}, {})


class Program:
    """A checked expression. type: of what it makes; node: its tree, for estimates."""

    def __init__(self, source: str, variables: Mapping[str, Type], library: Library = _NONE_MORE) -> None:
        """Raises ExpressionError and InstantiationError."""
        self.source = source
        try:
            self.node = parse(source)
            self.type = check(source, self.node, variables, library.overloads, library.structs)
            self._names = list(variables)
            compiler = _Compiler(self._names, library)
            self._closure = compiler.compile(self.node)
        except RecursionError:
            raise ExpressionError(source, [Issue(-1, "expression recursion limit exceeded: 250")]) from None
        self._slots = compiler.count
        self.used = frozenset(compiler.used)
        """The variables that it names."""

    def run(self, values: Mapping[str, Any], limit: float = PER_CALL_LIMIT, context: Any = None) -> EvaluationResult:
        """Evaluate with these values of the variables; those that are left out have none.

        limit: of the cost, where it is lower than PER_CALL_LIMIT.
        """
        limit = min(limit, PER_CALL_LIMIT)
        variables = [values.get(name, MISSING) for name in self._names]
        variables += [None] * (self._slots - len(variables))
        run = Run(variables, limit, context)
        try:
            value = self._closure(run)
        except CelError as error:
            return EvaluationResult(None, str(error), run.cost)
        except (CostExceeded, RecursionError, MemoryError):
            return EvaluationResult(None, COST_LIMIT_EXCEEDED, run.cost)
        return (
            EvaluationResult(None, COST_LIMIT_EXCEEDED, run.cost)
            if run.cost > limit
            else EvaluationResult(value, "", run.cost)
        )


class _Compiler:
    def __init__(self, names: list[str], library: Library) -> None:
        self._library = library
        self._scopes: list[dict[str, int]] = [{name: number for number, name in enumerate(names)}]
        self.count = len(names)
        self.used: set[str] = set()

    def compile(self, node: Node) -> Closure:
        match node:
            case Literal():
                return Constant(node.value)
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
            case Struct():
                return self._struct(node)

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
            return Constant(TypeValue(node.type_value.name))
        if number == self._scopes[0].get(name):
            self.used.add(name)
        slot = number

        def ident(run: Run) -> Any:
            run.cost += 1
            value = run.variables[slot]
            if value is MISSING:
                raise CelError(f"no such attribute(s): {name}")
            return value

        return ident

    def _select(self, node: Select) -> Closure:
        if node.type_value is not None:
            return Constant(TypeValue(node.type_value.name))
        operand, field = self.compile(node.operand), node.field
        if node.test:

            def has(run: Run) -> Any:
                return has_field(operand(run), field)

            return has
        extra = 1 if isinstance(node.operand, Ident | Select) or _is_index(node.operand) else 2

        def select(run: Run) -> Any:
            value = operand(run)
            run.cost += extra
            if type(value) is TypedMap and (reader := value.view.reader(field)) is not None:
                data = value.data.get(reader[0])
                if data is None:
                    raise CelError(f"no such key: {field}")
                return reader[1](data)
            if type(value) is Optional:
                return get_optional_field(value.value, field) if value.present else NONE
            return get_field(value, field)

        return select

    # --- calls ----------------------------------------------------------------------------------------------------

    def _call(self, node: Call) -> Closure:
        args = [self.compile(each) for each in ([node.target] if node.target is not None else []) + node.args]
        if node.name in self._library.functions:
            function, cost = self._library.functions[node.name], self._library.costs.get(node.name)
            return library_call(function, args, cost, node.name)
        kinds = [each.type.kind for each in node.args] if node.target is None and len(args) == 2 else []
        if kinds in SAME_NUMBERS and node.name in NUMBER_COMPARISONS:
            return number_comparison(args, NUMBER_COMPARISONS[node.name])
        if kinds == ["int", "int"] and node.name in INT_ARITHMETIC:
            return int_arithmetic(args, INT_ARITHMETIC[node.name])
        if node.name in ("_==_", "_!=_") and kinds in SAME_SCALARS:
            return scalar_equality(args, same=node.name == "_==_")
        special = OPERATOR_CLOSURES.get(node.name)
        if special is not None and (node.name not in ("or", "orValue") or len(args) == 2):
            return special(args)
        if node.name == "@in" and isinstance(node.args[1], ListNode):
            known = _texts_of(node.args[1])
            if known is not None:
                return in_string_set(args[0], known)
        function = FUNCTIONS[node.name] if node.name != "sum" else _total(node)
        if args and isinstance(args[0], Constant) and node.name in _CONVERSIONS:
            try:
                return Constant(function(args[0].value))
            except NoOverload:
                raise InstantiationError(str(no_matching_overload(node.name, args[0].value))) from None
            except CelError as error:
                raise InstantiationError(str(error)) from None
        name = "" if node.name in _TELL_NO_TYPES or not node.name[0].isalpha() else node.name
        if node.name in _WITH_PATTERNS and isinstance(args[1], Constant) and type(args[1].value) is str:
            try:
                pattern = compiled_pattern(args[1].value)
            except CelError as error:
                raise InstantiationError(str(error)) from None
            if node.name == "matches":
                return constant_pattern_match(args[0], pattern, len(args[1].value))
            name = ""
        return function_call(function, args, runtime_costs.CALLS.get(node.name), name)

    # --- aggregates -----------------------------------------------------------------------------------------------

    def _list(self, node: ListNode) -> Closure:
        elements, optional = [self.compile(each) for each in node.elements], node.optional
        if not optional:
            if all(isinstance(each, Constant) for each in elements):
                return Constant([each.value for each in elements if isinstance(each, Constant)])

            def make(run: Run) -> Any:
                run.cost += runtime_costs.LIST_CREATE_COST
                return [each(run) for each in elements]

            return make

        def make_some(run: Run) -> Any:
            run.cost += runtime_costs.LIST_CREATE_COST
            found = []
            for index, each in enumerate(elements):
                value = each(run)
                if index in optional:
                    if type(value) is not Optional:
                        raise CelError(
                            f"cannot initialize optional list element from non-optional value {display(value)}"
                        )
                    if not value.present:
                        continue
                    value = value.value
                found.append(value)
            return found

        return make_some

    def _map(self, node: MapNode) -> Closure:
        entries = [(self.compile(each.key), self.compile(each.value), each.optional) for each in node.entries]

        def make(run: Run) -> Any:
            run.cost += runtime_costs.MAP_CREATE_COST
            found: dict[Any, Any] = {}
            for key_of, value_of, optional in entries:
                key, value = key_of(run), value_of(run)
                if type(key) not in (str, int, Uint, bool, float, type(None)):
                    raise CelError(f"unsupported key type: {type_name(key)}")
                if optional:
                    if type(value) is not Optional:
                        told = "cannot initialize optional entry"
                        raise CelError(f"{told} '{display(key)}' from non-optional value {display(value)}")
                    if not value.present:
                        continue
                    value = value.value
                found[key] = value
            return found

        return make

    def _struct(self, node: Struct) -> Closure:
        create, name = self._library.make, node.type.name
        assert create is not None, "a library that knows structs makes them"
        fields = [(str(_literal(each.key)), self.compile(each.value), each.optional) for each in node.fields]

        def make(run: Run) -> Any:
            run.cost += runtime_costs.STRUCT_CREATE_COST
            found: dict[str, Any] = {}
            for key, value_of, optional in fields:
                value = value_of(run)
                if optional:
                    if type(value) is not Optional:
                        told = f"cannot initialize optional entry '{key}' from non-optional value {display(value)}"
                        raise CelError(told)
                    if not value.present:
                        continue
                    value = value.value
                found[key] = value
            return create(name, found)

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
        elements = element_pairs if node.var2 else single_elements
        if step.name in ("_&&_", "_||_"):
            predicate = self.compile(step.args[1])
            self._leave(2)
            return all_or_exists(over, elements, slots, predicate, ends_at=step.name == "_||_")
        only, step = (step.args[0], step.args[1]) if step.name == "_?_:_" else (None, step)
        assert isinstance(step, Call)
        condition = self.compile(only) if only is not None else None
        if step.name == "_+_" and isinstance(step.args[1], ListNode):
            made = self.compile(step.args[1].elements[0])
            self._leave(2)
            return map_or_filter(over, elements, slots, condition, made)
        if step.name == "_+_":
            self._leave(2)
            assert condition is not None
            return exists_one(over, elements, slots, condition)
        stepped = self.compile(step)
        self._leave(2)
        return fold_map(over, elements, (*slots, accumulated), init, condition, stepped)

    def _leave(self, count: int) -> None:
        del self._scopes[-count:]

    def _bound(self, node: Comprehension, init: Closure) -> Closure:
        slot = self._slot()
        self._scopes.append({node.accumulator: slot})
        result = self.compile(node.result)
        self._leave(1)

        def bind(run: Run) -> Any:
            run.cost += runtime_costs.LIST_CREATE_COST
            run.variables[slot] = init(run)
            return result(run)

        return bind


def _literal(node: Node) -> Any:
    assert isinstance(node, Literal), node
    return node.value


def _is_index(node: Node) -> bool:
    return isinstance(node, Call) and node.name in ("_[_]", "_[?_]", "_?._")


def _texts_of(node: ListNode) -> frozenset[str] | None:
    """The elements, if all are literal texts."""
    values = [each.value for each in node.elements if isinstance(each, Literal) and type(each.value) is str]
    return frozenset(values) if len(values) == len(node.elements) and not node.optional else None


def _total(node: Call) -> Callable[[Any], Any]:
    overload = node.overloads[0] if len(node.overloads) == 1 else ""
    return lambda values: total(overload, values)
