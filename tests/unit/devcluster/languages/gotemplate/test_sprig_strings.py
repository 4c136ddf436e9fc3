"""Sprig's functions for strings, paths, encodings and regular expressions, by the examples of its documentation."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.languages.gotemplate.sprig_strings import FUNCTIONS
from kubeloop.devcluster.languages.gotemplate.values import FunctionError, Int64, JsonNumber


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("trunc", (5, "hello world"), "hello"),
        ("trunc", (-5, "hello world"), "world"),
        ("trunc", (9, "hello"), "hello"),
        ("trunc", (-9, "hello"), "hello"),
        ("trunc", (2, "aé"), "a\ufffd"),
        ("substr", (0, 5, "hello world"), "hello"),
        ("substr", (6, -1, "hello world"), "world"),
        ("substr", (-1, 2, "hello"), "he"),
        ("substr", (1, 99, "hello"), "ello"),
        ("abbrev", (5, "hello world"), "he..."),
        ("abbrev", (3, "hello world"), "hello world"),
        ("abbrev", (20, "hello world"), "hello world"),
        ("abbrevboth", (5, 10, "1234 5678 9123"), "...5678..."),
        ("abbrevboth", (5, 6, "1234 5678 9123"), "1234 5678 9123"),
        ("abbrevboth", (12, 10, "1234 5678 9123"), "...78 9123"),
        ("trim", ("\u2003 hello \n\x85",), "hello"),
        ("trimAll", ("$", "$5.00$"), "5.00"),
        ("trimall", ("", "$5.00"), "$5.00"),
        ("trimSuffix", ("-", "hello-"), "hello"),
        ("trimPrefix", ("-", "-hello"), "hello"),
        ("hasPrefix", ("cat", "catch"), True),
        ("hasSuffix", ("cat", "catch"), False),
        ("contains", ("cat", "catch"), True),
        ("nospace", ("hello w o r l d",), "helloworld"),
        ("initials", ("First Try",), "FT"),
        ("replace", (" ", "-", "I Am Henry VIII"), "I-Am-Henry-VIII"),
        ("split", ("$", "foo$bar$baz"), {"_0": "foo", "_1": "bar", "_2": "baz"}),
        ("splitn", ("$", 2, "foo$bar$baz"), {"_0": "foo", "_1": "bar$baz"}),
        ("splitn", ("$", 0, "foo$bar"), {}),
        ("splitn", ("", 2, "abc"), {"_0": "a", "_1": "bc"}),
        ("splitList", ("$", "foo$bar$baz"), ["foo", "bar", "baz"]),
        ("splitList", ("", "aé"), ["a", "é"]),
        ("splitList", (",", ""), [""]),
        ("repeat", (3, "hello"), "hellohellohello"),
        ("indent", (2, "a\nb"), "  a\n  b"),
        ("nindent", (2, "a\nb"), "\n  a\n  b"),
        ("wrap", (5, "Hello World"), "Hello\nWorld"),
        ("wrap", (3, "Hello big World"), "Hello\nbig\nWorld"),
        ("wrap", (80, "Hello World"), "Hello World"),
        ("wrapWith", (5, "\t", "Hello World"), "Hello\tWorld"),
        ("wrapWith", (3, "-", "Hello"), "Hel-lo"),
        ("cat", ("hello", None, "beautiful", 1, True), "hello beautiful 1 true"),
        ("quote", ("a\n", None, 1), '"a\\n" "1"'),
        ("squote", ("a", None, JsonNumber("1")), "'a' '1'"),
        ("plural", ("one anchovy", "many anchovies", 1), "one anchovy"),
        ("plural", ("one anchovy", "many anchovies", 0), "many anchovies"),
        ("upper", ("hello ß",), "HELLO ß"),
        ("lower", ("HELLO",), "hello"),
        ("title", ("hello wORLD o'neil",), "Hello WORLD O'Neil"),
        ("untitle", ("Hello World",), "hello world"),
        ("swapcase", ("This Is A.Test",), "tHIS iS a.tEST"),
        ("snakecase", ("FirstName",), "first_name"),
        ("snakecase", ("HTTPServer",), "http_server"),
        ("snakecase", ("NoHTTPS",), "no_https"),
        ("snakecase", ("GO PATH",), "go_path"),
        ("snakecase", ("http2xx",), "http_2xx"),
        ("snakecase", ("HTTP20xOK",), "http_20x_ok"),
        ("snakecase", ("Duration2m3s",), "duration_2m3s"),
        ("snakecase", ("Bld4Floor3rd",), "bld4_floor_3rd"),
        ("snakecase", ("FooBar.baz--X",), "foo_bar.baz__x"),
        ("kebabcase", ("FirstName",), "first-name"),
        ("kebabcase", ("some_words",), "some-words"),
        ("camelcase", ("http_server",), "HttpServer"),
        ("camelcase", ("_complex__case_",), "_Complex_Case_"),
        ("camelcase", ("some words-a",), "SomeWordsA"),
        ("camelcase", ("__",), "__"),
        ("base", ("foo/bar/baz/",), "baz"),
        ("base", ("",), "."),
        ("base", ("//",), "/"),
        ("dir", ("foo/bar/baz",), "foo/bar"),
        ("dir", ("foo/bar/",), "foo/bar"),
        ("dir", ("foo",), "."),
        ("clean", ("//foo/bar/../baz/",), "/foo/baz"),
        ("ext", ("foo.bar/baz.tar.gz",), ".gz"),
        ("ext", ("foo.bar/baz",), ""),
        ("ext", (".profile",), ".profile"),
        ("isAbs", ("/a",), True),
        ("osBase", ("/foo/bar",), "bar"),
        ("osIsAbs", ("a",), False),
        ("b64enc", ("hi",), "aGk="),
        ("b64dec", ("aG\nk=",), "hi"),
        ("b64dec", ("a",), "illegal base64 data"),
        ("b32enc", ("hi",), "NBUQ===="),
        ("b32dec", ("NBUQ====",), "hi"),
        ("b32dec", ("1",), "illegal base32 data"),
        ("sha1sum", ("Hello world!",), "d3486ae9136e7856bc42212385ea797094475802"),
        ("sha256sum", ("Hello world!",), "c0535e4be2b79ffd93291305436bf889314e4a3faec05ecffcbb7df31ad9e51a"),
        ("adler32sum", ("Hello world!",), "487130206"),
        ("regexMatch", (r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}$", "test@acme.com"), True),
        ("regexMatch", ("(", "a"), False),
        ("mustRegexMatch", ("b", "abc"), True),
        ("regexFindAll", ("[2,4,6,8]", "123456789", -1), ["2", "4", "6", "8"]),
        ("regexFindAll", ("[2,4,6,8]", "123456789", 2), ["2", "4"]),
        ("mustRegexFindAll", ("x", "a", -1), []),
        ("regexFind", ("[a-zA-Z][1-9]", "abcd1234"), "d1"),
        ("mustRegexFind", ("x", "a"), ""),
        ("regexSplit", ("z+", "pizza", -1), ["pi", "a"]),
        ("mustRegexSplit", ("z", "pizza", 2), ["pi", "za"]),
        ("regexReplaceAll", ("a(x*)b", "-ab-axxb-", "${1}W"), "-W-xxW-"),
        ("mustRegexReplaceAll", ("[^a-z]+", "a.b/ü1", "-"), "a-b-"),
        ("regexReplaceAllLiteral", ("a(x*)b", "-ab-axxb-", "${1}"), "-${1}-${1}-"),
        ("mustRegexReplaceAllLiteral", ("a", "banana", "$"), "b$n$n$"),
        ("regexQuoteMeta", ("1.2.3[a]",), r"1\.2\.3\[a\]"),
    ],
)
def test_value_of_a_function(name: str, args: tuple[Any, ...], expected: Any):
    assert FUNCTIONS[name](*args) == expected


def test_sha512sum_has_128_digits():
    assert FUNCTIONS["sha512sum"]("").startswith("cf83e1357eefb8bd")
    assert len(FUNCTIONS["sha512sum"]("")) == 128


@pytest.mark.parametrize(
    ("name", "args", "problem"),
    [
        ("upper", (1,), "expected string; got int"),
        ("upper", (JsonNumber("1"),), "expected string; got json.Number"),
        ("trim", (None,), "invalid value; expected string"),
        ("trunc", (Int64(1), "a"), "expected int; got int64"),
        ("substr", (3, 2, "hello"), "slice bounds out of range"),
        ("substr", (9, 99, "hello"), "slice bounds out of range"),
        ("repeat", (-1, "a"), "negative Repeat count"),
        ("repeat", (10**9, "a"), "at most 1000000 characters"),
        ("indent", (-1, "a"), "negative Repeat count"),
        ("regexFind", ("(", "a"), "error parsing regexp|missing closing"),
        ("mustRegexMatch", ("(", "a"), "error parsing regexp|missing closing"),
    ],
)
def test_unsuitable_arguments_are_an_error(name: str, args: tuple[Any, ...], problem: str):
    with pytest.raises(FunctionError, match=problem):
        FUNCTIONS[name](*args)
