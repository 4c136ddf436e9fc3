"""Parser of Go templates: text with `{{ ... }}` actions to a tree of nodes, each with its line number.

Supports the syntax of text/template except define, template and block. Names of functions and variables are checked
while parsing, so a parsed template can only fail because of its data. Source: text/template/parse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias


class TemplateError(Exception):
    """An invalid or unsupported template, or one that does not fit the data. `line` counts from 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line
        self.problem = problem


# --- the tree -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Constant:
    line: int
    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Dot:
    line: int


@dataclass(frozen=True, slots=True)
class Variable:
    line: int
    name: str  # with its dollar sign; "$" is the data the template was given


@dataclass(frozen=True, slots=True)
class Fields:
    """Field access on `of`: .spec.nodeName, $pod.metadata, (index .items 0).name."""

    line: int
    of: Operand
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FunctionCall:
    line: int
    name: str
    arguments: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands from left to right; each receives the previous result as last argument. `sets`: assigned variables."""

    line: int
    commands: tuple[Operand, ...]
    sets: tuple[str, ...] = ()
    declares: bool = False


Operand: TypeAlias = Constant | Dot | Variable | Fields | FunctionCall | Pipeline


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Action:
    pipeline: Pipeline


@dataclass(slots=True)
class Branch:
    """An if, with or range action: `body` or `otherwise`."""

    word: str
    pipeline: Pipeline
    body: list[Node] = field(default_factory=list)
    otherwise: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Leave:
    """A break or continue action."""

    line: int
    word: str


Node: TypeAlias = Text | Action | Branch | Leave


# --- tokens ---------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<string>"(?:[^"\\\n]|\\.)*") | (?P<raw>`[^`]*`) | (?P<char>'(?:[^'\\\n]|\\.)+')
      | (?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))
      | (?P<variable>\$\w*) | (?P<field>\.[^\W\d]\w*) | (?P<dot>\.) | (?P<word>[^\W\d]\w*)
      | (?P<sign>:=|[=|(),])""",
    re.VERBOSE,
)
_KEYWORDS = {"if", "else", "end", "range", "with", "break", "continue", "define", "template", "block"}
_UNSUPPORTED = {"define", "template", "block"}


@dataclass(frozen=True, slots=True)
class TemplateToken:
    kind: str
    text: str
    line: int
    spaced: bool  # after white space


def _tokens(text: str, line: int) -> list[TemplateToken]:
    """Return the tokens of one action."""
    tokens, at, spaced = [], 0, True
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            sign = text[at]
            problem = "a string that does not end" if sign in "\"'`" else f"unexpected {sign!r}"
            raise TemplateError(line, f"{problem} in an action")
        kind = match.lastgroup or ""
        if kind != "space":
            tokens.append(TemplateToken(kind, match[0], line, spaced))
        spaced = kind == "space"
        line += match[0].count("\n")
        at = match.end()
    return tokens


def _pieces(text: str) -> Iterator[Text | list[TemplateToken]]:
    """Yield text and actions, white space trimmed at {{- and -}}, without comments."""
    at, line, trim = 0, 1, False
    while True:
        start = text.find("{{", at)
        plain = text[at:] if start < 0 else text[at:start]
        trims_left = start >= 0 and bool(re.match(r"-\s", text[start + 2 : start + 4]))
        shown = plain.lstrip() if trim else plain
        shown = shown.rstrip() if trims_left else shown
        if shown:
            yield Text(shown)
        if start < 0:
            return
        line += plain.count("\n")
        inner = start + (3 if trims_left else 2)
        comment = re.compile(r"\s*/\*").match(text, inner)
        stop = _end_of_action(text, inner, line) if comment is None else text.find("*/", inner)
        if stop < 0:
            raise TemplateError(line, "a comment that does not end")
        if comment is not None:
            closing = re.compile(r"\*/(\s+-)?}}").match(text, stop)
            if closing is None:
                raise TemplateError(line, "a comment must end with */}}")
            trim, end, content = closing[1] is not None, closing.end(), ""
        else:
            content, end = text[inner:stop], stop + 2
            trim = bool(re.search(r"\s-\Z", content))
            content = content[:-1] if trim else content
        if comment is None:
            tokens = _tokens(content, line)
            if not tokens:
                raise TemplateError(line, "missing value for command")
            yield tokens
        line += text.count("\n", start, end)
        at = end


def _end_of_action(text: str, at: int, line: int) -> int:
    """Return the index of the }} that ends the action, ignoring those within strings."""
    quoted = re.compile(r"""}}|"(?:[^"\\\n]|\\.)*"|`[^`]*`|'(?:[^'\\\n]|\\.)+'""")
    for match in quoted.finditer(text, at):
        if match[0] == "}}":
            return match.start()
    raise TemplateError(line, "unclosed action: }} is missing")


# --- the parser -----------------------------------------------------------------------------------

Arity: TypeAlias = tuple[int, int | None]
"""Minimum and maximum number of arguments of a function; a maximum of None means any number."""


def parse(text: str, functions: Mapping[str, Arity], refused: Mapping[str, str]) -> list[Node]:
    """Parse a template. refused: the reason by the name of a function. Raises TemplateError."""
    return _Parser(text, functions, refused).parse()


class _Parser:
    def __init__(self, text: str, functions: Mapping[str, Arity], refused: Mapping[str, str]) -> None:
        self._pieces = _pieces(text)
        self._functions = functions
        self._refused = refused
        self._variables = ["$"]  # variables in scope, innermost last
        self._loops = 0

    def parse(self) -> list[Node]:
        nodes, end = self._nodes()
        if end is not None:
            raise TemplateError(end[0].line, f"unexpected {{{{{end[0].text}}}}}")
        return nodes

    def _nodes(self) -> tuple[list[Node], list[TemplateToken] | None]:
        """Return the nodes up to the end of the text (None), or up to an {{else}} or {{end}}, which is returned."""
        nodes: list[Node] = []
        for piece in self._pieces:
            if isinstance(piece, Text):
                nodes.append(piece)
                continue
            first = piece[0]
            word = first.text if first.kind == "word" else ""
            if word in _UNSUPPORTED:
                raise TemplateError(first.line, f"{{{{{word}}}}} is not supported")
            if word in ("else", "end"):
                return nodes, piece
            if word in ("if", "with", "range"):
                nodes.append(self._branch(piece))
            elif word in ("break", "continue"):
                if not self._loops or len(piece) > 1:
                    raise TemplateError(first.line, f"{{{{{word}}}}} outside of a range")
                nodes.append(Leave(first.line, word))
            else:
                nodes.append(Action(self._whole_pipeline(piece)))
        return nodes, None

    def _branch(self, tokens: list[TemplateToken]) -> Branch:
        word, line = tokens[0].text, tokens[0].line
        in_sight = len(self._variables)
        self._loops += word == "range"
        branch = Branch(word, self._whole_pipeline(tokens[1:], line=line, ranges=word == "range"))
        branch.body, end = self._nodes()
        if end is not None and end[0].text == "else":
            self._loops -= word == "range"
            if len(end) > 1:  # {{else if}}, {{else with}}: closed by the same {{end}}
                if end[1].text not in ("if", "with") or end[1].kind != "word" or word == "range":
                    raise TemplateError(end[0].line, "unexpected words after {{else}}")
                branch.otherwise = [self._branch(end[1:])]
                del self._variables[in_sight:]
                return branch
            branch.otherwise, end = self._nodes()
            self._loops += word == "range"
            if end is not None and end[0].text == "else":
                raise TemplateError(end[0].line, "a second {{else}}")
        if end is None:
            raise TemplateError(line, f"{{{{{word}}}}} without its {{{{end}}}}")
        if len(end) > 1:
            raise TemplateError(end[0].line, "unexpected words after {{end}}")
        self._loops -= word == "range"
        del self._variables[in_sight:]
        return branch

    def _whole_pipeline(self, tokens: Sequence[TemplateToken], *, line: int = 0, ranges: bool = False) -> Pipeline:
        if not tokens:
            raise TemplateError(line, "missing value")
        pipeline, rest = self._pipeline(list(tokens), ranges=ranges)
        if rest:
            raise TemplateError(rest[0].line, f"unexpected {rest[0].text!r}")
        return pipeline

    def _pipeline(self, tokens: list[TemplateToken], *, ranges: bool = False) -> tuple[Pipeline, list[TemplateToken]]:
        """Return a pipeline up to a closing parenthesis or the end, and the remaining tokens."""
        line = tokens[0].line
        names, declares, tokens = self._assignment(tokens, ranges=ranges)
        commands: list[Operand] = []
        while True:
            command, tokens = self._command(tokens, line, piped=bool(commands))
            commands.append(command)
            if not tokens or tokens[0].text != "|":
                break
            tokens = tokens[1:]
        if declares:
            self._variables += names
        return Pipeline(line, tuple(commands), tuple(names), declares), tokens

    def _assignment(self, tokens: list[TemplateToken], *, ranges: bool) -> tuple[list[str], bool, list[TemplateToken]]:
        """Parse $x := or $x =, or, if `ranges`, $i, $x :=."""
        names = [tokens[0].text] if tokens[0].kind == "variable" else []
        at = 1
        if names and ranges and len(tokens) > 2 and tokens[1].text == "," and tokens[2].kind == "variable":
            names.append(tokens[2].text)
            at = 3
        if not names or len(tokens) <= at or tokens[at].text not in (":=", "="):
            return [], False, tokens
        declares = tokens[at].text == ":="
        for name in names:
            if name == "$" or (not declares and name not in self._variables):
                raise TemplateError(tokens[0].line, f"undefined variable {name}")
        return names, declares, tokens[at + 1 :]

    def _command(self, tokens: list[TemplateToken], line: int, *, piped: bool) -> tuple[Operand, list[TemplateToken]]:
        """Parse operands up to a pipe, a closing parenthesis or the end: one value, or a function with arguments."""
        operands: list[Operand] = []
        first = tokens[0] if tokens else None
        calls = first is not None and first.kind == "word" and first.text not in ("true", "false", "nil")
        while tokens and tokens[0].text not in ("|", ")"):
            operand, tokens = self._operand(tokens)
            operands.append(operand)
        if first is None or not operands:
            raise TemplateError(line, "missing value for command")
        if not calls:
            if len(operands) > 1 or piped:
                raise TemplateError(first.line, f"{first.text} is not a function, but is given arguments")
            return operands[0], tokens
        function = operands[0]
        if not isinstance(function, FunctionCall):  # a function's fields: `dict.name`
            raise TemplateError(first.line, f"{first.text} needs parentheses before a field of its result")
        self._check_arguments(function, len(operands) - 1 + piped)
        for operand in operands[1:]:
            if isinstance(operand, FunctionCall):  # a bare function among the arguments: called with none
                self._check_arguments(operand, 0)
        return FunctionCall(function.line, function.name, tuple(operands[1:])), tokens

    def _check_arguments(self, call: FunctionCall, count: int) -> None:
        least, most = self._functions[call.name]
        if count < least or (most is not None and count > most):
            expected = str(least) if least == most else f"at least {least}" if most is None else f"{least} to {most}"
            raise TemplateError(call.line, f"wrong number of arguments for {call.name}: wants {expected}, got {count}")

    def _operand(self, tokens: list[TemplateToken]) -> tuple[Operand, list[TemplateToken]]:
        """Parse a term with the fields that follow it without a space."""
        token, rest = tokens[0], tokens[1:]
        line = token.line
        term: Operand
        match token.kind:
            case "string" | "raw" | "char" | "number":
                return Constant(line, _literal(token)), rest
            case "variable":
                if token.text not in self._variables:
                    raise TemplateError(line, f"undefined variable {token.text}")
                term = Variable(line, token.text)
            case "dot":
                return Dot(line), rest
            case "field":
                term = Dot(line)
                rest = [TemplateToken("field", token.text, line, False), *rest]
            case "word":
                if token.text in ("true", "false", "nil"):
                    return Constant(line, {"true": True, "false": False, "nil": None}[token.text]), rest
                if token.text in _KEYWORDS:
                    raise TemplateError(line, f"unexpected {{{{{token.text}}}}}")
                if token.text in self._refused:
                    raise TemplateError(line, f"function {token.text!r} is not supported: {self._refused[token.text]}")
                if token.text not in self._functions:
                    raise TemplateError(line, f"function {token.text!r} is not defined")
                if rest and not rest[0].spaced and rest[0].kind == "field":
                    raise TemplateError(line, f"{token.text} needs parentheses before a field of its result")
                term = FunctionCall(line, token.text, ())
            case _ if token.text == "(":
                if not rest:
                    raise TemplateError(line, "( that is not closed")
                term, rest = self._pipeline(rest)
                if not rest or rest[0].text != ")":
                    raise TemplateError(line, "( that is not closed")
                rest = rest[1:]
            case _:
                raise TemplateError(line, f"unexpected {token.text!r}")
        names = []
        while rest and rest[0].kind == "field" and not rest[0].spaced:
            names.append(rest[0].text[1:])
            rest = rest[1:]
        if rest and not rest[0].spaced and rest[0].kind not in ("sign",):
            raise TemplateError(line, f"unexpected {rest[0].text!r} after {token.text!r}")
        return (Fields(line, term, tuple(names)) if names else term), rest


def _literal(token: TemplateToken) -> str | int | float:
    text = token.text
    if token.kind == "raw":
        return text[1:-1]
    if token.kind == "number":
        try:
            return int(text, 0) if re.fullmatch(r"[+-]?(0[xX][0-9a-fA-F]+|\d+)", text) else float(text)
        except ValueError:  # 007
            return int(text, 8)
    inner = text[1:-1]
    if token.kind == "char":
        inner = inner.replace("\\'", "'").replace('"', '\\"')
    escaped = re.sub(r"\\x([0-9a-fA-F]{2})", r"\\u00\1", inner).replace("\\a", "\\u0007").replace("\\v", "\\u000b")
    try:
        value: str = json.loads(f'"{escaped}"', strict=False)
    except ValueError:
        raise TemplateError(token.line, f"bad escape in {text}") from None
    return ord(value) if token.kind == "char" else value
