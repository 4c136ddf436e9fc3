"""Type checker: the type of each node and the overloads of each call. Source: cel-go checker/checker.go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kubeloop.cel.declarations import Overload
from kubeloop.cel.syntax import (
    Call,
    Comprehension,
    ExpressionError,
    Ident,
    Issue,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    StructLiteral,
    walk,
)
from kubeloop.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NAMED_TYPES,
    NULL,
    RESERVED,
    STRING,
    UINT,
    Type,
    are_assignable,
    is_assignable,
    list_of,
    map_of,
    most_general,
    optional_of,
    substitute,
    type_of_type,
    unwrap_optional,
)
from kubeloop.cel.validators import check_literals
from kubeloop.cel.values import Uint

_LITERALS = {bool: BOOL, bytes: BYTES, float: DOUBLE, int: INT, type(None): NULL, str: STRING, Uint: UINT}


def check(
    source: str,
    node: Node,
    variables: Mapping[str, Type],
    functions: Mapping[str, Sequence[Overload]],
    structs: Callable[[str], Type | None],
) -> Type:
    """Store types and overloads in the nodes and return the type of the expression. Raises ExpressionError.

    functions: overloads by function name. structs: returns the struct type of a name, or None.
    """
    checker = _Checker(variables, functions, structs)
    checker.check(node)
    if not checker.issues:
        checker.finish(node)
        checker.issues += check_literals(node)
    if checker.issues:
        raise ExpressionError(source, checker.issues)
    return node.type


class _Checker:
    def __init__(
        self,
        variables: Mapping[str, Type],
        functions: Mapping[str, Sequence[Overload]],
        structs: Callable[[str], Type | None],
    ) -> None:
        self._functions = functions
        self._structs = structs
        self._scopes: list[dict[str, Type]] = [dict(variables)]
        self._substitution: dict[str, Type] = {}
        self._fresh = 0
        self.issues: list[Issue] = []

    def finish(self, node: Node) -> None:
        """Replace unresolved type parameters by dyn."""
        for descendant in walk(node):
            descendant.type = substitute(self._substitution, descendant.type, to_dyn=True)

    def check(self, node: Node) -> None:
        match node:
            case Literal():
                node.type = _LITERALS[type(node.value)]
            case Ident():
                self._ident(node)
            case Select():
                self._select(node)
            case Call():
                self._call(node)
            case ListNode():
                self._list(node)
            case MapNode():
                self._map(node)
            case StructLiteral():
                self._struct(node)
            case Comprehension():
                self._comprehension(node)

    # --- helpers --------------------------------------------------------------------------------------------------

    def _report(self, node: Node, message: str) -> None:
        self.issues.append(Issue(node.offset, message))

    def _fresh_parameter(self) -> Type:
        self._fresh += 1
        return Type("param", f"_var{self._fresh - 1}")

    def _assign(self, one: Type, other: Type) -> bool:
        substitution = is_assignable(self._substitution, one, other)
        if substitution is not None:
            self._substitution = substitution
        return substitution is not None

    def _mismatch(self, node: Node, expected: Type, actual: Type) -> None:
        self._report(node, f"expected type '{expected}' but found '{actual}'")

    def _common_type(self, before: Type | None, current: Type) -> Type:
        """Return the common type of consecutive elements, or dyn; validators.py reports mixed types."""
        if before is None:
            return current
        return most_general(before, current) if self._assign(before, current) else DYN

    # --- names ----------------------------------------------------------------------------------------------------

    def _resolve_name(self, name: str) -> Type | None:
        scopes = self._scopes[:1] if name.startswith(".") else self._scopes
        for scope in reversed(scopes):
            if name.lstrip(".") in scope:
                return scope[name.lstrip(".")]
        return None

    def _ident(self, node: Ident) -> None:
        type_ = self._resolve_name(node.name)
        if type_ is None and node.name.lstrip(".") in NAMED_TYPES:
            node.type_value = NAMED_TYPES[node.name.lstrip(".")]
            type_ = type_of_type(node.type_value)
        if type_ is None:
            self._report(node, f"undeclared reference to '{node.name}' (in container '')")
            type_ = ERROR
        node.type = type_

    def _select(self, node: Select) -> None:
        name = _qualified(node)
        if name is not None and name in NAMED_TYPES and self._resolve_name(name.partition(".")[0]) is None:
            node.type_value = NAMED_TYPES[name]
            node.type = type_of_type(node.type_value)
            return
        result = self._field(node, node.operand, node.field)
        node.type = BOOL if node.test else substitute(self._substitution, result)

    def _field(self, node: Node, operand: Node, name: str, *, optional: bool = False) -> Type:
        self.check(operand)
        of = substitute(self._substitution, operand.type)
        target, was_optional = unwrap_optional(of)
        result = ERROR
        if target.kind == "map":
            result = target.parameters[1]
        elif target.kind == "struct":
            fields = target.fields or {}
            field_type = fields.get(f"__{name}__" if name in RESERVED and name not in fields else name)
            if field_type is None:
                self._report(node, f"undefined field '{name}'")
            else:
                result = field_type
        elif target.kind == "param":
            self._assign(DYN, target)
            result = DYN
        else:
            if not target.is_dyn and target.kind != "error":
                self._report(node, f"type '{target}' does not support field selection")
            result = DYN
        return optional_of(result) if was_optional or optional else result

    # --- calls ----------------------------------------------------------------------------------------------------

    def _call(self, node: Call) -> None:
        if node.name == "_?._":
            field = node.args[1]
            assert isinstance(field, Literal)
            field.type = STRING
            node.type = substitute(self._substitution, self._field(node, node.args[0], str(field.value), optional=True))
            node.overloads = ["select_optional_field"]
            return
        for argument in node.args:
            self.check(argument)
        functions = self._functions
        owner = _qualified(node.target) if node.target is not None else None
        if node.target is None:
            name = node.name.lstrip(".")
        elif owner is not None and f"{owner}.{node.name}" in functions:
            name, node.target = f"{owner}.{node.name}", None
        else:
            self.check(node.target)
            name = node.name
        if name in functions:
            node.name = name
            self._resolve(node, functions[name])
        else:
            self._report(node, f"undeclared reference to '{node.name}' (in container '')")
            node.type = ERROR

    def _resolve(self, node: Call, overloads: Sequence[Overload]) -> None:
        argument_types = [argument.type for argument in ([node.target] if node.target is not None else []) + node.args]
        if node.name in ("_&&_", "_||_"):
            self._logical(node)
            return
        result: Type | None = None
        for overload in overloads:
            if overload.member != (node.target is not None):
                continue
            arguments, returned = list(overload.arguments), overload.result
            if overload.parameters:
                fresh = {name: self._fresh_parameter() for name in sorted(overload.parameters)}
                arguments = [substitute(fresh, argument) for argument in arguments]
                returned = substitute(fresh, returned)
            substitution = are_assignable(self._substitution, argument_types, arguments)
            if substitution is None:
                continue
            self._substitution = substitution
            node.overloads.append(overload.id)
            result_type = substitute(self._substitution, returned)
            if result is None:
                result = result_type
            elif not result.is_dyn and result_type != result:
                result = DYN
        if result is None:
            type_names = [str(substitute(self._substitution, type_, to_dyn=True)) for type_ in argument_types]
            owner = f"{type_names.pop(0)}." if node.target is not None else ""
            signature = f"{owner}({', '.join(type_names)})"
            self._report(node, f"found no matching overload for '{node.name}' applied to '{signature}'")
            result = ERROR
        node.type = result

    def _logical(self, node: Call) -> None:
        node.type = BOOL
        node.overloads = ["logical_and" if node.name == "_&&_" else "logical_or"]
        for operand in node.args:
            if not self._assign(operand.type, BOOL):
                self._mismatch(operand, BOOL, operand.type)
                node.type = ERROR

    # --- aggregates -----------------------------------------------------------------------------------------------

    def _element_type(self, node: Node, *, optional: bool) -> Type:
        if not optional:
            return node.type
        inner, is_optional = unwrap_optional(node.type)
        if not is_optional and not inner.is_dyn:
            self._mismatch(node, optional_of(inner), inner)
        return inner

    def _list(self, node: ListNode) -> None:
        element_type: Type | None = None
        for index, element in enumerate(node.elements):
            self.check(element)
            element_type = self._common_type(element_type, self._element_type(element, optional=index in node.optional))
        node.type = list_of(element_type if element_type is not None else self._fresh_parameter())

    def _map(self, node: MapNode) -> None:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            self.check(entry.key)
            key = self._common_type(key, entry.key.type)
            self.check(entry.value)
            value = self._common_type(value, self._element_type(entry.value, optional=entry.optional))
        node.type = map_of(key if key is not None else self._fresh_parameter(), value or self._fresh_parameter())

    def _struct(self, node: StructLiteral) -> None:
        """Check a struct literal. The library decides which structs exist: schemas define no named types."""
        name = node.name.lstrip(".")
        struct_type = self._structs(name)
        if struct_type is None:
            for entry in node.fields:
                self.check(entry.value)
            node.type = ERROR
            not_a_message = f"'{node.name}' is not a message type"
            undeclared = f"undeclared reference to '{node.name}' (in container '')"
            self._report(node, not_a_message if name in NAMED_TYPES else undeclared)
            return
        fields = struct_type.fields or {}
        for entry in node.fields:
            assert isinstance(entry.key, Literal)
            field = str(entry.key.value)
            self.check(entry.value)
            expected = fields.get(field, ERROR)
            if expected is ERROR:
                self.issues.append(Issue(entry.offset, f"undefined field '{field}'"))
            actual = self._element_type(entry.value, optional=entry.optional)
            if not self._assign(expected, actual):
                message = f"expected type of field '{field}' is '{expected}' but provided type is '{actual}'"
                self.issues.append(Issue(entry.offset, message))
        node.type = struct_type

    def _comprehension(self, node: Comprehension) -> None:
        self.check(node.range)
        self.check(node.init)
        over = substitute(self._substitution, node.range.type)
        accumulated = node.init.type
        self._scopes.append({node.accumulator: accumulated})
        first, second = self._iteration_types(node, over)
        self._scopes.append({node.var: first} | ({node.var2: second} if node.var2 else {}))
        self.check(node.condition)
        self._expect(node.condition, BOOL)
        self.check(node.step)
        self._expect(node.step, accumulated)
        self._scopes.pop()
        self.check(node.result)
        self._scopes.pop()
        node.type = substitute(self._substitution, node.result.type)

    def _expect(self, node: Node, expected: Type) -> None:
        if not self._assign(expected, node.type):
            self._mismatch(node, expected, node.type)

    def _iteration_types(self, node: Comprehension, over: Type) -> tuple[Type, Type]:
        """Return the types of the iteration variables."""
        if over.kind == "list":
            return (INT, over.parameters[0]) if node.var2 else (over.parameters[0], DYN)
        if over.kind == "map":
            return over.parameters[0], over.parameters[1]
        if over.is_dyn or over.kind in ("error", "param"):
            self._assign(DYN, over)
            return DYN, DYN
        message = f"expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)"
        self._report(node.range, message)
        return ERROR, ERROR


def _qualified(node: Node) -> str | None:
    """Return the dotted name a.b.c of a chain of selections on an identifier, else None."""
    names: list[str] = []
    while isinstance(node, Select) and not node.test:
        names.append(node.field)
        node = node.operand
    return ".".join(reversed([*names, node.name])) if isinstance(node, Ident) else None
