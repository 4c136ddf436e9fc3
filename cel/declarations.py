"""Declarations: every function of the library with its overloads, as kube-apiserver v1.36 declares them.

Each line of the tables has the overload's identifier, the call and the result type. A capital letter is a type
parameter of the line. Sources: cel-go common/stdlib, cel/library.go (optionals), ext/{strings,lists,sets}.go,
ext/comprehensions.go and k8s.io/apiserver pkg/cel/library.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from kubeloop.cel.types import (
    CIDR,
    DURATION,
    DYN,
    FORMAT,
    IP,
    NAMED_TYPES,
    QUANTITY,
    SEMVER,
    TIMESTAMP,
    URL,
    Type,
    list_of,
    map_of,
    optional_of,
    type_of_type,
)

_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")

_OPERATORS = """
conditional            _?_:_(bool, A, A) A
logical_and            _&&_(bool, bool) bool
logical_or             _||_(bool, bool) bool
logical_not            !_(bool) bool
not_strictly_false     @not_strictly_false(bool) bool
equals                 _==_(A, A) bool
not_equals             _!=_(A, A) bool
add_bytes              _+_(bytes, bytes) bytes
add_double             _+_(double, double) double
add_duration_duration  _+_(duration, duration) duration
add_duration_timestamp _+_(duration, timestamp) timestamp
add_timestamp_duration _+_(timestamp, duration) timestamp
add_int64              _+_(int, int) int
add_list               _+_(list(A), list(A)) list(A)
add_string             _+_(string, string) string
add_uint64             _+_(uint, uint) uint
divide_double          _/_(double, double) double
divide_int64           _/_(int, int) int
divide_uint64          _/_(uint, uint) uint
modulo_int64           _%_(int, int) int
modulo_uint64          _%_(uint, uint) uint
multiply_double        _*_(double, double) double
multiply_int64         _*_(int, int) int
multiply_uint64        _*_(uint, uint) uint
negate_double          -_(double) double
negate_int64           -_(int) int
subtract_double        _-_(double, double) double
subtract_duration_duration   _-_(duration, duration) duration
subtract_int64         _-_(int, int) int
subtract_timestamp_duration  _-_(timestamp, duration) timestamp
subtract_timestamp_timestamp _-_(timestamp, timestamp) duration
subtract_uint64        _-_(uint, uint) uint
index_list             _[_](list(A), int) A
index_map              _[_](map(A, B), A) B
optional_list_index_int      _[_](optional(list(V)), int) optional(V)
optional_map_index_value     _[_](optional(map(K, V)), K) optional(V)
in_list                @in(A, list(A)) bool
in_map                 @in(A, map(A, B)) bool
select_optional_field  _?._(dyn, string) optional(V)
list_optindex_optional_int   _[?_](list(V), int) optional(V)
optional_list_optindex_optional_int _[?_](optional(list(V)), int) optional(V)
map_optindex_optional_value  _[?_](map(K, V), K) optional(V)
optional_map_optindex_optional_value _[?_](optional(map(K, V)), K) optional(V)
"""

_STANDARD = """
size_bytes      size(bytes) int
size_list       size(list(A)) int
size_map        size(map(A, B)) int
size_string     size(string) int
bytes_size      bytes.size() int
list_size       list(A).size() int
map_size        map(A, B).size() int
string_size     string.size() int
type            type(A) type(A)
to_dyn          dyn(A) dyn
bool_to_bool    bool(bool) bool
string_to_bool  bool(string) bool
bytes_to_bytes  bytes(bytes) bytes
string_to_bytes bytes(string) bytes
double_to_double double(double) double
int64_to_double  double(int) double
string_to_double double(string) double
uint64_to_double double(uint) double
duration_to_duration duration(duration) duration
int64_to_duration    duration(int) duration
string_to_duration   duration(string) duration
int64_to_int64     int(int) int
double_to_int64    int(double) int
duration_to_int64  int(duration) int
string_to_int64    int(string) int
timestamp_to_int64 int(timestamp) int
uint64_to_int64    int(uint) int
string_to_string    string(string) string
bool_to_string      string(bool) string
bytes_to_string     string(bytes) string
double_to_string    string(double) string
duration_to_string  string(duration) string
int64_to_string     string(int) string
timestamp_to_string string(timestamp) string
uint64_to_string    string(uint) string
timestamp_to_timestamp timestamp(timestamp) timestamp
int64_to_timestamp     timestamp(int) timestamp
string_to_timestamp    timestamp(string) timestamp
uint64_to_uint64  uint(uint) uint
double_to_uint64  uint(double) uint
int64_to_uint64   uint(int) uint
string_to_uint64  uint(string) uint
contains_string    string.contains(string) bool
ends_with_string   string.endsWith(string) bool
starts_with_string string.startsWith(string) bool
matches            matches(string, string) bool
matches_string     string.matches(string) bool
duration_to_hours        duration.getHours() int
duration_to_minutes      duration.getMinutes() int
duration_to_seconds      duration.getSeconds() int
duration_to_milliseconds duration.getMilliseconds() int
optional_of             optional.of(V) optional(V)
optional_ofNonZeroValue optional.ofNonZeroValue(V) optional(V)
optional_none           optional.none() optional(V)
optional_value          optional(V).value() V
optional_hasValue       optional(V).hasValue() bool
optional_or_optional    optional(V).or(optional(V)) optional(V)
optional_orValue_value  optional(V).orValue(V) V
list_last               list(V).last() optional(V)
list_first              list(V).first() optional(V)
optional_unwrap         optional.unwrap(list(optional(V))) list(V)
optional_unwrapOpt      list(optional(V)).unwrapOpt() list(V)
"""

_TIMESTAMP_GETTERS = ("getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate", "getDayOfWeek", "getHours",
          "getMinutes", "getSeconds", "getMilliseconds")  # fmt: skip

_EXTENSIONS = """
string_char_at_int         string.charAt(int) string
list_a_index_of_int        list(A).indexOf(A) int
string_index_of_string     string.indexOf(string) int
string_index_of_string_int string.indexOf(string, int) int
list_a_last_index_of_int        list(A).lastIndexOf(A) int
string_last_index_of_string     string.lastIndexOf(string) int
string_last_index_of_string_int string.lastIndexOf(string, int) int
string_lower_ascii         string.lowerAscii() string
string_replace_string_string     string.replace(string, string) string
string_replace_string_string_int string.replace(string, string, int) string
string_split_string        string.split(string) list(string)
string_split_string_int    string.split(string, int) list(string)
string_substring_int       string.substring(int) string
string_substring_int_int   string.substring(int, int) string
string_trim                string.trim() string
string_upper_ascii         string.upperAscii() string
string_format              string.format(list(dyn)) string
strings_quote              strings.quote(string) string
list_join                  list(string).join() string
list_join_string           list(string).join(string) string
list_slice                 list(T).slice(int, int) list(T)
list_flatten               list(list(T)).flatten() list(T)
list_flatten_int           list(dyn).flatten(int) list(dyn)
lists_range                lists.range(int) list(int)
list_reverse               list(T).reverse() list(T)
list_distinct              list(T).distinct() list(T)
list_sets_contains_list    sets.contains(list(T), list(T)) bool
list_sets_equivalent_list  sets.equivalent(list(T), list(T)) bool
list_sets_intersects_list  sets.intersects(list(T), list(T)) bool
@mapInsert_map_key_value   cel.@mapInsert(map(K, V), K, V) map(K, V)
@mapInsert_map_map         cel.@mapInsert(map(K, V), map(K, V)) map(K, V)
string_find_string         string.find(string) string
string_find_all_string     string.findAll(string) list(string)
string_find_all_string_int string.findAll(string, int) list(string)
"""

_QUALIFIED_NAMES = (
    "optional.of", "optional.ofNonZeroValue", "optional.none", "optional.unwrap", "strings.quote", "lists.range",
    "sets.contains", "sets.equivalent", "sets.intersects", "cel.@mapInsert",
)  # fmt: skip
"""Functions with a dot in their name; in other calls, the part before the dot is the target."""

_TYPE_ALIASES = {
    "duration": DURATION,
    "timestamp": TIMESTAMP,
    "quantity": QUANTITY,
    "url": URL,
    "ip": IP,
    "cidr": CIDR,
    "semver": SEMVER,
    "format": FORMAT,
    "dyn": DYN,
}


@dataclass(frozen=True, slots=True)
class Overload:
    """A signature of a function. `member`: it is called on a target, its first argument."""

    id: str
    arguments: tuple[Type, ...]
    result: Type
    member: bool
    parameters: frozenset[str]


def _ordering_overloads() -> str:
    """Return the overloads of <, <=, > and >=; numbers compare with numbers of other types."""
    lines = []
    names = {"_<_": "less", "_<=_": "less_equals", "_>_": "greater", "_>=_": "greater_equals"}
    numbers = {"int": "int64", "uint": "uint64", "double": "double"}
    for operator, prefix in names.items():
        lines.append(f"{prefix}_bool {operator}(bool, bool) bool")
        for one, name in numbers.items():
            lines += [
                f"{prefix}_{name if one == other else f'{name}_{other_name}'} {operator}({one}, {other}) bool"
                for other, other_name in numbers.items()
            ]
        lines += [f"{prefix}_{type_} {operator}({type_}, {type_}) bool" for type_ in ("string", "bytes")]
        lines += [f"{prefix}_{type_} {operator}({type_}, {type_}) bool" for type_ in ("timestamp", "duration")]
    return "\n".join(lines)


def _overloads_per_type() -> str:
    """Return the overloads that exist for each timestamp getter or comparable type."""
    lines = [f"timestamp_to_{name} timestamp.{name}() int" for name in _TIMESTAMP_GETTERS]
    lines += [f"timestamp_to_{name}_with_tz timestamp.{name}(string) int" for name in _TIMESTAMP_GETTERS]
    for type_ in _COMPARABLE:
        lines += [
            f"list_{type_}_is_sorted_bool list({type_}).isSorted() bool",
            f"list_{type_}_max_{type_} list({type_}).max() {type_}",
            f"list_{type_}_min_{type_} list({type_}).min() {type_}",
            f"list_{type_}_sort list({type_}).sort() list({type_})",
            f"list_{type_}_sortByAssociatedKeys list(T).@sortByAssociatedKeys(list({type_})) list(T)",
        ]
    lines += [
        f"list_{type_}_sum_{type_} list({type_}).sum() {type_}" for type_ in ("int", "uint", "double", "duration")
    ]
    return "\n".join(lines)


@cache
def overloads_by_name() -> dict[str, list[Overload]]:
    """Return the declared overloads by function name."""
    tables = (_OPERATORS, _ordering_overloads(), _STANDARD, _overloads_per_type(), _EXTENSIONS)
    return parse_overloads("\n".join(tables), _QUALIFIED_NAMES)


def parse_overloads(table: str, qualified_names: Collection[str]) -> dict[str, list[Overload]]:
    """Return the overloads of a table by function name. qualified_names: functions with a dot in their name."""
    overloads: dict[str, list[Overload]] = {}
    for line in table.splitlines():
        if line:
            name, overload = _parse_overload(line, qualified_names)
            overloads.setdefault(name, []).append(overload)
    return overloads


def _parse_overload(line: str, qualified_names: Collection[str]) -> tuple[str, Overload]:
    identifier, rest = line.split(None, 1)
    opening = _call_parenthesis(rest)
    head, closing = rest[:opening], _closing(rest, opening)
    arguments, result = rest[opening + 1 : closing], rest[closing + 1 :].strip()
    is_global = head in qualified_names or head[0] == "_"
    owner, dot, name = ("", "", head) if is_global else head.rpartition(".")
    types = ([_parse_type(owner)] if dot else []) + [_parse_type(argument) for argument in _split_arguments(arguments)]
    names = frozenset(re.findall(r"\b[A-Z]\b", line))
    return name, Overload(identifier, tuple(types), _parse_type(result), bool(dot), names)


def _call_parenthesis(text: str) -> int:
    """Return the index of the parenthesis that opens the call's own argument list."""
    depth, opening = 0, -1
    for at, char in enumerate(text):
        if char == "(":
            opening = at if depth == 0 else opening
            depth += 1
        elif char == ")":
            depth -= 1
            if depth == 0 and text[at + 1 : at + 2] != ".":
                return opening
    return opening


def _closing(text: str, opening: int) -> int:
    depth = 0
    for at in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return len(text)


def _split_arguments(text: str) -> list[str]:
    """Split at the commas outside of parentheses."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


@cache
def _parse_type(text: str) -> Type:
    name, opening, inner = text.partition("(")
    if opening:
        parameters = [_parse_type(parameter) for parameter in _split_arguments(inner[:-1])]
        if name == "list":
            return list_of(parameters[0])
        if name == "map":
            return map_of(parameters[0], parameters[1])
        return optional_of(parameters[0]) if name == "optional" else type_of_type(parameters[0])
    if re.fullmatch(r"[A-Z]", text):
        return Type("param", text)
    return _TYPE_ALIASES[text] if text in _TYPE_ALIASES else NAMED_TYPES[text]
