"""Compiled expressions: nodes become closures that count their cost.

A CelError ends the evaluation, except that &&, ||, all() and exists() absorb it if another operand decides. Exceeding
the cost limit always ends it. Source: cel-go interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from kubeloop.cel.checker import check
from kubeloop.cel.closures import (
    INT_ARITHMETIC,
    MISSING,
    NUMBER_COMPARISONS,
    OPERATOR_CLOSURES,
    SAME_NUMBERS,
    SAME_SCALARS,
    Closure,
    ConstantClosure,
    EvaluationRun,
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
from kubeloop.cel.costs import runtime_costs
from kubeloop.cel.declarations import Overload, overloads_by_name
from kubeloop.cel.functions.list_functions import sum_values
from kubeloop.cel.functions.standard_functions import FUNCTIONS
from kubeloop.cel.functions.string_functions import compiled_pattern
from kubeloop.cel.parser import parse
from kubeloop.cel.schema_values import TypedMap
from kubeloop.cel.syntax import (
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
    StructLiteral,
)
from kubeloop.cel.types import Type
from kubeloop.cel.values import (
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
_REGEX_FUNCTIONS = frozenset({"matches", "find", "findAll"})
_ERROR_OMITS_TYPES = frozenset({"contains", "endsWith", "matches", "startsWith"})
"""Functions whose "no such overload" error names neither the function nor the types; the same holds for operators."""


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Result of an evaluation. `value` is valid if `error` is ""; `cost` is counted for failed evaluations, too."""

    value: Any
    error: str
    cost: int


@dataclass(frozen=True)
class Library:
    """Functions and macros in addition to those of this package.

    overloads: those of the functions below, by name. functions: called with the arguments; they cost what
    runtime_costs.CALLS says. context_functions: called with the run's context, followed by the arguments; `costs` has
    their cost functions of (arguments, result), others cost 1. structs: returns the type of a struct that expressions
    may create, by name. create_struct: creates a struct from its name and fields. bindings: cel.bind() is a macro.
    """

    overloads: Mapping[str, Sequence[Overload]] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    context_functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    costs: Mapping[str, Callable[[tuple[Any, ...], Any], int]] = field(default_factory=dict)
    structs: Callable[[str], Type | None] = lambda _name: None
    create_struct: Callable[[str, dict[str, Any]], Any] | None = None
    bindings: bool = False

    def extended(
        self,
        overloads: Mapping[str, Sequence[Overload]],
        context_functions: Mapping[str, Callable[..., Any]],
        costs: Mapping[str, Callable[[tuple[Any, ...], Any], int]] | None = None,
        **changes: Any,
    ) -> Library:
        """Return this library with further functions. changes: new values of `structs` and the fields below it."""
        return replace(
            self,
            overloads={**self.overloads, **overloads},
            context_functions={**self.context_functions, **context_functions},
            costs={**self.costs, **(costs or {})},
            **changes,
        )

    @cached_property
    def all_overloads(self) -> Mapping[str, Sequence[Overload]]:
        """Overloads of this package and of the library, by function name."""
        standard = overloads_by_name()
        return standard | {name: [*standard.get(name, ()), *more] for name, more in self.overloads.items()}

    @cached_property
    def all_functions(self) -> Mapping[str, Callable[..., Any]]:
        """Functions of this package and of the library that need no context, by name."""
        return {**FUNCTIONS, **self.functions}


_EMPTY_LIBRARY = Library()


class CelProgram:
    """A compiled expression. `type`: result type; `node`: syntax tree, for cost estimates."""

    def __init__(self, source: str, variables: Mapping[str, Type], library: Library = _EMPTY_LIBRARY) -> None:
        """Compile the expression. Raises ExpressionError and InstantiationError."""
        self.source = source
        try:
            self.node = parse(source, bindings=library.bindings)
            self.type = check(source, self.node, variables, library.all_overloads, library.structs)
            self._names = list(variables)
            compiler = _Compiler(self._names, library)
            self._closure = compiler.compile(self.node)
        except RecursionError:
            raise ExpressionError(source, [Issue(-1, "expression recursion limit exceeded: 250")]) from None
        self._slots = compiler.count
        self.used_variables = frozenset(compiler.used_variables)
        """Names of the variables that the expression refers to."""

    def run(self, values: Mapping[str, Any], limit: float = PER_CALL_LIMIT, context: Any = None) -> EvaluationResult:
        """Evaluate with these variable values; a reference to a missing one is an error.

        limit: cost limit; at most PER_CALL_LIMIT applies.
        """
        limit = min(limit, PER_CALL_LIMIT)
        variables = [values.get(name, MISSING) for name in self._names]
        variables += [None] * (self._slots - len(variables))
        run = EvaluationRun(variables, limit, context)
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
        self.used_variables: set[str] = set()

    def compile(self, node: Node) -> Closure:
        match node:
            case Literal():
                return ConstantClosure(node.value)
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
            case StructLiteral():
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
            return ConstantClosure(TypeValue(node.type_value.name))
        if number == self._scopes[0].get(name):
            self.used_variables.add(name)
        slot = number

        def ident(run: EvaluationRun) -> Any:
            run.cost += 1
            value = run.variables[slot]
            if value is MISSING:
                raise CelError(f"no such attribute(s): {name}")
            return value

        return ident

    def _select(self, node: Select) -> Closure:
        if node.type_value is not None:
            return ConstantClosure(TypeValue(node.type_value.name))
        operand, field = self.compile(node.operand), node.field
        if node.test:

            def has(run: EvaluationRun) -> Any:
                return has_field(operand(run), field)

            return has
        extra = 1 if isinstance(node.operand, Ident | Select) or _is_index(node.operand) else 2

        def select(run: EvaluationRun) -> Any:
            value = operand(run)
            run.cost += extra
            if type(value) is TypedMap and (reader := value.view.field_reader(field)) is not None:
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
        args = [self.compile(argument) for argument in ([node.target] if node.target is not None else []) + node.args]
        if node.name in self._library.context_functions:
            function, cost = self._library.context_functions[node.name], self._library.costs.get(node.name)
            return library_call(function, args, cost, node.name)
        kinds = [argument.type.kind for argument in node.args] if node.target is None and len(args) == 2 else []
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
            strings = _string_elements(node.args[1])
            if strings is not None:
                return in_string_set(args[0], strings)
        function = self._library.all_functions[node.name] if node.name != "sum" else _sum_function(node)
        if args and isinstance(args[0], ConstantClosure) and node.name in _CONVERSIONS:
            try:
                return ConstantClosure(function(args[0].value))
            except NoOverload:
                raise InstantiationError(str(no_matching_overload(node.name, args[0].value))) from None
            except CelError as error:
                raise InstantiationError(str(error)) from None
        name = "" if node.name in _ERROR_OMITS_TYPES or not node.name[0].isalpha() else node.name
        if node.name in _REGEX_FUNCTIONS and isinstance(args[1], ConstantClosure) and type(args[1].value) is str:
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
        elements, optional = [self.compile(element) for element in node.elements], node.optional
        if not optional:
            if all(isinstance(element, ConstantClosure) for element in elements):
                return ConstantClosure([element.value for element in elements if isinstance(element, ConstantClosure)])

            def create_struct(run: EvaluationRun) -> Any:
                run.cost += runtime_costs.LIST_CREATE_COST
                return [element(run) for element in elements]

            return create_struct

        def make_some(run: EvaluationRun) -> Any:
            run.cost += runtime_costs.LIST_CREATE_COST
            result: list[Any] = []
            for index, element in enumerate(elements):
                value = element(run)
                result += _optional_part(value, "list element") if index in optional else (value,)
            return result

        return make_some

    def _map(self, node: MapNode) -> Closure:
        entries = [(self.compile(entry.key), self.compile(entry.value), entry.optional) for entry in node.entries]

        def create_struct(run: EvaluationRun) -> Any:
            run.cost += runtime_costs.MAP_CREATE_COST
            result: dict[Any, Any] = {}
            for key_of, value_of, optional in entries:
                key, value = key_of(run), value_of(run)
                if type(key) not in (str, int, Uint, bool, float, type(None)):
                    raise CelError(f"unsupported key type: {type_name(key)}")
                for part in _optional_part(value, f"entry '{display(key)}'") if optional else (value,):
                    result[key] = part
            return result

        return create_struct

    def _struct(self, node: StructLiteral) -> Closure:
        create, name = self._library.create_struct, node.type.name
        assert create is not None, "a library that knows structs makes them"
        fields = [(str(_literal(entry.key)), self.compile(entry.value), entry.optional) for entry in node.fields]

        def create_struct(run: EvaluationRun) -> Any:
            run.cost += runtime_costs.STRUCT_CREATE_COST
            values: dict[str, Any] = {}
            for key, value_of, optional in fields:
                value = value_of(run)
                for part in _optional_part(value, f"entry '{key}'") if optional else (value,):
                    values[key] = part
            return create(name, values)

        return create_struct

    # --- comprehensions -------------------------------------------------------------------------------------------

    def _comprehension(self, node: Comprehension) -> Closure:
        over = self.compile(node.range)
        init = self.compile(node.init)
        if node.binds:
            return self._bind(node, init)
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
        filter_, step = (step.args[0], step.args[1]) if step.name == "_?_:_" else (None, step)
        assert isinstance(step, Call)
        condition = self.compile(filter_) if filter_ is not None else None
        if step.name == "_+_" and isinstance(step.args[1], ListNode):
            transform = self.compile(step.args[1].elements[0])
            self._leave(2)
            return map_or_filter(over, elements, slots, condition, transform)
        if step.name == "_+_":
            self._leave(2)
            assert condition is not None
            return exists_one(over, elements, slots, condition)
        stepped = self.compile(step)
        self._leave(2)
        return fold_map(over, elements, (*slots, accumulated), init, condition, stepped)

    def _leave(self, count: int) -> None:
        del self._scopes[-count:]

    def _bind(self, node: Comprehension, init: Closure) -> Closure:
        slot = self._slot()
        self._scopes.append({node.accumulator: slot})
        result = self.compile(node.result)
        self._leave(1)

        def bind(run: EvaluationRun) -> Any:
            run.cost += runtime_costs.LIST_CREATE_COST
            run.variables[slot] = init(run)
            return result(run)

        return bind


def _literal(node: Node) -> Any:
    assert isinstance(node, Literal), node
    return node.value


def _optional_part(value: Any, where: str) -> tuple[Any, ...]:
    """Return the value of an optional entry of a list, map or struct; () if it is absent. Raises CelError."""
    if type(value) is not Optional:
        raise CelError(f"cannot initialize optional {where} from non-optional value {display(value)}")
    return (value.value,) if value.present else ()


def _is_index(node: Node) -> bool:
    return isinstance(node, Call) and node.name in ("_[_]", "_[?_]", "_?._")


def _string_elements(node: ListNode) -> frozenset[str] | None:
    """Return the elements if all are string literals, else None."""
    values = [element.value for element in node.elements if isinstance(element, Literal) and type(element.value) is str]
    return frozenset(values) if len(values) == len(node.elements) and not node.optional else None


def _sum_function(node: Call) -> Callable[[Any], Any]:
    overload = node.overloads[0] if len(node.overloads) == 1 else ""
    return lambda values: sum_values(overload, values)
