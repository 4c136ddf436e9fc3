"""Hostile values and documents: JSON, YAML, protobuf, CBOR, selectors, patches."""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from support.objects.yaml_files import read_documents

JSON = dict[str, Any]
_VALID = Path(__file__).parents[1] / "valid"

VALID: list[tuple[str, JSON]] = [
    (kind["path"], {"kind": kind["kind"]} | obj)
    for name in ("cluster", "network", "pods", "policies", "storage", "templates", "workloads")
    for kind in read_documents(_VALID / f"{name}.yaml")
    for obj in kind.get("objects", [])
]
"""(path of the collection, object) of valid objects."""

NUMBERS = (
    b"1e999", b"-1e999", b"1" * 5000, b"-" + b"9" * 400, b"0." + b"3" * 3000, b"1e-99999", b"9223372036854775808",
    b"-9223372036854775809", b"18446744073709551616", b"1e+", b"01", b"-", b"NaN", b"Infinity", b"0x10", b"-0", b"1.5",
)  # fmt: skip
STRINGS = (
    "", "\0", "a\0b", "\ud800", "\U0010ffff", "\u202e", "é" * 300, "a" * 100_000, "../../etc/passwd", "%00", "%s%n",
    "<script>alert(1)</script>", "'; DROP TABLE versions; --", "${jndi:ldap://x}", "{{.}}", "\r\nX-Injected: 1",
    "a" * 254, "-", ".", "..", "1" * 5000, "1e999999999", "9" * 50 + "E", "1n" * 100, "(" * 5000, "(a+)+$", "[" * 3000,
    "2024-13-45T99:99:99Z", "99999h", "self." * 2000, "1+" * 3000 + "1", "[1].all(x, " * 100, "=" * 500, "!a,!b," * 900,
)  # fmt: skip


def pick(rng: random.Random, *choices: Callable[[random.Random], Any]) -> Any:
    return rng.choice(choices)(rng)


# --- JSON -------------------------------------------------------------------------------------------------------------


def _deep(rng: random.Random) -> bytes:
    depth = rng.choice((50, 500, 5_000, 9_990, 10_050, 200_000))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]"), (b'{"spec":', b"}")))
    return opening * depth + rng.choice((b"1", b"", b"{}")) + closing * rng.choice((depth, depth, 0, depth // 2))


def _wide(rng: random.Random) -> bytes:
    count = rng.choice((1_000, 20_000))
    key = rng.choice((b'"k%d":1', b'"same":%d', b'"labels":{"a":"%d"}'))
    members = b",".join(key % number for number in range(count))
    return rng.choice((b"{%b}" % members, b'{"metadata":{"labels":{%b}}}' % members, b"[%b]" % (b"1," * count + b"1")))


def _scalar(rng: random.Random) -> bytes:
    return rng.choice((b"null", b"true", b'"text"', b"[]", b"{}", b"", b" ", b"\xef\xbb\xbf{}", *NUMBERS))


def _string(rng: random.Random) -> bytes:
    text = json.dumps(rng.choice(STRINGS)).encode()
    return rng.choice((text, b'"\xff\xfe"', b'"\xc0\x80"', b'"\\ud800"', b'"\\x00"', b'"\0"', b'"' + rng.randbytes(20)))


def raw_value(rng: random.Random) -> bytes:
    """Return a JSON text, valid or not."""
    return pick(rng, _deep, _wide, _scalar, _scalar, _string, _string, _string)


def hostile_object(rng: random.Random, obj: JSON) -> bytes:
    """Return the JSON of an object with one to three values replaced."""
    obj = deepcopy(obj)
    replacements = []
    for number in range(rng.randint(1, 3)):
        parent: Any = obj
        while True:
            key = rng.choice(list(parent)) if isinstance(parent, dict) else rng.randrange(len(parent))
            if not parent[key] or not isinstance(parent[key], dict | list) or rng.random() < 0.2:
                break
            parent = parent[key]
        marker = f"@{number}@"
        fits = isinstance(parent[key], str) and rng.random() < 0.7  # a value of the right type gets further
        if isinstance(parent, dict) and rng.random() < 0.2:
            parent[rng.choice(STRINGS[:20])] = marker
        else:
            parent[key] = marker
        replacements.append((json.dumps(marker).encode(), _string(rng) if fits else raw_value(rng)))
        if not obj:
            break
    text = json.dumps(obj).encode()
    for marker_text, value in replacements:
        text = text.replace(marker_text, value)
    return text


def json_body(rng: random.Random, obj: JSON) -> bytes:
    return pick(rng, raw_value, *[lambda rng: hostile_object(rng, obj)] * 3, lambda rng: damaged(rng, _text(obj)))


def _text(obj: JSON) -> bytes:
    return json.dumps(obj).encode()


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Return `data` with some bytes changed, removed, repeated or inserted."""
    result = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(result) + 1)
        match rng.randrange(5):
            case 0:
                result[place:place] = rng.randbytes(rng.randint(1, 8))
            case 1:
                del result[place : place + rng.randint(1, 10)]
            case 2:
                result[place : place + 1] = rng.choice((b"\0", b"\xff", b"\r", b"\n", b'"', b"{", b"\x80"))
            case 3:
                result[place:place] = result[place : place + rng.randint(1, 200)] * rng.randint(1, 20)
            case 4:
                del result[place:]
    return bytes(result)


# --- other formats ----------------------------------------------------------------------------------------------------


def yaml_body(rng: random.Random, obj: JSON) -> bytes:
    levels = rng.choice((5, 9, 30))
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, levels)
    )
    merges = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, levels))
    texts = (
        bomb,
        f"metadata:\n  labels: *a\n{bomb}",
        merges,
        "a: &a [*a]\n",
        "&a {*a : *a}\n",
        "? " * rng.choice((10, 1_000)) + "a",
        "[" * rng.choice((100, 20_000)),
        "- " * rng.choice((100, 5_000)) + "a",
        "a: !!python/object/apply:os.system ['true']\n",
        "a: !!binary ////\nb: !!timestamp 2001-01-01\nc: !!set {a, b}\n",
        "---\n" * rng.choice((10, 10_000)),
        "a:\n\tb: 1\n",
        "a: 0o777777777777777777777777\nb: .inf\nc: 1_000\nd: 190:20:30\n",
        "%YAML 9.9\n---\na: b\n",
        "a: |\n" + " " * 1000 + "x\n",
        "key: " + "'" * 999,
        f"{'a' * 5000}: b\n",
        "".join(f"k{number}: v\n" for number in range(3_000)),
        "".join(f"{' ' * number}k:\n" for number in range(rng.choice((50, 1_500)))),
        yaml.safe_dump(obj),
    )
    text = rng.choice(texts).encode()
    return damaged(rng, text) if rng.random() < 0.3 else text


def _varint(value: int) -> bytes:
    result = b""
    while value > 0x7F:
        result += bytes([value & 0x7F | 0x80])
        value >>= 7
    return result + bytes([value])


def protobuf_body(rng: random.Random, _obj: JSON) -> bytes:
    nested = b""
    for _ in range(rng.choice((3, 100, 3_000))):
        nested = b"\x0a" + _varint(len(nested)) + nested
    unknown = b"\x0a\x0c\x0a\x02v1\x12\x06" + rng.choice((b"Secret", b"Bogus!"))
    body = rng.choice(
        (nested, rng.randbytes(rng.randint(0, 200)), b"\x0a" + _varint(1 << 40), b"\x0b" * 500, b"\xff" * 50)
    )
    envelope = unknown + b"\x12" + _varint(rng.choice((len(body), len(body) + 1, 1 << 62))) + body
    return rng.choice((b"k8s\0", b"k8s\0", b"k8s", b"")) + rng.choice((envelope, envelope, body, b""))


def cbor_body(rng: random.Random, _obj: JSON) -> bytes:
    tag = b"\xd9\xd9\xf7"
    return tag + rng.choice(
        (
            b"\x81" * rng.choice((100, 20_000)),
            b"\x9f" * 5_000,
            b"\x9b" + struct.pack(">Q", 1 << 40),
            b"\x5b" + struct.pack(">Q", 1 << 62) + b"x",
            b"\xbf\x61a\xff",
            b"\xc2\x58\xff" + b"\xff" * 255,
            rng.randbytes(rng.randint(0, 100)),
        )
    )


# --- patches ----------------------------------------------------------------------------------------------------------


def json_patch_body(rng: random.Random, _obj: JSON) -> bytes:
    path = rng.choice(
        ("", "/", "//", "/spec/-", "/metadata/labels/~2", "/spec/9999999999", "/spec/" + "1" * 5000, "/a" * 5_000)
    )
    doubling = [{"op": "add", "path": "/metadata/annotations", "value": {"a": "x" * 1000}}]
    doubling += [
        {"op": "copy", "from": "/metadata/annotations", "path": f"/metadata/annotations/{number}"}
        for number in range(30)
    ]
    operations = rng.choice(
        (
            [{"op": rng.choice(("add", "remove", "replace", "move", "copy", "test", "x", 7, None)), "path": path}],
            [{"op": "add", "path": path, "value": rng.choice(STRINGS)}],
            [{"op": "move", "from": "/metadata", "path": "/metadata/labels"}],
            [{"op": "test", "path": "/metadata/name", "value": None}] * rng.choice((5, 9_999, 10_001)),
            doubling,
            [{}],
            [None, 1],
            {"op": "add"},
        )
    )
    return json.dumps(operations).encode()


def merge_patch_body(rng: random.Random, obj: JSON) -> bytes:
    directives = rng.choice(
        (
            {"metadata": None},
            {"metadata": {"name": "other", "uid": "x", "resourceVersion": "x" * 100}},
            {"kind": None, "apiVersion": None},
            {"spec": {"$patch": rng.choice(("delete", "replace", "x", 7))}},
            {"spec": {"$retainKeys": [rng.choice(STRINGS)]}},
            {"metadata": {"$setElementOrder/finalizers": rng.choice(("x", [1], ["a"] * 1000))}},
            {"metadata": {"finalizers": [{"$patch": "delete"}], "$deleteFromPrimitiveList/finalizers": {}}},
            {"metadata": {"managedFields": [{"fieldsV1": {"f:a": {"k:{": {}}}, "manager": "x"}]}},
            {"spec": {"template": {"spec": {"containers": [{"$patch": "merge", "name": None}, {"name": "a"}] * 200}}}},
        )
    )
    return rng.choice((json.dumps(directives).encode(), json_body(rng, obj)))


# --- query parameters -------------------------------------------------------------------------------------------------


def selector(rng: random.Random) -> str:
    return rng.choice(
        (
            "a in (" * 500, "a in (b", "!" * 300, "a=b," * 3_000, "a notin ()", "=", ",", "a==b==c", "a>b",
            "a>1" + "0" * 5000,
            "(" * 1000, "a in (" + ",".join(map(str, range(5_000))) + ")", "x/y/z=1", "\0", "é=1", "metadata.name=",
            "spec.x=1",
            "status.phase=a,status.phase!=a", "metadata.name=a=b", "\\", "metadata.name=a\\", ",,,", "a" * 400 + "=b",
        )
    )  # fmt: skip


def continue_token(rng: random.Random) -> str:
    tokens = (
        {"v": "meta.k8s.io/v1", "rv": rng.choice((-1, 0, 1 << 70, "x", None)), "start": rng.choice(STRINGS[:10])},
        {"v": "x"},
        [],
        7,
        {"v": "meta.k8s.io/v1", "rv": 1, "start": "../../secrets\0"},
    )
    text = base64.urlsafe_b64encode(json.dumps(rng.choice(tokens)).encode()).decode().rstrip("=")
    return rng.choice((text, text, text[:-3], "%%%", "a" * 10_000, "é", ""))


def number(rng: random.Random) -> str:
    return rng.choice(
        ("-1", "0", "1", "9" * 30, "9" * 5000, "1e3", "0x1", "NaN", "", "+1", " 1", "1 ", "\u0661", "\u00b2", "true")
    )
