"""String functions and format()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubeloop.cel.functions import string_functions as functions
from kubeloop.cel.values import CelError


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (functions.char_at, ("abc", 1), "b"), (functions.char_at, ("abc", 3), ""),
        (functions.index_of, ("abcb", "b"), 1), (functions.index_of, ("abcb", "b", 2), 3),
        (functions.index_of, ("abc", "x"), -1), (functions.last_index_of, ("abcb", "b"), 3),
        (functions.last_index_of, ("abcb", "b", 2), 1), (functions.lower_ascii, ("A\u00c4",), "a\u00c4"),
        (functions.upper_ascii, ("a\u00e4",), "A\u00e4"), (functions.replace, ("aaa", "a", "b", 2), "bba"),
        (functions.split, ("a,b,c", ",", 2), ["a", "b,c"]), (functions.split, ("a,b", ",", 0), []),
        (functions.split, ("ab", ""), ["a", "b"]), (functions.substring, ("abcd", 1, 3), "bc"),
        (functions.trim, ("\u2000 a\t",), "a"), (functions.join, (["a", "b"], "-"), "a-b"),
        (functions.quote, ('a"\n',), '"a\\"\\n"'), (functions.find, ("a12b", "[0-9]+"), "12"),
        (functions.find_all, ("a1b2", "[0-9]", 1), ["1"]), (functions.matches, ("abc", "^b"), False),
    ],
)  # fmt: skip
def test_value_of_a_string_function(function: Callable[..., Any], args: tuple[Any, ...], expected: Any):
    assert function(*args) == expected


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        (functions.char_at, ("abc", 4), "index out of range: 4"),
        (functions.substring, ("abc", 2, 1), "invalid substring range. start: 2, end: 1"),
        (functions.substring, ("abc", -1), "index out of range: -1"),
        (functions.contains, ("abc", 1), "no such overload"),
        (functions.compiled_pattern, ("[a",), "error parsing regexp: missing closing ]: `[a`"),
    ],
)
def test_error_of_a_string_function(function: Callable[..., Any], args: tuple[Any, ...], message: str):
    with pytest.raises(CelError) as raised:
        function(*args)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("%s is %d", ["a", 1], "a is 1"), ("%.2f %f", [1.005, 2.0], "1.00 2.000000"),
        ("%e", [1234.5], "1.234500\u00d710\u2070\u00b3"),
        ("%b %x %X %o", [5, 255, "hi", 8], "101 ff 6869 10"), ("100%%", [], "100%"),
        ("%s", [[1, "a", True, None]], '[1, "a", true, null]'), ("%s", [{"b": 1, "a": 2}], '{"a":2, "b":1}'),
    ],
)  # fmt: skip
def test_formatted_text(text: str, arguments: list[Any], expected: str):
    assert functions.format_text(text, arguments) == expected
