from typing import Any

import pytest
import yaml

from kubeloop.kube import yaml as yaml_text
from kubeloop.kube.yaml import InvalidYaml, read_all, read_first, write


@pytest.mark.parametrize(("text", "value"), [
    ("y", True), ("Off", False), ("012", 10), ("0x1F", 31), ("0b11", 3), ("1_000", 1000), ("08", 8), ("1e3", 1000),
    ("1:30", "1:30"), ("2020-01-01", "2020-01-01"), ("~", None), ("", None), ("'1'", "1"), ("1.5", 1.5), ("-5", -5),
    (".5", 0.5), ("nope", "nope"), ("0o17", 15), ("0o9", "0o9"), ("1_000.5", 1000.5), ("1e999", "1e999"), ("-0b11", -3),
    ("2001-12-14 21:59:43.10 -5", "2001-12-14 21:59:43.10 -5"), ("1.", 1),
    ("+12", 12), ("=", "="), (".5_0", 0.5), (".5__0", ".5__0"), ("1٣", "1٣"),
    ("0xFFFFFFFFFFFFFFFFF", "0xFFFFFFFFFFFFFFFFF"), ("123456789012345678901234567890", 1.2345678901234568e29),
    ("9223372036854775807", 9223372036854775807), ("9" * 5000, "9" * 5000), ("!!float 3", 3), ("!!str 3", "3"),
    ('!!int "3"', 3), ("! 3", "3"), ("!mine y", "y"), ("!!binary aGVsbG8=", "hello"), ("!!set {x}", {"x": None}),
])  # fmt: skip
def test_plain_scalar_has_go_type(text: str, value: Any):
    read = read_first(f"a: {text}")[0]["a"]
    assert read == value
    assert type(read) is type(value)


def test_keys_are_strings_and_first_document_is_read():
    assert read_first(b"1: a\non: b\nc: d\n---\ne: f\n") == ({"1": "a", "true": "b", "c": "d"}, [])
    keys = "1.10: a\n1e3: b\n1e6: c\n1e-7: d\n2026-11-21: e\n.inf: f\n1234567.0: g\n"
    assert list(read_first(keys)[0]) == ["1.1", "1000", "1e+06", "1e-07", "2026-11-21", ".inf", "1.234567e+06"]


def test_read_all_returns_none_for_empty_document():
    assert read_all("a: 1\n---\n# nothing\n---\n[b]\n") == ([{"a": 1}, None, ["b"]], [])
    assert read_all("") == ([], [])
    assert read_first("") == (None, [])


def test_duplicate_key_is_reported_with_line():
    assert read_first("a: 1\nb:\n  c: 1\n  c: 2\n") == ({"a": 1, "b": {"c": 2}}, ['line 4: key "c" already set in map'])
    assert read_first("1: a\n1: b\n") == ({"1": "b"}, ["line 2: key 1 already set in map"])
    assert read_first("y: a\non:\n  b\n") == ({"true": "b"}, ["line 3: key true already set in map"])


def test_merge_key_overrides_keys_above():
    assert read_first("{a: 1, <<: {a: 2, b: 3}, b: 4}")[0] == {"a": 2, "b": 4}
    assert read_first("base: &base {b: 1, c: 1}\na: {<<: [*base, {b: 2, d: 2}]}")[0]["a"] == {"b": 1, "c": 1, "d": 2}
    assert read_first("a: <<")[0] == {"a": "<<"}


def test_anchor_can_be_redefined():
    assert read_first("a: &x [1]\nb: &x [2]\nc: *x")[0] == {"a": [1], "b": [2], "c": [2]}


WIDE = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))


@pytest.mark.parametrize(("text", "message"), [
    ("a: *b", "yaml: unknown anchor 'b' referenced"),
    ("a: b: c", "yaml: mapping values are not allowed in this context"),
    ("a:\n\tb: c", "yaml: line 2: found character that cannot start any token"),
    ("a: 1\nb: [1\n", "yaml: line 2: did not find expected ',' or ']'"),
    ("a:\n  - b\n c: 1", "yaml: line 2: did not find expected key"),
    ("a: &x [*x]", "yaml: anchor 'x' value contains itself"),
    (WIDE, "yaml: document contains excessive aliasing"),
    ("a: .inf", "json: unsupported value: +Inf"),
    ("a: !!int x", "yaml: cannot decode !!str `x` as a !!int"),
    ("a: !!binary x", "yaml: !!binary value contains invalid base64 data"),
    ("<<: 1", "yaml: map merge requires map or sequence of maps as the value"),
    ('[a, {b: 1}]: "c"', 'yaml: invalid map key: []interface {}{"a", map[interface {}]interface {}{"b":1}}'),
    ("~: 1", "unsupported map key of type: %!s(<nil>), key: <nil>, value: 1"),
    ("a: \x01", "yaml: control characters are not allowed"),
    ("[" * 100_000, "yaml: exceeded max depth"),
])  # fmt: skip
def test_invalid_yaml_has_go_message(text: str, message: str):
    with pytest.raises(InvalidYaml) as raised:
        read_first(text.encode())
    assert str(raised.value) == message


def test_place_has_line_and_column():
    with pytest.raises(InvalidYaml) as raised:
        read_first("a:\n  - b\n c: 1")
    assert raised.value.place == "line 3, column 2: did not find expected key"


@pytest.mark.parametrize(
    "text", ["y", "1e3", "0o17", "12:30", "2026-01-01", "~", "", "on", "=", "<<", "08", "1_0", "a\n"]
)
def test_ambiguous_strings_are_quoted(text: str):
    written = write({text: [text]})
    assert read_first(written) == ({text: [text]}, [])
    assert yaml.safe_load(written) == {text: [text]}


def test_written_yaml_has_no_aliases_or_end_mark():
    shared = {"a": 1e3}
    assert write([shared, shared]) == "- a: 1000.0\n- a: 1000.0\n"
    assert write("text") == "text\n"


def test_python_parser_reads_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(yaml_text.yaml, "CSafeLoader")
    assert read_all("a: &x [y, 1e3]\nb: *x\n---\n<<: {c: 0o17}\n") == (
        [{"a": [True, 1000], "b": [True, 1000]}, {"c": 15}],
        [],
    )


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("", '""'),
        ("true", '"true"'),
        ("y", '"y"'),
        ("012", '"012"'),
        ("12:30", '"12:30"'),
        ("2026-01-01", '"2026-01-01"'),
        ("~", '"~"'),
        ("a", "a"),
        ("it's", "it's"),
        ("- a", "'- a'"),
        ("a: b", "'a: b'"),
        ("a ", "'a '"),
        ("a\tb", '"a\\tb"'),
        ("a\nb\n", "|\n  a\n  b"),
        ("a\nb", "|-\n  a\n  b"),
        ("a\n\n b", "|-\n  a\n\n   b"),
    ],
)
def test_text_is_written_in_the_style_of_kubectl(text: str, written: str):
    assert write({"k": text}) == f"k: {written}\n"
    assert read_first(write({"k": text}))[0] == {"k": text}


def test_keys_are_written_in_the_order_of_kubectl():
    keys = ["k2", "k10", "k010", "a", "B", "k1.b", "k", "1", "10", "2", "a-b", "a.b", "ab", "k100", "k02"]
    expected = ["1", "2", "10", "B", "a", "a-b", "a.b", "ab", "k", "k1.b", "k2", "k02", "k10", "k010", "k100"]
    assert [line.split(":")[0].strip('"') for line in write(dict.fromkeys(keys, 0)).splitlines()] == expected
