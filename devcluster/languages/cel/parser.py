"""Expressions to nodes. Source: cel-go parser/parser.go; the words of syntax errors are those of its ANTLR grammar."""

from __future__ import annotations

from kubeloop.devcluster.languages.cel import macros
from kubeloop.devcluster.languages.cel.lexer import Token, bytes_of, text_of, tokens
from kubeloop.devcluster.languages.cel.syntax import (
    Call,
    Entry,
    ExpressionError,
    Ident,
    Issue,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    Struct,
)
from kubeloop.devcluster.languages.cel.types import RESERVED
from kubeloop.devcluster.languages.cel.values import Uint, parse_integer

_MAX_DEPTH = 250
_MAX_LENGTH = 100_000
_RELATIONS = {"<": "_<_", "<=": "_<=_", ">": "_>_", ">=": "_>=_", "==": "_==_", "!=": "_!=_", "in": "@in"}
_SUMS = {"+": "_+_", "-": "_-_"}
_PRODUCTS = {"*": "_*_", "/": "_/_", "%": "_%_"}
_BEGINNINGS = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
_MAX_INT, _MAX_UINT = (1 << 63) - 1, (1 << 64) - 1


def parse(source: str) -> Node:
    """The tree of an expression, macros expanded. Raises ExpressionError."""
    if len(source) > _MAX_LENGTH:
        told = f"expression code point size exceeds limit: size: {len(source)}, limit {_MAX_LENGTH}"
        raise ExpressionError(source, [Issue(-1, told)])
    found, issues = tokens(source)
    parser = _Parser(source, found, issues)
    try:
        node = parser.whole()
    except _Stop:
        raise ExpressionError(source, issues) from None
    if issues:
        raise ExpressionError(source, issues)
    return node


class _Stop(Exception):
    """A syntax error behind which nothing makes sense; it has been told."""


class _Parser:
    def __init__(self, source: str, found: list[Token], issues: list[Issue]) -> None:
        self._source = source
        self._tokens = found
        self._at = 0
        self._depth = 0
        self._issues = issues

    # --- tokens ---------------------------------------------------------------------------------------------------

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _is(self, *signs: str) -> bool:
        return self._next.kind == "sign" and self._next.text in signs

    def _take(self) -> Token:
        token = self._tokens[self._at]
        if token.kind != "end":
            self._at += 1
        return token

    def _accept(self, sign: str) -> Token | None:
        return self._take() if self._is(sign) else None

    def _wrong(self, told: str, at: int | None = None) -> _Stop:
        self._issues.append(Issue(self._next.at if at is None else at, f"Syntax error: {told}"))
        return _Stop()

    def _expect(self, sign: str, *, or_comma: bool = False) -> Token:
        """or_comma: there might have been one, too."""
        token, found = self._accept(sign), self._next
        if token is not None:
            return token
        after = self._tokens[self._at + (found.kind != "end")]
        wanted = f"{{'{sign}', ','}}" if or_comma else f"'{sign}'"
        if after.kind == "sign" and after.text == sign:
            raise self._wrong(f"extraneous input '{found.text}' expecting {wanted}")
        if not or_comma and (_begins(found) if sign == ":" else found.kind == "end"):
            raise self._wrong(f"missing '{sign}' at '{found.text}'")
        raise self._wrong(f"mismatched input '{found.text}' expecting {wanted}")

    def _goes_on(self, closing: str) -> bool:
        """Is there another element of a list, or entry of a map? Takes the comma before it, or the end."""
        if self._accept(",") is None:
            self._expect(closing, or_comma=True)
            return False
        if self._next.kind == "end":
            self._expect(closing)
        return self._accept(closing) is None

    # --- operators ------------------------------------------------------------------------------------------------

    def whole(self) -> Node:
        node = self._expression()
        if self._next.kind != "end":
            alone = self._tokens[self._at + 1].kind == "end"  # one token too many can be left out
            raise self._wrong(f"{'extraneous' if alone else 'mismatched'} input '{self._next.text}' expecting <EOF>")
        return node

    def _expression(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._issues.append(Issue(-1, f"expression recursion limit exceeded: {_MAX_DEPTH}"))
            raise _Stop
        node = self._logical("||", "_||_", lambda: self._logical("&&", "_&&_", self._relation))
        mark = self._accept("?")
        if mark is not None:
            then = self._logical("||", "_||_", lambda: self._logical("&&", "_&&_", self._relation))
            self._expect(":")
            node = Call(mark.at, "_?_:_", [node, then, self._expression()])
        self._depth -= 1
        return node

    def _logical(self, sign: str, name: str, operand: object) -> Node:
        assert callable(operand)
        terms, operators = [operand()], []
        while self._is(sign):
            operators.append(self._take().at)
            terms.append(operand())
        return terms[0] if not operators else _balanced(name, terms, operators, 0, len(operators) - 1)

    def _relation(self) -> Node:
        node = self._sum()
        while self._is(*_RELATIONS):
            token = self._take()
            node = Call(token.at, _RELATIONS[token.text], [node, self._sum()])
        return node

    def _sum(self) -> Node:
        node = self._product()
        while self._is("+", "-"):
            token = self._take()
            node = Call(token.at, _SUMS[token.text], [node, self._product()])
        return node

    def _product(self) -> Node:
        node = self._unary()
        while self._is("*", "/", "%"):
            token = self._take()
            node = Call(token.at, _PRODUCTS[token.text], [node, self._unary()])
        return node

    def _unary(self) -> Node:
        if self._is("!", "-"):
            first = self._take()
            if first.text == "-" and self._next.kind in ("int", "float"):
                return self._member(self._number(first))
            count = 1
            while self._is(first.text):
                self._take()
                count += 1
            node = self._member(self._primary())
            return Call(first.at, f"{first.text}_", [node]) if count % 2 else node
        return self._member(self._primary())

    # --- members --------------------------------------------------------------------------------------------------

    def _member(self, node: Node) -> Node:
        while True:
            if self._is("."):
                dot = self._take()
                optional = self._accept("?")
                if self._next.kind == "escaped":
                    self._issues.append(Issue(self._next.at, "unsupported syntax: '`'"))
                    raise _Stop
                if self._is("in"):  # no name; what follows is read as `node in ...`
                    self._wrong("no viable alternative at input '.in'")
                    return node
                name = self._take()
                if name.kind == "constant":
                    raise self._wrong(f"mismatched input '{name.text}' expecting IDENTIFIER", name.at)
                if name.kind != "name":
                    raise self._no_name(dot, name)
                if optional is not None:
                    node = Call(dot.at, "_?._", [node, Literal(name.at, name.text)])
                elif self._is("("):
                    opening = self._take()
                    node = self._call(opening.at, name.text, self._arguments(), node)
                else:
                    node = Select(dot.at, node, name.text)
            elif self._is("["):
                bracket = self._take()
                operator = "_[?_]" if self._accept("?") is not None else "_[_]"
                node = Call(bracket.at, operator, [node, self._expression()])
                self._expect("]")
            else:
                return node

    def _no_name(self, dot: Token, found: Token) -> _Stop:
        end = found.at + (0 if found.kind == "end" else len(found.text))
        return self._wrong(f"no viable alternative at input '{self._source[dot.at : end]}'", found.at)

    def _call(self, at: int, name: str, args: list[Node], target: Node | None) -> Node:
        try:
            expanded = macros.expand(at, name, args, target)
        except macros.MacroError as error:
            self._issues.append(Issue(error.at, str(error)))
            return Literal(at, False)
        return expanded if expanded is not None else Call(at, name, args, target)

    def _arguments(self) -> list[Node]:
        found: list[Node] = []
        if self._accept(")") is not None:
            return found
        while True:
            found.append(self._expression())
            if self._accept(",") is None:
                self._expect(")")
                return found

    # --- primaries ------------------------------------------------------------------------------------------------

    def _primary(self) -> Node:
        token = self._next
        match token.kind:
            case "int" | "float" | "uint":
                return self._number(None)
            case "string" | "bytes":
                self._take()
                return self._text(token)
            case "constant":
                self._take()
                return Literal(token.at, {"true": True, "false": False, "null": None}[token.text])
            case "name":
                return self._named(self._take(), token.at, "")
        if self._accept("(") is not None:
            node = self._expression()
            self._expect(")")
            return node
        if self._accept("[") is not None:
            return self._list(token.at)
        if self._accept("{") is not None:
            return MapNode(token.at, self._entries(names=False))
        if self._accept(".") is not None:
            name = self._take()
            if name.kind != "name":
                raise self._no_name(token, name)
            return self._named(name, token.at, ".")
        if token.kind != "end" and _begins(self._tokens[self._at + 1]):
            self._wrong(f"extraneous input '{token.text}' expecting {_BEGINNINGS}")
            self._take()
            return self._primary()
        raise self._wrong(f"mismatched input '{token.text}' expecting {_BEGINNINGS}")

    def _named(self, token: Token, at: int, dot: str) -> Node:
        """A variable, a call or a struct."""
        name = token.text
        struct = self._struct_name(name)
        if struct is not None:
            opening = self._take()
            return Struct(opening.at, dot + struct, self._entries(names=True))
        if name in RESERVED:
            self._issues.append(Issue(at, f"reserved identifier: {name}"))
        if self._is("("):
            opening = self._take()
            arguments = self._arguments()
            if name in RESERVED:
                return Literal(at, False)
            return self._call(opening.at, dot + name, arguments, None)
        return Ident(token.at, dot + name)

    def _struct_name(self, name: str) -> str | None:
        """A name with dots if a brace follows it; the names after the first are then taken."""
        at, found = self._at, name
        while self._tokens[at].text == "." and self._tokens[at].kind == "sign" and self._tokens[at + 1].kind == "name":
            found += f".{self._tokens[at + 1].text}"
            at += 2
        if self._tokens[at].kind == "sign" and self._tokens[at].text == "{":
            self._at = at
            return found
        return None

    def _list(self, at: int) -> ListNode:
        elements: list[Node] = []
        optional: set[int] = set()
        goes_on = self._accept("]") is None
        while goes_on:
            if self._accept("?") is not None:
                optional.add(len(elements))
            elements.append(self._expression())
            goes_on = self._goes_on("]")
        return ListNode(at, elements, frozenset(optional))

    def _entries(self, *, names: bool) -> list[Entry]:
        found: list[Entry] = []
        goes_on = self._accept("}") is None
        while goes_on:
            optional = self._accept("?") is not None
            key: Node
            if names:
                name = self._take()
                if name.kind != "name":
                    raise self._wrong(f"mismatched input '{name.text}' expecting {{'?', '}}', IDENTIFIER}}", name.at)
                key = Literal(name.at, name.text)
            else:
                key = self._expression()
            colon = self._expect(":")
            found.append(Entry(colon.at, key, self._expression(), optional=optional))
            goes_on = self._goes_on("}")
        return found

    def _number(self, sign: Token | None) -> Node:
        token = self._take()
        at, text = (token.at if sign is None else sign.at), ("-" if sign is not None else "") + token.text
        if token.kind == "float":
            return Literal(at, float(text))
        unsigned = token.kind == "uint"
        digits = text.rstrip("uU") if unsigned else text
        value = int(digits, 16) if "0x" in digits else parse_integer(digits)
        if unsigned:
            if value > _MAX_UINT:
                self._issues.append(Issue(at, "invalid uint literal"))
            return Literal(at, Uint(value))
        if not -_MAX_INT - 1 <= value <= _MAX_INT:
            self._issues.append(Issue(at, "invalid int literal"))
        return Literal(at, value)

    def _text(self, token: Token) -> Node:
        try:
            return Literal(token.at, bytes_of(token.text) if token.kind == "bytes" else text_of(token.text))
        except ValueError as error:
            self._issues.append(Issue(token.at, str(error)))
            return Literal(token.at, "")


def _balanced(name: str, terms: list[Node], operators: list[int], low: int, high: int) -> Call:
    """Terms of one logical operator as a tree that is as deep as it must be."""
    middle = (low + high + 1) // 2
    left = terms[middle] if middle == low else _balanced(name, terms, operators, low, middle - 1)
    right = terms[middle + 1] if middle == high else _balanced(name, terms, operators, middle + 1, high)
    return Call(operators[middle], name, [left, right])


def _begins(token: Token) -> bool:
    """Can an expression begin with it?"""
    if token.kind == "sign":
        return token.text in ("[", "{", "(", ".", "-", "!")
    return token.kind not in ("end", "escaped")
