"""Which type each node has, and which overloads a call means. Source: cel-go checker/checker.go."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubeloop.devcluster.languages.cel import declarations
from kubeloop.devcluster.languages.cel.syntax import (
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
    Struct,
    walk,
)
from kubeloop.devcluster.languages.cel.types import (
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
from kubeloop.devcluster.languages.cel.validators import check_literals
from kubeloop.devcluster.languages.cel.values import Uint

_LITERALS = {bool: BOOL, bytes: BYTES, float: DOUBLE, int: INT, type(None): NULL, str: STRING, Uint: UINT}


def check(
    source: str,
    node: Node,
    variables: Mapping[str, Type],
    more: Mapping[str, list[declarations.Overload]],
    structs: Callable[[str], Type | None],
) -> Type:
    """Write types and overloads into the nodes; returns the type of the whole. Raises ExpressionError.

    more: functions beside the declared ones, by their names. structs: types of structs that can be made, by theirs.
    """
    functions = {**declarations.functions(), **more} if more else declarations.functions()
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
        functions: Mapping[str, list[declarations.Overload]],
        structs: Callable[[str], Type | None],
    ) -> None:
        self._functions = functions
        self._structs = structs
        self._scopes: list[dict[str, Type]] = [dict(variables)]
        self._known: dict[str, Type] = {}
        self._fresh = 0
        self.issues: list[Issue] = []

    def finish(self, node: Node) -> None:
        """Replace what is still unknown by dyn."""
        for each in walk(node):
            each.type = substitute(self._known, each.type, to_dyn=True)

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
            case Struct():
                self._struct(node)
            case Comprehension():
                self._comprehension(node)

    # --- helpers --------------------------------------------------------------------------------------------------

    def _wrong(self, node: Node, message: str) -> None:
        self.issues.append(Issue(node.at, message))

    def _variable(self) -> Type:
        self._fresh += 1
        return Type("param", f"_var{self._fresh - 1}")

    def _assign(self, one: Type, other: Type) -> bool:
        learned = is_assignable(self._known, one, other)
        if learned is not None:
            self._known = learned
        return learned is not None

    def _mismatch(self, node: Node, wanted: Type, found: Type) -> None:
        self._wrong(node, f"expected type '{wanted}' but found '{found}'")

    def _joined(self, before: Type | None, current: Type) -> Type:
        """The type of elements that follow one another; that mixed ones are refused is up to literals.py."""
        if before is None:
            return current
        return most_general(before, current) if self._assign(before, current) else DYN

    # --- names ----------------------------------------------------------------------------------------------------

    def _found(self, name: str) -> Type | None:
        scopes = self._scopes[:1] if name.startswith(".") else self._scopes
        for scope in reversed(scopes):
            if name.lstrip(".") in scope:
                return scope[name.lstrip(".")]
        return None

    def _ident(self, node: Ident) -> None:
        found = self._found(node.name)
        if found is None and node.name.lstrip(".") in NAMED_TYPES:
            node.type_value = NAMED_TYPES[node.name.lstrip(".")]
            found = type_of_type(node.type_value)
        if found is None:
            self._wrong(node, f"undeclared reference to '{node.name}' (in container '')")
            found = ERROR
        node.type = found

    def _select(self, node: Select) -> None:
        name = _qualified(node)
        if name is not None and name in NAMED_TYPES and self._found(name.partition(".")[0]) is None:
            node.type_value = NAMED_TYPES[name]
            node.type = type_of_type(node.type_value)
            return
        result = self._field(node, node.operand, node.field)
        node.type = BOOL if node.test else substitute(self._known, result)

    def _field(self, node: Node, operand: Node, name: str, *, optional: bool = False) -> Type:
        self.check(operand)
        of = substitute(self._known, operand.type)
        target, was_optional = unwrap_optional(of)
        result = ERROR
        if target.kind == "map":
            result = target.parameters[1]
        elif target.kind == "struct":
            fields = target.fields or {}
            found = fields.get(f"__{name}__" if name in RESERVED and name not in fields else name)
            if found is None:
                self._wrong(node, f"undefined field '{name}'")
            else:
                result = found
        elif target.kind == "param":
            self._assign(DYN, target)
            result = DYN
        else:
            if not target.is_dyn and target.kind != "error":
                self._wrong(node, f"type '{target}' does not support field selection")
            result = DYN
        return optional_of(result) if was_optional or optional else result

    # --- calls ----------------------------------------------------------------------------------------------------

    def _call(self, node: Call) -> None:
        if node.name == "_?._":
            field = node.args[1]
            assert isinstance(field, Literal)
            field.type = STRING
            node.type = substitute(self._known, self._field(node, node.args[0], str(field.value), optional=True))
            node.overloads = ["select_optional_field"]
            return
        for each in node.args:
            self.check(each)
        known = self._functions
        if node.target is None:
            if node.name.lstrip(".") not in known:
                self._undeclared(node)
                return
            node.name = node.name.lstrip(".")
            self._resolve(node, known[node.name])
            return
        owner = _qualified(node.target)
        if owner is not None and f"{owner}.{node.name}" in known:
            node.name, node.target = f"{owner}.{node.name}", None
            self._resolve(node, known[node.name])
            return
        self.check(node.target)
        if node.name not in known:
            self._undeclared(node)
            return
        self._resolve(node, known[node.name])

    def _undeclared(self, node: Call) -> None:
        self._wrong(node, f"undeclared reference to '{node.name}' (in container '')")
        node.type = ERROR

    def _resolve(self, node: Call, overloads: list[declarations.Overload]) -> None:
        given = [each.type for each in ([node.target] if node.target is not None else []) + node.args]
        if node.name in ("_&&_", "_||_"):
            self._logical(node)
            return
        result: Type | None = None
        for overload in overloads:
            if overload.member != (node.target is not None):
                continue
            arguments, returned = list(overload.arguments), overload.result
            if overload.parameters:
                fresh = {name: self._variable() for name in sorted(overload.parameters)}
                arguments = [substitute(fresh, each) for each in arguments]
                returned = substitute(fresh, returned)
            learned = are_assignable(self._known, given, arguments)
            if learned is None:
                continue
            self._known = learned
            node.overloads.append(overload.id)
            found = substitute(self._known, returned)
            if result is None:
                result = found
            elif not result.is_dyn and found != result:
                result = DYN
        if result is None:
            shown = [str(substitute(self._known, each, to_dyn=True)) for each in given]
            owner = f"{shown.pop(0)}." if node.target is not None else ""
            told = f"{owner}({', '.join(shown)})"
            self._wrong(node, f"found no matching overload for '{node.name}' applied to '{told}'")
            result = ERROR
        node.type = result

    def _logical(self, node: Call) -> None:
        node.type = BOOL
        node.overloads = ["logical_and" if node.name == "_&&_" else "logical_or"]
        for each in node.args:
            if not self._assign(each.type, BOOL):
                self._mismatch(each, BOOL, each.type)
                node.type = ERROR

    # --- aggregates -----------------------------------------------------------------------------------------------

    def _optional(self, node: Node, *, optional: bool) -> Type:
        if not optional:
            return node.type
        inner, is_optional = unwrap_optional(node.type)
        if not is_optional and not inner.is_dyn:
            self._mismatch(node, optional_of(inner), inner)
        return inner

    def _list(self, node: ListNode) -> None:
        found: Type | None = None
        for index, each in enumerate(node.elements):
            self.check(each)
            found = self._joined(found, self._optional(each, optional=index in node.optional))
        node.type = list_of(found if found is not None else self._variable())

    def _map(self, node: MapNode) -> None:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            self.check(entry.key)
            key = self._joined(key, entry.key.type)
            self.check(entry.value)
            value = self._joined(value, self._optional(entry.value, optional=entry.optional))
        node.type = map_of(key if key is not None else self._variable(), value or self._variable())

    def _struct(self, node: Struct) -> None:
        """Schemas have no names, and Kubernetes' own types no fields: what can be made is up to who compiles."""
        name = node.name.lstrip(".")
        known = self._structs(name)
        if known is None:
            for entry in node.fields:
                self.check(entry.value)
            node.type = ERROR
            told = f"'{node.name}' is not a message type"
            missing = f"undeclared reference to '{node.name}' (in container '')"
            self._wrong(node, told if name in NAMED_TYPES else missing)
            return
        fields = known.fields or {}
        for entry in node.fields:
            assert isinstance(entry.key, Literal)
            field = str(entry.key.value)
            self.check(entry.value)
            wanted = fields.get(field, ERROR)
            if wanted is ERROR:
                self.issues.append(Issue(entry.at, f"undefined field '{field}'"))
            given = self._optional(entry.value, optional=entry.optional)
            if not self._assign(wanted, given):
                told = f"expected type of field '{field}' is '{wanted}' but provided type is '{given}'"
                self.issues.append(Issue(entry.at, told))
        node.type = known

    def _comprehension(self, node: Comprehension) -> None:
        self.check(node.range)
        self.check(node.init)
        over = substitute(self._known, node.range.type)
        accumulated = node.init.type
        self._scopes.append({node.accumulator: accumulated})
        first, second = self._iterated(node, over)
        self._scopes.append({node.var: first} | ({node.var2: second} if node.var2 else {}))
        self.check(node.condition)
        self._expect(node.condition, BOOL)
        self.check(node.step)
        self._expect(node.step, accumulated)
        self._scopes.pop()
        self.check(node.result)
        self._scopes.pop()
        node.type = substitute(self._known, node.result.type)

    def _expect(self, node: Node, wanted: Type) -> None:
        if not self._assign(wanted, node.type):
            self._mismatch(node, wanted, node.type)

    def _iterated(self, node: Comprehension, over: Type) -> tuple[Type, Type]:
        """The types of the variables."""
        if over.kind == "list":
            return (INT, over.parameters[0]) if node.var2 else (over.parameters[0], DYN)
        if over.kind == "map":
            return over.parameters[0], over.parameters[1]
        if over.is_dyn or over.kind in ("error", "param"):
            self._assign(DYN, over)
            return DYN, DYN
        told = f"expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)"
        self._wrong(node.range, told)
        return ERROR, ERROR


def _qualified(node: Node) -> str | None:
    """a.b.c as a name."""
    names: list[str] = []
    while isinstance(node, Select) and not node.test:
        names.append(node.field)
        node = node.operand
    return ".".join(reversed([*names, node.name])) if isinstance(node, Ident) else None
