"""Static cost estimate: the maximum cost of an expression, from the sizes that schemas allow.

A size is (minimum, maximum) characters, items or entries; a cost is (minimum, maximum) units. Sources: cel-go
checker/cost.go, ext/lists.go, ext/sets.go; k8s.io/apiserver pkg/cel/library/cost.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TypeAlias

from kubeloop.cel.costs.runtime_costs import (
    LIST_CREATE_COST,
    MAP_CREATE_COST,
    REGEX_LENGTH_FACTOR,
    STRING_TRAVERSAL_FACTOR,
)
from kubeloop.cel.syntax import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
)
from kubeloop.cel.types import DeclType, Type, unwrap_optional

Range: TypeAlias = tuple[int, int]

MAX_ESTIMATE = (1 << 64) - 1
_UNKNOWN: Range = (0, MAX_ESTIMATE)
_ONE: Range = (1, 1)
_MAX_PATTERN = 128
_MAX_FORMAT = 64


def _plus(*ranges: Range) -> Range:
    return min(MAX_ESTIMATE, sum(range_[0] for range_ in ranges)), min(
        MAX_ESTIMATE, sum(range_[1] for range_ in ranges)
    )


def _times(one: Range, other: Range) -> Range:
    return min(MAX_ESTIMATE, one[0] * other[0]), min(MAX_ESTIMATE, one[1] * other[1])


def _scaled(one: Range, factor: float) -> Range:
    return min(MAX_ESTIMATE, ceil(one[0] * factor)), min(MAX_ESTIMATE, ceil(one[1] * factor))


def _union(one: Range, other: Range) -> Range:
    return min(one[0], other[0]), max(one[1], other[1])


class _IterationVariable:
    """An iteration variable of a comprehension: its path from a root variable, and its size."""

    __slots__ = ("entry", "path", "size")

    def __init__(self, path: list[str], size: Range | None, entry: tuple[str, Range, Range] | None) -> None:
        self.path, self.size, self.entry = path, size, entry


def estimate_cost(node: Node, roots: Mapping[str, DeclType]) -> int:
    """Return the maximum cost of an expression. roots: declared types of its variables."""
    return _Estimator(roots).cost(node)[1]


class _Estimator:
    def __init__(self, roots: Mapping[str, DeclType]) -> None:
        self._roots = roots
        self._locals: dict[str, list[_IterationVariable]] = {}
        self._paths: dict[int, list[str]] = {}
        self._sizes: dict[int, Range] = {}
        self._entries: dict[int, tuple[str, Range, Range]] = {}

    def cost(self, node: Node) -> Range:
        match node:
            case Ident():
                local = self._local(node.name)
                self._paths[id(node)] = local.path if local is not None else [node.name]
                return _ONE
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListNode():
                return self._list(node)
            case MapNode():
                return self._map(node)
            case Comprehension():
                return self._bind(node) if node.binds else self._comprehension(node)
        return 0, 0

    # --- sizes ----------------------------------------------------------------------------------------------------

    def _local(self, name: str) -> _IterationVariable | None:
        locals_ = self._locals.get(name)
        return locals_[-1] if locals_ else None

    def _path(self, node: Node) -> list[str]:
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.path
        return self._paths.get(id(node), [])

    def _decl_type_at(self, path: list[str]) -> DeclType | None:
        """Return the declared type of the value at a path, if known."""
        if not path or path[0] == ACCUMULATOR:
            return None
        decl_type = self._roots.get(path[0], next(iter(self._roots.values()), None))
        for name in path[1:]:
            if decl_type is None:
                return None
            if name in ("@items", "@values"):
                decl_type = decl_type.element
            elif name == "@keys":
                decl_type = decl_type.key
            else:
                decl_type = (decl_type.fields or {}).get(name)
        return decl_type

    def _size(self, node: Node) -> Range | None:
        if id(node) in self._sizes:
            return self._sizes[id(node)]
        match node:
            case Literal():
                length = len(node.value) if isinstance(node.value, str | bytes) else 1
                return length, length
            case ListNode():
                return len(node.elements), len(node.elements)
            case MapNode():
                return len(node.entries), len(node.entries)
        decl_type = self._decl_type_at(self._path(node))
        if decl_type is not None:
            self._sizes[id(node)] = 0, decl_type.max_elements
            return self._sizes[id(node)]
        if _is_scalar(node.type):
            return _ONE
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.size
        return None

    def _size_or_unknown(self, node: Node) -> Range:
        return self._size(node) or _UNKNOWN

    def _entry(self, node: Node) -> tuple[str, Range, Range] | None:
        """Return ("list" or "map", size of keys, size of values) of a container's entries, if known."""
        entry = self._entries.get(id(node))
        if entry is None and isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.entry
        return entry

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _select(self, node: Select) -> Range:
        if node.type_value is not None:
            self._paths[id(node)] = [node.type_value.name]
            return _ONE
        operand_cost = self.cost(node.operand)
        if node.test:
            return operand_cost
        self._paths[id(node)] = [*self._path(node.operand), node.field]
        return _plus(operand_cost, _ONE) if node.operand.type.kind in ("map", "struct", "param") else operand_cost

    def _list(self, node: ListNode) -> Range:
        total: Range = (LIST_CREATE_COST, LIST_CREATE_COST)
        size: Range = (0 if not node.elements else MAX_ESTIMATE, 0)
        for element in node.elements:
            total = _plus(total, self.cost(element))
            size = _union(size, self._size_or_unknown(element))
        self._entries[id(node)] = "list", _ONE, size
        return total

    def _map(self, node: MapNode) -> Range:
        total: Range = (MAP_CREATE_COST, MAP_CREATE_COST)
        keys = values = (0 if not node.entries else MAX_ESTIMATE, 0)
        for entry in node.entries:
            total = _plus(total, self.cost(entry.key), self.cost(entry.value))
            keys, values = (
                _union(keys, self._size_or_unknown(entry.key)),
                _union(values, self._size_or_unknown(entry.value)),
            )
        self._entries[id(node)] = "map", keys, values
        return total

    def _push(self, name: str, local: _IterationVariable) -> None:
        self._locals.setdefault(name, []).append(local)

    def _bind(self, node: Comprehension) -> Range:
        total = _plus(self.cost(node.range), self.cost(node.init))
        self._push(
            node.accumulator, _IterationVariable(self._path(node.init), self._size(node.init), self._entry(node.init))
        )
        total = _plus(total, self.cost(node.result))
        size, entry = self._size(node.result), self._entry(node.result)
        self._locals[node.accumulator].pop()
        if size is not None:
            self._sizes[id(node)] = size
        if entry is not None:
            self._entries[id(node)] = entry
        return total

    def _comprehension(self, node: Comprehension) -> Range:
        total = _plus(self.cost(node.range), self.cost(node.init))
        self._push(
            node.accumulator, _IterationVariable(self._path(node.init), self._size(node.init), self._entry(node.init))
        )
        entry = self._entry(node.range)
        container = entry[0] if entry is not None else node.range.type.kind
        path = self._path(node.range)
        keys, values = (entry[1], entry[2]) if entry is not None else (None, None)
        key = _IterationVariable([*path, "@indices" if container == "list" else "@keys"], keys, None)
        value = _IterationVariable([*path, "@items" if container == "list" else "@values"], values, None)
        if node.var2:
            self._push(node.var, key)
            self._push(node.var2, value)
        else:
            self._push(node.var, value if container == "list" else key)
        iteration_cost = _plus(self.cost(node.condition), self.cost(node.step))
        stepped = self._entry(node.step)
        for name in filter(None, (node.var, node.var2)):
            self._locals[name].pop()
        total = _plus(total, self.cost(node.result))
        self._locals[node.accumulator].pop()
        count = self._size_or_unknown(node.range)
        total = _plus(total, _times(count, iteration_cost))
        if isinstance(node.init, Literal):
            self._sizes[id(node)] = _ONE
        elif isinstance(node.init, ListNode | MapNode):
            self._sizes[id(node)] = count
            if stepped is not None:
                self._entries[id(node)] = stepped
        return total

    # --- calls ----------------------------------------------------------------------------------------------------

    def _call(self, node: Call) -> Range:
        if node.name == "dyn":
            argument_cost = self.cost(node.args[0])
            if (size := self._size(node.args[0])) is not None:
                self._sizes[id(node)] = size
            return _plus(_ONE, argument_cost)
        arguments = [self.cost(argument) for argument in node.args]
        target = self.cost(node.target) if node.target is not None else (0, 0)
        total: Range | None = None
        result: Range | None = None
        for overload in node.overloads:
            cost, size = self._overload_cost(node, overload, arguments)
            total = cost if total is None else _union(total, cost)
            if size is not None:
                result = size if result is None else _union(result, size)
            if overload in ("index_list", "index_map"):
                entry = self._entry(node.args[0])
                result = entry[2] if entry is not None else None
                step = "@items" if overload == "index_list" else "@values"
                self._paths[id(node)] = [*self._path(node.args[0]), step]
        if result is None:
            result = self._size(node)
        if result is not None:
            self._sizes[id(node)] = result
        return _plus(target, total or (0, 0))

    def _overload_cost(self, node: Call, overload: str, costs: list[Range]) -> tuple[Range, Range | None]:
        """Return (cost including the arguments, size of the result if known)."""
        if node.name in ("_&&_", "_||_"):
            return (costs[0][0], _plus(*costs)[1]), None
        if node.name == "_?_:_":
            return self._conditional_cost(node, costs)
        call_cost, size = self._function_cost(node, overload)
        return _plus(call_cost, *costs), size

    def _conditional_cost(self, node: Call, costs: list[Range]) -> tuple[Range, Range | None]:
        size = _union(self._size_or_unknown(node.args[1]), self._size_or_unknown(node.args[2]))
        one, other = self._entry(node.args[1]), self._entry(node.args[2])
        if one is not None and other is not None:
            self._entries[id(node)] = one[0], _union(one[1], other[1]), _union(one[2], other[2])
        return _plus(costs[0], _union(costs[1], costs[2])), size

    def _function_cost(self, node: Call, overload: str) -> tuple[Range, Range | None]:
        name, args, target = node.name, node.args, node.target
        first = self._size_or_unknown(target if target is not None else args[0]) if target is not None or args else _ONE
        traversal_cost = _scaled(first, STRING_TRAVERSAL_FACTOR)
        if overload.startswith(("list_sets_", "list_slice", "list_flatten", "lists_range", "list_reverse",
                                "list_distinct")) or name in ("sort", "@sortByAssociatedKeys"):  # fmt: skip
            return self._list_function_cost(node, overload)
        match name:
            case "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf":
                return self._aggregate_cost(node), None
            case "url" | "lowerAscii" | "upperAscii" | "substring" | "trim":
                return traversal_cost, first
            case "replace":
                return _scaled(first, 2 * STRING_TRAVERSAL_FACTOR), self._replace_size(node, first)
            case "split":
                most = first[1]
                if len(args) > 1 and isinstance(args[1], Literal) and isinstance(args[1].value, int):
                    most = args[1].value & MAX_ESTIMATE
                return _scaled(first, 2 * STRING_TRAVERSAL_FACTOR), (0, most)
            case "join":
                return self._join_cost(node)
            case "find" | "findAll" | "matches" if target is not None:
                pattern = _scaled(self._size_or_unknown(args[0]), REGEX_LENGTH_FACTOR)
                cost = _times(_scaled(_plus(first, _ONE), STRING_TRAVERSAL_FACTOR), pattern)
                return cost, None if name == "matches" else (0, first[1])
            case "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver":
                return traversal_cost, None
            case "ip":
                return (_ONE if overload == "cidr_ip" else traversal_cost), None
            case "ip.isCanonical":
                return _scaled(first, 2 * STRING_TRAVERSAL_FACTOR), None
            case "containsIP" | "containsCIDR":
                return self._contains_cost(node, overload), None
            case "validate":
                text = _scaled(self._size_or_unknown(args[0]), STRING_TRAVERSAL_FACTOR)
                return _scaled(text, _MAX_PATTERN * REGEX_LENGTH_FACTOR), None
            case "contains":
                return _times(traversal_cost, _scaled(self._size_or_unknown(args[0]), STRING_TRAVERSAL_FACTOR)), None
            case "startsWith" | "endsWith":
                return _scaled(self._size_or_unknown(args[0]), STRING_TRAVERSAL_FACTOR), None
            case "format":
                return traversal_cost, None
            case "strings.quote":
                return traversal_cost, (first[0] + 2, min(MAX_ESTIMATE, first[1] * 2 + 2))
        return self._operator_cost(node, overload, traversal_cost)

    def _operator_cost(self, node: Call, overload: str, traversal_cost: Range) -> tuple[Range, Range | None]:
        args = node.args
        if overload == "string_to_bytes":
            size = self._size_or_unknown(args[0])
            return traversal_cost, (size[0], min(MAX_ESTIMATE, size[1] * 4))
        if overload == "bytes_to_string":
            size = self._size_or_unknown(args[0])
            return traversal_cost, (size[0] // 4, size[1])
        if overload == "in_list":
            return self._size_or_unknown(args[1]), None
        if overload in ("add_string", "add_bytes", "add_list"):
            size = _plus(self._size_or_unknown(args[0]), self._size_or_unknown(args[1]))
            one, other = self._entry(args[0]), self._entry(args[1])
            if one is not None and other is not None:
                self._entries[id(node)] = one[0], _union(one[1], other[1]), _union(one[2], other[2])
            return (_ONE if overload == "add_list" else _scaled(size, STRING_TRAVERSAL_FACTOR)), size
        ordered = node.name in ("_<_", "_<=_", "_>_", "_>=_") and overload.endswith(("_string", "_bytes"))
        if overload in ("equals", "not_equals") or ordered:
            return self._equality_cost(node, overload), None
        return _ONE, None

    def _equality_cost(self, node: Call, overload: str) -> Range:
        one, other = node.args
        if overload == "equals" and one.type == other.type:
            if one.type.name in ("net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"):
                return _ONE
            if one.type.name == "kubernetes.NamedFormat":
                return _scaled((1, _MAX_FORMAT), STRING_TRAVERSAL_FACTOR)
            if one.type.name == "kubernetes.URL":
                return _scaled((1, (self._size(other) or _ONE)[1]), STRING_TRAVERSAL_FACTOR)
        most = min(self._size_or_unknown(one)[1], self._size_or_unknown(other)[1])
        return _scaled((1 if most else 0, most), STRING_TRAVERSAL_FACTOR)

    def _aggregate_cost(self, node: Call) -> Range:
        target = node.target if node.target is not None else node.args[0]
        size = self._size_or_unknown(target)
        if not target.type.parameters:
            return _scaled(size, STRING_TRAVERSAL_FACTOR)
        element_cost, element = _ONE, target.type.parameters[0]
        if element.kind in ("string", "bytes"):
            decl_type = self._decl_type_at([*self._path(target), "@items"]) if self._path(target) else None
            length = (0, decl_type.max_elements) if decl_type is not None else _UNKNOWN
            element_cost = _plus(element_cost, _scaled(length, STRING_TRAVERSAL_FACTOR))
        return _times(size, element_cost)

    def _join_cost(self, node: Call) -> tuple[Range, Range | None]:
        assert node.target is not None
        count = self._size_or_unknown(node.target)
        decl_type = self._decl_type_at([*self._path(node.target), "@items"]) if self._path(node.target) else None
        size = _times(count, (0, decl_type.max_elements) if decl_type is not None else _UNKNOWN)
        if node.args:
            between = max(0, count[0] - 1), max(0, count[1] - 1)
            size = _plus(size, _times(self._size_or_unknown(node.args[0]), between))
        return _scaled(size, STRING_TRAVERSAL_FACTOR), size

    def _replace_size(self, node: Call, text: Range) -> Range:
        """Return the size of the result of replace(), from the shortest and longest replacements."""
        old, new = self._size_or_unknown(node.args[0]), self._size_or_unknown(node.args[1])
        if old[0] == 0:
            count, unreplaced = min(MAX_ESTIMATE, text[1] + 1), text[1]
        elif new[1] <= old[0]:
            count, unreplaced = 0, text[1]
        else:
            count, unreplaced = ceil(text[1] / old[0]), 0
        if old[1] == 0:
            fewest, least = min(MAX_ESTIMATE, text[0] + 1), text[0]
        elif old[1] <= new[0]:
            fewest, least = 0, text[0]
        else:
            fewest, least = ceil(text[0] / old[1]), 0
        return _plus(_times((fewest, count), new), (least, unreplaced))

    def _contains_cost(self, node: Call, overload: str) -> Range:
        size: Range = (4, 16)
        cost = _scaled(_plus(size, size), STRING_TRAVERSAL_FACTOR)
        if node.name == "containsCIDR":
            cost = _plus(cost, _scaled(size, STRING_TRAVERSAL_FACTOR), _ONE)
        if overload.endswith("_string"):
            cost = _plus(cost, _scaled(self._size_or_unknown(node.args[0]), STRING_TRAVERSAL_FACTOR))
        return cost

    def _list_function_cost(self, node: Call, overload: str) -> tuple[Range, Range | None]:
        """Return cost and result size of functions that create lists or compare elements pairwise."""
        if overload.startswith("list_sets_"):
            size = _times(self._size_or_unknown(node.args[0]), self._size_or_unknown(node.args[1]))
            return _plus(_ONE, _scaled(size, 2 if "equivalent" in overload else 1)), None
        target = node.target if node.target is not None else node.args[0]
        size, factor = self._size_or_unknown(target), 1.0
        match node.name:
            case "slice":
                start, end = _literal(node.args[0], 0), _literal(node.args[1], size[1])
                size = ((end - start) & MAX_ESTIMATE,) * 2
            case "flatten" if node.args:
                factor = float(_literal(node.args[0], MAX_ESTIMATE))
            case "lists.range":
                size = (_literal(node.args[0], MAX_ESTIMATE),) * 2
            case "distinct":
                size, factor = _times(size, size), 2.0
            case "sort" | "@sortByAssociatedKeys":
                keys = size if node.name == "sort" else self._size_or_unknown(node.args[0])
                text = overload.startswith(("list_string_", "list_bytes_"))
                size, factor = _times(keys, keys), 2.0 + (STRING_TRAVERSAL_FACTOR if text else 0)
        return _plus(_scaled(size, factor), _ONE, (LIST_CREATE_COST, LIST_CREATE_COST)), size


def _literal(node: Node, otherwise: int) -> int:
    if isinstance(node, Literal) and type(node.value) is int:
        return max(0, node.value)
    return otherwise


def _is_scalar(type_: Type) -> bool:
    inner, _ = unwrap_optional(type_)
    return inner.kind in ("bool", "double", "duration", "int", "timestamp", "uint")
