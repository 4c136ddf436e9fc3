"""Parser: tokens to nodes. Source: cel-go parser/parser.go; syntax errors have the texts of its ANTLR grammar."""

from __future__ import annotations

from kubeloop.cel import macros
from kubeloop.cel.go_text import parse_integer
from kubeloop.cel.lexer import Token, bytes_value, string_value, tokens
from kubeloop.cel.syntax import (
    Call,
    ExpressionError,
    Ident,
    Issue,
    ListNode,
    Literal,
    MapEntry,
    MapNode,
    Node,
    Select,
    StructLiteral,
)
from kubeloop.cel.types import RESERVED
from kubeloop.cel.values import Uint

_MAX_DEPTH = 250
_MAX_LENGTH = 100_000
_OR, _AND, _RELATION, _SUM, _PRODUCT = range(5)  # precedences
_OPERATORS = {
    "||": (_OR, "_||_"),
    "&&": (_AND, "_&&_"),
    **{sign: (_RELATION, f"_{sign}_") for sign in ("<", "<=", ">", ">=", "==", "!=")},
    "in": (_RELATION, "@in"),
    **{sign: (_SUM, f"_{sign}_") for sign in "+-"},
    **{sign: (_PRODUCT, f"_{sign}_") for sign in "*/%"},
}
_EXPRESSION_STARTS = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
_MAX_INT, _MAX_UINT = (1 << 63) - 1, (1 << 64) - 1


def parse(source: str, *, bindings: bool = False) -> Node:
    """Return the syntax tree of an expression with macros expanded. Raises ExpressionError.

    bindings: cel.bind() is a macro.
    """
    if len(source) > _MAX_LENGTH:
        message = f"expression code point size exceeds limit: size: {len(source)}, limit {_MAX_LENGTH}"
        raise ExpressionError(source, [Issue(-1, message)])
    lexed, issues = tokens(source)
    parser = _Parser(source, lexed, issues, bindings=bindings)
    try:
        node = parser.complete_expression()
    except _Stop:
        raise ExpressionError(source, issues) from None
    if issues:
        raise ExpressionError(source, issues)
    return node


class _Stop(Exception):
    """Ends parsing after a syntax error that was recorded as an issue."""


class _Parser:
    def __init__(self, source: str, lexed: list[Token], issues: list[Issue], *, bindings: bool) -> None:
        self._source = source
        self._bindings = bindings
        self._tokens = lexed
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

    def _syntax_error(self, message: str, offset: int | None = None) -> _Stop:
        self._issues.append(Issue(self._next.offset if offset is None else offset, f"Syntax error: {message}"))
        return _Stop()

    def _expect(self, sign: str, *, or_comma: bool = False) -> Token:
        """Take the token `sign`. or_comma: the error message lists a comma as expected, too."""
        token, unexpected = self._accept(sign), self._next
        if token is not None:
            return token
        after = self._tokens[self._at + (unexpected.kind != "end")]
        expected = f"{{'{sign}', ','}}" if or_comma else f"'{sign}'"
        if after.kind == "sign" and after.text == sign:
            raise self._syntax_error(f"extraneous input '{unexpected.text}' expecting {expected}")
        if not or_comma and (_starts_expression(unexpected) if sign == ":" else unexpected.kind == "end"):
            raise self._syntax_error(f"missing '{sign}' at '{unexpected.text}'")
        raise self._syntax_error(f"mismatched input '{unexpected.text}' expecting {expected}")

    def _has_next(self, closing: str) -> bool:
        """Take the comma before the next element or entry, or `closing`. Return True if another element follows."""
        if self._accept(",") is None:
            self._expect(closing, or_comma=True)
            return False
        if self._next.kind == "end":
            self._expect(closing)
        return self._accept(closing) is None

    # --- operators ------------------------------------------------------------------------------------------------

    def complete_expression(self) -> Node:
        node = self._expression()
        if self._next.kind != "end":
            alone = self._tokens[self._at + 1].kind == "end"  # ANTLR recovers from a single extra token
            raise self._syntax_error(
                f"{'extraneous' if alone else 'mismatched'} input '{self._next.text}' expecting <EOF>"
            )
        return node

    def _expression(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._issues.append(Issue(-1, f"expression recursion limit exceeded: {_MAX_DEPTH}"))
            raise _Stop
        node = self._operation(_OR)
        mark = self._accept("?")
        if mark is not None:
            then = self._operation(_OR)
            self._expect(":")
            node = Call(mark.offset, "_?_:_", [node, then, self._expression()])
        self._depth -= 1
        return node

    def _operation(self, lowest: int) -> Node:
        """Parse binary operators of precedence `lowest` or higher; few calls per parenthesis, for Python's limit."""
        if self._is("!", "-"):
            node = self._unary()
        elif self._accept("(") is not None:
            node = self._expression()
            self._expect(")")
            node = self._member(node)
        else:
            node = self._member(self._primary())
        while True:
            token = self._next
            precedence, name = _OPERATORS.get(token.text, (-1, "")) if token.kind == "sign" else (-1, "")
            if precedence < lowest:
                return node
            if precedence > _AND:
                self._take()
                node = Call(token.offset, name, [node, self._operation(precedence + 1)])
                continue
            terms, operators = [node], []
            while self._is(token.text):
                operators.append(self._take().offset)
                terms.append(self._operation(precedence + 1))
            node = _balanced(name, terms, operators, 0, len(operators) - 1)

    def _unary(self) -> Node:
        first = self._take()
        if first.text == "-" and self._next.kind in ("int", "float"):
            return self._member(self._number(first))
        count = 1
        while self._is(first.text):
            self._take()
            count += 1
        node = self._member(self._primary())
        return Call(first.offset, f"{first.text}_", [node]) if count % 2 else node

    # --- members --------------------------------------------------------------------------------------------------

    def _member(self, node: Node) -> Node:
        while True:
            if self._is("."):
                dot = self._take()
                optional = self._accept("?")
                if self._next.kind == "escaped":
                    self._issues.append(Issue(self._next.offset, "unsupported syntax: '`'"))
                    raise _Stop
                if self._is("in"):  # not a name; the rest is parsed as `node in ...`
                    self._syntax_error("no viable alternative at input '.in'")
                    return node
                name = self._take()
                if name.kind == "constant":
                    raise self._syntax_error(f"mismatched input '{name.text}' expecting IDENTIFIER", name.offset)
                if name.kind != "name":
                    raise self._not_a_name(dot, name)
                if optional is not None:
                    node = Call(dot.offset, "_?._", [node, Literal(name.offset, name.text)])
                elif self._is("("):
                    opening = self._take()
                    node = self._call(opening.offset, name.text, self._arguments(), node)
                else:
                    node = Select(dot.offset, node, name.text)
            elif self._is("["):
                bracket = self._take()
                operator = "_[?_]" if self._accept("?") is not None else "_[_]"
                node = Call(bracket.offset, operator, [node, self._expression()])
                self._expect("]")
            else:
                return node

    def _not_a_name(self, dot: Token, token: Token) -> _Stop:
        end = token.offset + (0 if token.kind == "end" else len(token.text))
        return self._syntax_error(f"no viable alternative at input '{self._source[dot.offset : end]}'", token.offset)

    def _call(self, offset: int, name: str, args: list[Node], target: Node | None) -> Node:
        try:
            expanded = macros.expand(offset, name, args, target, bindings=self._bindings)
        except macros.MacroError as error:
            self._issues.append(Issue(error.offset, str(error)))
            return Literal(offset, False)
        return expanded if expanded is not None else Call(offset, name, args, target)

    def _arguments(self) -> list[Node]:
        arguments: list[Node] = []
        if self._accept(")") is not None:
            return arguments
        while True:
            arguments.append(self._expression())
            if self._accept(",") is None:
                self._expect(")")
                return arguments

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
                return Literal(token.offset, {"true": True, "false": False, "null": None}[token.text])
            case "name":
                return self._named(self._take(), token.offset, "")
        if self._accept("(") is not None:
            node = self._expression()
            self._expect(")")
            return node
        if self._accept("[") is not None:
            return self._list(token.offset)
        if self._accept("{") is not None:
            return MapNode(token.offset, self._entries(names=False))
        if self._accept(".") is not None:
            name = self._take()
            if name.kind != "name":
                raise self._not_a_name(token, name)
            return self._named(name, token.offset, ".")
        if token.kind != "end" and _starts_expression(self._tokens[self._at + 1]):
            self._syntax_error(f"extraneous input '{token.text}' expecting {_EXPRESSION_STARTS}")
            self._take()
            return self._primary()
        raise self._syntax_error(f"mismatched input '{token.text}' expecting {_EXPRESSION_STARTS}")

    def _named(self, token: Token, offset: int, dot: str) -> Node:
        """Parse a variable, a call or a struct that starts with a name."""
        name = token.text
        struct = self._struct_name(name)
        if struct is not None:
            opening = self._take()
            return StructLiteral(opening.offset, dot + struct, self._entries(names=True))
        if name in RESERVED:
            self._issues.append(Issue(offset, f"reserved identifier: {name}"))
        if self._is("("):
            opening = self._take()
            arguments = self._arguments()
            if name in RESERVED:
                return Literal(offset, False)
            return self._call(opening.offset, dot + name, arguments, None)
        return Ident(token.offset, dot + name)

    def _struct_name(self, name: str) -> str | None:
        """Return a dotted name if a brace follows it, and take its tokens after the first; else None."""
        at, struct_name = self._at, name
        while self._tokens[at].text == "." and self._tokens[at].kind == "sign" and self._tokens[at + 1].kind == "name":
            struct_name += f".{self._tokens[at + 1].text}"
            at += 2
        if self._tokens[at].kind == "sign" and self._tokens[at].text == "{":
            self._at = at
            return struct_name
        return None

    def _list(self, offset: int) -> ListNode:
        elements: list[Node] = []
        optional: set[int] = set()
        has_next = self._accept("]") is None
        while has_next:
            if self._accept("?") is not None:
                optional.add(len(elements))
            elements.append(self._expression())
            has_next = self._has_next("]")
        return ListNode(offset, elements, frozenset(optional))

    def _entries(self, *, names: bool) -> list[MapEntry]:
        entries: list[MapEntry] = []
        has_next = self._accept("}") is None
        while has_next:
            optional = self._accept("?") is not None
            key: Node
            if names:
                name = self._take()
                if name.kind != "name":
                    raise self._syntax_error(
                        f"mismatched input '{name.text}' expecting {{'?', '}}', IDENTIFIER}}", name.offset
                    )
                key = Literal(name.offset, name.text)
            else:
                key = self._expression()
            colon = self._expect(":")
            entries.append(MapEntry(colon.offset, key, self._expression(), optional=optional))
            has_next = self._has_next("}")
        return entries

    def _number(self, sign: Token | None) -> Node:
        token = self._take()
        offset, text = (token.offset if sign is None else sign.offset), ("-" if sign is not None else "") + token.text
        if token.kind == "float":
            return Literal(offset, float(text))
        unsigned = token.kind == "uint"
        digits = text.rstrip("uU") if unsigned else text
        value = int(digits, 16) if "0x" in digits else parse_integer(digits)
        if unsigned:
            if value > _MAX_UINT:
                self._issues.append(Issue(offset, "invalid uint literal"))
            return Literal(offset, Uint(value))
        if not -_MAX_INT - 1 <= value <= _MAX_INT:
            self._issues.append(Issue(offset, "invalid int literal"))
        return Literal(offset, value)

    def _text(self, token: Token) -> Node:
        try:
            return Literal(token.offset, bytes_value(token.text) if token.kind == "bytes" else string_value(token.text))
        except ValueError as error:
            self._issues.append(Issue(token.offset, str(error)))
            return Literal(token.offset, "")


def _balanced(name: str, terms: list[Node], operators: list[int], low: int, high: int) -> Call:
    """Return the operands of one logical operator as a balanced tree, which limits its depth."""
    middle = (low + high + 1) // 2
    left = terms[middle] if middle == low else _balanced(name, terms, operators, low, middle - 1)
    right = terms[middle + 1] if middle == high else _balanced(name, terms, operators, middle + 1, high)
    return Call(operators[middle], name, [left, right])


def _starts_expression(token: Token) -> bool:
    """Return True if an expression can start with the token."""
    if token.kind == "sign":
        return token.text in ("[", "{", "(", ".", "-", "!")
    return token.kind not in ("end", "escaped")
