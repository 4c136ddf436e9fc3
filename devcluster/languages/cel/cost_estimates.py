"""What an expression costs at most, told from the sizes that schemas allow. Nothing is run.

A size is (least, most) characters, items or entries; a cost is (least, most) units. Sources: cel-go checker/cost.go,
ext/lists.go, ext/sets.go; k8s.io/apiserver pkg/cel/library/cost.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TypeAlias

from kubeloop.devcluster.languages.cel.runtime_costs import (
    LIST_CREATE_COST,
    MAP_CREATE_COST,
    REGEX_LENGTH_FACTOR,
    STRING_TRAVERSAL_FACTOR,
)
from kubeloop.devcluster.languages.cel.syntax import (
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
from kubeloop.devcluster.languages.cel.types import DeclType, Type, unwrap_optional

Range: TypeAlias = tuple[int, int]

MAX_ESTIMATE = (1 << 64) - 1
_UNKNOWN: Range = (0, MAX_ESTIMATE)
_ONE: Range = (1, 1)
_MAX_PATTERN = 128
_MAX_FORMAT = 64


def _plus(*ranges: Range) -> Range:
    return min(MAX_ESTIMATE, sum(each[0] for each in ranges)), min(MAX_ESTIMATE, sum(each[1] for each in ranges))


def _times(one: Range, other: Range) -> Range:
    return min(MAX_ESTIMATE, one[0] * other[0]), min(MAX_ESTIMATE, one[1] * other[1])


def _scaled(one: Range, factor: float) -> Range:
    return min(MAX_ESTIMATE, ceil(one[0] * factor)), min(MAX_ESTIMATE, ceil(one[1] * factor))


def _union(one: Range, other: Range) -> Range:
    return min(one[0], other[0]), max(one[1], other[1])


class _Local:
    """A variable of a comprehension: what it is of, and how large."""

    __slots__ = ("entry", "path", "size")

    def __init__(self, path: list[str], size: Range | None, entry: tuple[str, Range, Range] | None) -> None:
        self.path, self.size, self.entry = path, size, entry


def estimate_cost(node: Node, roots: Mapping[str, DeclType]) -> int:
    """The most that an expression costs. roots: what is declared of its variables."""
    return _Estimator(roots).cost(node)[1]


class _Estimator:
    def __init__(self, roots: Mapping[str, DeclType]) -> None:
        self._roots = roots
        self._locals: dict[str, list[_Local]] = {}
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

    def _local(self, name: str) -> _Local | None:
        found = self._locals.get(name)
        return found[-1] if found else None

    def _path(self, node: Node) -> list[str]:
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.path
        return self._paths.get(id(node), [])

    def _at(self, path: list[str]) -> DeclType | None:
        """What is declared of the value at a path."""
        if not path or path[0] == ACCUMULATOR:
            return None
        found = self._roots.get(path[0], next(iter(self._roots.values()), None))
        for name in path[1:]:
            if found is None:
                return None
            if name in ("@items", "@values"):
                found = found.element
            elif name == "@keys":
                found = found.key
            else:
                found = (found.fields or {}).get(name)
        return found

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
        decl_type = self._at(self._path(node))
        if decl_type is not None:
            self._sizes[id(node)] = 0, decl_type.max_elements
            return self._sizes[id(node)]
        if _is_scalar(node.type):
            return _ONE
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.size
        return None

    def _known(self, node: Node) -> Range:
        return self._size(node) or _UNKNOWN

    def _entry(self, node: Node) -> tuple[str, Range, Range] | None:
        """(list or map, size of keys, size of values) of a container's entries."""
        found = self._entries.get(id(node))
        if found is None and isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.entry
        return found

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _select(self, node: Select) -> Range:
        if node.type_value is not None:
            self._paths[id(node)] = [node.type_value.name]
            return _ONE
        below = self.cost(node.operand)
        if node.test:
            return below
        self._paths[id(node)] = [*self._path(node.operand), node.field]
        return _plus(below, _ONE) if node.operand.type.kind in ("map", "struct", "param") else below

    def _list(self, node: ListNode) -> Range:
        total: Range = (LIST_CREATE_COST, LIST_CREATE_COST)
        size: Range = (0 if not node.elements else MAX_ESTIMATE, 0)
        for each in node.elements:
            total = _plus(total, self.cost(each))
            size = _union(size, self._known(each))
        self._entries[id(node)] = "list", _ONE, size
        return total

    def _map(self, node: MapNode) -> Range:
        total: Range = (MAP_CREATE_COST, MAP_CREATE_COST)
        keys = values = (0 if not node.entries else MAX_ESTIMATE, 0)
        for each in node.entries:
            total = _plus(total, self.cost(each.key), self.cost(each.value))
            keys, values = _union(keys, self._known(each.key)), _union(values, self._known(each.value))
        self._entries[id(node)] = "map", keys, values
        return total

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _bind(self, node: Comprehension) -> Range:
        total = _plus(self.cost(node.range), self.cost(node.init))
        self._push(node.accumulator, _Local(self._path(node.init), self._size(node.init), self._entry(node.init)))
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
        self._push(node.accumulator, _Local(self._path(node.init), self._size(node.init), self._entry(node.init)))
        entry = self._entry(node.range)
        container = entry[0] if entry is not None else node.range.type.kind
        path = self._path(node.range)
        keys, values = (entry[1], entry[2]) if entry is not None else (None, None)
        key = _Local([*path, "@indices" if container == "list" else "@keys"], keys, None)
        value = _Local([*path, "@items" if container == "list" else "@values"], values, None)
        if node.var2:
            self._push(node.var, key)
            self._push(node.var2, value)
        else:
            self._push(node.var, value if container == "list" else key)
        each = _plus(self.cost(node.condition), self.cost(node.step))
        stepped = self._entry(node.step)
        for name in filter(None, (node.var, node.var2)):
            self._locals[name].pop()
        total = _plus(total, self.cost(node.result))
        self._locals[node.accumulator].pop()
        count = self._known(node.range)
        total = _plus(total, _times(count, each))
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
            below = self.cost(node.args[0])
            if (size := self._size(node.args[0])) is not None:
                self._sizes[id(node)] = size
            return _plus(_ONE, below)
        arguments = [self.cost(each) for each in node.args]
        target = self.cost(node.target) if node.target is not None else (0, 0)
        found: Range | None = None
        result: Range | None = None
        for overload in node.overloads:
            cost, size = self._overload(node, overload, arguments)
            found = cost if found is None else _union(found, cost)
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
        return _plus(target, found or (0, 0))

    def _overload(self, node: Call, overload: str, costs: list[Range]) -> tuple[Range, Range | None]:
        """(cost with that of the arguments, size of the result if that is known)."""
        if node.name in ("_&&_", "_||_"):
            return (costs[0][0], _plus(*costs)[1]), None
        if node.name == "_?_:_":
            return self._conditional(node, costs)
        own, size = self._own(node, overload)
        return _plus(own, *costs), size

    def _conditional(self, node: Call, costs: list[Range]) -> tuple[Range, Range | None]:
        size = _union(self._known(node.args[1]), self._known(node.args[2]))
        one, other = self._entry(node.args[1]), self._entry(node.args[2])
        if one is not None and other is not None:
            self._entries[id(node)] = one[0], _union(one[1], other[1]), _union(one[2], other[2])
        return _plus(costs[0], _union(costs[1], costs[2])), size

    def _own(self, node: Call, overload: str) -> tuple[Range, Range | None]:
        name, args, target = node.name, node.args, node.target
        first = self._known(target if target is not None else args[0]) if target is not None or args else _ONE
        texts = _scaled(first, STRING_TRAVERSAL_FACTOR)
        if overload.startswith(("list_sets_", "list_slice", "list_flatten", "lists_range", "list_reverse",
                                "list_distinct")) or name in ("sort", "@sortByAssociatedKeys"):  # fmt: skip
            return self._of_lists(node, overload)
        match name:
            case "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf":
                return self._of_elements(node), None
            case "url" | "lowerAscii" | "upperAscii" | "substring" | "trim":
                return texts, first
            case "replace":
                return _scaled(first, 2 * STRING_TRAVERSAL_FACTOR), self._replaced(node, first)
            case "split":
                most = first[1]
                if len(args) > 1 and isinstance(args[1], Literal) and isinstance(args[1].value, int):
                    most = args[1].value & MAX_ESTIMATE
                return _scaled(first, 2 * STRING_TRAVERSAL_FACTOR), (0, most)
            case "join":
                return self._joined(node)
            case "find" | "findAll" | "matches" if target is not None:
                pattern = _scaled(self._known(args[0]), REGEX_LENGTH_FACTOR)
                cost = _times(_scaled(_plus(first, _ONE), STRING_TRAVERSAL_FACTOR), pattern)
                return cost, None if name == "matches" else (0, first[1])
            case "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver":
                return texts, None
            case "ip":
                return (_ONE if overload == "cidr_ip" else texts), None
            case "ip.isCanonical":
                return _scaled(first, 2 * STRING_TRAVERSAL_FACTOR), None
            case "containsIP" | "containsCIDR":
                return self._contained(node, overload), None
            case "validate":
                text = _scaled(self._known(args[0]), STRING_TRAVERSAL_FACTOR)
                return _scaled(text, _MAX_PATTERN * REGEX_LENGTH_FACTOR), None
            case "contains":
                return _times(texts, _scaled(self._known(args[0]), STRING_TRAVERSAL_FACTOR)), None
            case "startsWith" | "endsWith":
                return _scaled(self._known(args[0]), STRING_TRAVERSAL_FACTOR), None
            case "format":
                return texts, None
            case "strings.quote":
                return texts, (first[0] + 2, min(MAX_ESTIMATE, first[1] * 2 + 2))
        return self._operator(node, overload, texts)

    def _operator(self, node: Call, overload: str, texts: Range) -> tuple[Range, Range | None]:
        args = node.args
        if overload == "string_to_bytes":
            size = self._known(args[0])
            return texts, (size[0], min(MAX_ESTIMATE, size[1] * 4))
        if overload == "bytes_to_string":
            size = self._known(args[0])
            return texts, (size[0] // 4, size[1])
        if overload == "in_list":
            return self._known(args[1]), None
        if overload in ("add_string", "add_bytes", "add_list"):
            size = _plus(self._known(args[0]), self._known(args[1]))
            one, other = self._entry(args[0]), self._entry(args[1])
            if one is not None and other is not None:
                self._entries[id(node)] = one[0], _union(one[1], other[1]), _union(one[2], other[2])
            return (_ONE if overload == "add_list" else _scaled(size, STRING_TRAVERSAL_FACTOR)), size
        ordered = node.name in ("_<_", "_<=_", "_>_", "_>=_") and overload.endswith(("_string", "_bytes"))
        if overload in ("equals", "not_equals") or ordered:
            return self._compared(node, overload), None
        return _ONE, None

    def _compared(self, node: Call, overload: str) -> Range:
        one, other = node.args
        if overload == "equals" and one.type == other.type:
            if one.type.name in ("net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"):
                return _ONE
            if one.type.name == "kubernetes.NamedFormat":
                return _scaled((1, _MAX_FORMAT), STRING_TRAVERSAL_FACTOR)
            if one.type.name == "kubernetes.URL":
                return _scaled((1, (self._size(other) or _ONE)[1]), STRING_TRAVERSAL_FACTOR)
        most = min(self._known(one)[1], self._known(other)[1])
        return _scaled((1 if most else 0, most), STRING_TRAVERSAL_FACTOR)

    def _of_elements(self, node: Call) -> Range:
        target = node.target if node.target is not None else node.args[0]
        size = self._known(target)
        if not target.type.parameters:
            return _scaled(size, STRING_TRAVERSAL_FACTOR)
        each, element = _ONE, target.type.parameters[0]
        if element.kind in ("string", "bytes"):
            decl_type = self._at([*self._path(target), "@items"]) if self._path(target) else None
            length = (0, decl_type.max_elements) if decl_type is not None else _UNKNOWN
            each = _plus(each, _scaled(length, STRING_TRAVERSAL_FACTOR))
        return _times(size, each)

    def _joined(self, node: Call) -> tuple[Range, Range | None]:
        assert node.target is not None
        count = self._known(node.target)
        decl_type = self._at([*self._path(node.target), "@items"]) if self._path(node.target) else None
        size = _times(count, (0, decl_type.max_elements) if decl_type is not None else _UNKNOWN)
        if node.args:
            between = max(0, count[0] - 1), max(0, count[1] - 1)
            size = _plus(size, _times(self._known(node.args[0]), between))
        return _scaled(size, STRING_TRAVERSAL_FACTOR), size

    def _replaced(self, node: Call, text: Range) -> Range:
        """The size of the text with the longest and the shortest replacements."""
        old, new = self._known(node.args[0]), self._known(node.args[1])
        if old[0] == 0:
            count, kept = min(MAX_ESTIMATE, text[1] + 1), text[1]
        elif new[1] <= old[0]:
            count, kept = 0, text[1]
        else:
            count, kept = ceil(text[1] / old[0]), 0
        if old[1] == 0:
            fewest, least = min(MAX_ESTIMATE, text[0] + 1), text[0]
        elif old[1] <= new[0]:
            fewest, least = 0, text[0]
        else:
            fewest, least = ceil(text[0] / old[1]), 0
        return _plus(_times((fewest, count), new), (least, kept))

    def _contained(self, node: Call, overload: str) -> Range:
        size: Range = (4, 16)
        cost = _scaled(_plus(size, size), STRING_TRAVERSAL_FACTOR)
        if node.name == "containsCIDR":
            cost = _plus(cost, _scaled(size, STRING_TRAVERSAL_FACTOR), _ONE)
        if overload.endswith("_string"):
            cost = _plus(cost, _scaled(self._known(node.args[0]), STRING_TRAVERSAL_FACTOR))
        return cost

    def _of_lists(self, node: Call, overload: str) -> tuple[Range, Range | None]:
        """Functions that make lists, or compare each element with each."""
        if overload.startswith("list_sets_"):
            size = _times(self._known(node.args[0]), self._known(node.args[1]))
            return _plus(_ONE, _scaled(size, 2 if "equivalent" in overload else 1)), None
        target = node.target if node.target is not None else node.args[0]
        size, factor = self._known(target), 1.0
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
                keys = size if node.name == "sort" else self._known(node.args[0])
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
