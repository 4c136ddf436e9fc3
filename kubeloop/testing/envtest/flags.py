"""Flags of an executable as Go's pflag parses them, from a table in a JSON file beside this module.

Imports the standard library and msgspec only.
"""

from __future__ import annotations

import csv
import ipaddress
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec


class FlagError(Exception):
    """Wrong command line, with the message of Go's pflag or what to do."""


class Flag(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One flag. type: as --help shows it, "" for bool. default: as text.

    accepted: why it changes nothing that a client can see; refused: why any value but the default is refused, and what
    to do; both "": obeyed.
    """

    name: str
    type: str = ""
    default: str = ""
    accepted: str = ""
    refused: str = ""
    short: str = ""


class Flags:
    """Parsed flags; a flag that is not set has the default of the table."""

    def __init__(self, table: dict[str, Flag], values: dict[str, list[str]]) -> None:
        self._table = table
        self._values = values

    @property
    def positional(self) -> list[str]:
        """The arguments that are no flags."""
        return self._values.get("", [])

    def is_set(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str:
        """Return the value of a flag; of several, the last."""
        return self._values.get(name, [self._table[name].default])[-1]

    def boolean(self, name: str) -> bool:
        return self.text(name) in _TRUE

    def all_texts(self, name: str) -> list[str]:
        """Return the values of a flag that may be repeated."""
        default = self._table[name].default
        return self._values.get(name, [default] if default else [])

    def strings(self, name: str) -> list[str]:
        """Return the items of all comma-separated values."""
        return [item for text in self.all_texts(name) for item in next(csv.reader([text]), [])]

    def pairs(self, name: str) -> dict[str, str]:
        """Return the items KEY=VALUE; VALUE is "" in an item without it."""
        items = (item.partition("=") for item in self.strings(name))
        return {key.strip(): value.strip() for key, _, value in items if key.strip()}


def flag_table(program: str) -> dict[str, Flag]:
    """Return the flags of `etcd` or `kube-apiserver` by name."""
    path = Path(__file__).with_name(f"{program.replace('-', '_')}_flags.json")
    return {flag.name: flag for flag in msgspec.json.decode(path.read_bytes(), type=list[Flag])}


def parse_flags(table: dict[str, Flag], arguments: Sequence[str], *, single_dash: bool = False) -> Flags:
    """Return the flags of a command line. Raises FlagError for unknown, invalid and refused flags.

    single_dash: names may follow a single dash, as of Go's package flag, whose messages are used then.
    """
    unknown = "flag provided but not defined: -{}" if single_dash else "unknown flag: --{}"
    values: dict[str, list[str]] = {}
    shorts = {flag.short: flag for flag in table.values() if flag.short}
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        if argument == "--":
            values.setdefault("", []).extend(reversed(waiting))
            break
        if argument.startswith("--") or (single_dash and argument.startswith("-")):
            name, equals, value = argument.lstrip("-").partition("=")
            flag = table.get(name.replace("_", "-"))
            if flag is None:
                raise FlagError(unknown.format(name))
        elif argument.startswith("-") and len(argument) > 1:
            flag = shorts.get(argument[1])
            if flag is None:
                raise FlagError(f"unknown shorthand flag: {argument[1]!r} in {argument}")
            value = argument[2:].removeprefix("=")
            equals = "=" if argument[2:] else ""
        else:
            values.setdefault("", []).append(argument)
            continue
        if not equals:
            if flag.type in _VALUE_IF_ALONE:
                value = _VALUE_IF_ALONE[flag.type]
            elif waiting:
                value = waiting.pop()
            else:
                raise FlagError(f"flag needs an argument: --{flag.name}")
        _check(flag, value)
        values.setdefault(flag.name, []).append(value)
    return Flags(table, values)


def help_text(table: dict[str, Flag]) -> str:
    """Return one line for each flag, with the reason why it is accepted or refused."""
    lines = []
    for flag in table.values():
        effect = f"No effect: {flag.accepted}" if flag.accepted else f"Refused: {flag.refused}" if flag.refused else ""
        default = f"(default {flag.default})" if flag.default else ""
        short = f"-{flag.short}, " if flag.short else "    "
        line = f"  {short}--{flag.name} {flag.type}"
        lines.append(f"{line:<62} {' '.join(filter(None, (effect, default)))}".rstrip())
    return "\n".join(lines) + "\n"


# --- values -----------------------------------------------------------------------------------------------------------

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_VALUE_IF_ALONE = {"": "true", "version[=true]": "true"}
_DURATION = re.compile(r"[+-]?(0|(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))*")
_INTEGER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|0[oO]?[0-7]*|0[bB][01]+|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _check(flag: Flag, value: str) -> None:
    """Raise FlagError for a value of the wrong type, and for a refused flag with another value than its default."""
    check = _CHECKS.get(flag.type)
    if check is not None and (problem := check(value)):
        name = f"-{flag.short}, --{flag.name}" if flag.short else f"--{flag.name}"
        raise FlagError(f'invalid argument "{value}" for "{name}" flag: {problem}')
    if flag.refused and value != flag.default and not (flag.type == "" and value in _FALSE and not flag.default):
        raise FlagError(f"--{flag.name}={value} is not supported by kubeloop: {flag.refused}")


def _pattern_check(pattern: re.Pattern[str], problem: str) -> Callable[[str], str]:
    return lambda value: "" if pattern.fullmatch(value) else problem.format(value)


def _boolean_problem(value: str) -> str:
    return "" if value in _TRUE | _FALSE else f'strconv.ParseBool: parsing "{value}": invalid syntax'


def _address_problem(value: str) -> str:
    try:
        ipaddress.ip_address(value.strip())
    except ValueError:
        return f'failed to parse IP: "{value}"'
    return ""


_CHECKS: dict[str, Callable[[str], str]] = {
    "": _boolean_problem,
    "int": _pattern_check(_INTEGER, 'strconv.ParseInt: parsing "{}": invalid syntax'),
    "float": _pattern_check(_FLOAT, 'strconv.ParseFloat: parsing "{}": invalid syntax'),
    "float32": _pattern_check(_FLOAT, 'strconv.ParseFloat: parsing "{}": invalid syntax'),
    "duration": _pattern_check(_DURATION, 'time: invalid duration "{}"'),
    "ip": _address_problem,
    "Level": _pattern_check(re.compile(r"\d+"), 'strconv.ParseUint: parsing "{}": invalid syntax'),
    "namedCertKey": _pattern_check(
        re.compile(r"[^,]+,[^,:]+(:.*)?"), "expected comma separated certificate and key file paths"
    ),
    "portRange": _pattern_check(re.compile(r"\d+([-+]\d+)?"), 'strconv.Atoi: parsing "{}": invalid syntax'),
    "stringToString": _pattern_check(re.compile(r"[^=]+=.*"), "{} must be formatted as key=value"),
    "mapStringString": lambda value: "",
}
