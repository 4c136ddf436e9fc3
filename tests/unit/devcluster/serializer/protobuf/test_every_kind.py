"""Protobuf of every served kind: round trips, and bytes recorded from kube-apiserver."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeloop.devcluster.serializer.decoding import TimeOfAnyYear, decode_struct
from kubeloop.devcluster.serializer.protobuf.codec import (
    decode,
    encode,
    encode_list,
    encode_watch_event,
    wrap_in_envelope,
    writer,
)
from kubeloop.devcluster.serializer.protobuf.wire import BYTES, wire_values
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.times import time_text

DEPTH = 6
RECORDED = Path(__file__).parents[4] / "support" / "comparison" / "recorded_protobuf.json"
"""One object per kind of kube-apiserver v1.36.2: its JSON, and its message without envelope.

tests/support/comparison/record_responses.py records them again.
"""

SECONDS = (0, -1, -(2**62), -62_135_596_801, -62_135_596_799, -30_610_224_001, 253_402_300_799, 253_402_300_800, 2**62)
"""Times of many years, in seconds since 1970."""

KINDS = [kind for kind in sorted(schema.kinds()) if not kind[2].endswith(("List", "Options"))]


def any_value(ref: schema.TypeRef, rng: random.Random, depth: int) -> Any:
    """Return a random JSON value of a type; None below the maximum depth."""
    match ref.kind:
        case "struct":
            return any_object(ref.struct, rng, depth - 1) if depth > 0 else None
        case "list" | "map" if depth <= 0:
            return None
        case "list":
            values = (any_value(ref.element, rng, depth - 1) for _ in range(rng.randint(1, 3)))
            return [value for value in values if value is not None] or None
        case "map":
            values = ((f"k{i}", any_value(ref.element, rng, depth - 1)) for i in range(rng.randint(1, 3)))
            return {key: value for key, value in values if value is not None} or None
        case "string":
            return "".join(rng.choices('ab é\U0001f600"\\\n', k=rng.choice((1, 3, 200))))
        case "bool":
            return rng.random() < 0.5
        case "int32":
            return rng.choice((0, 1, -1, 127, 128, 2**31 - 1, -(2**31)))
        case "int64":
            return rng.choice((0, 1, -1, 300, 70_000, 2**63 - 1, -(2**63)))
        case "float64":
            return rng.choice((0.0, -1.5, 1e300))
        case "bytes":
            return base64.b64encode(rng.randbytes(rng.randint(1, 5))).decode()
        case "quantity":
            return rng.choice(("0", "1", "250m", "1Gi"))
        case "intOrString":
            return rng.choice((0, -3, 8080, "http", "25%", ""))
        case "time":
            return TimeOfAnyYear(time_text(rng.choice(SECONDS)))
        case "microTime":
            return TimeOfAnyYear(time_text(rng.choice(SECONDS), rng.choice((0, 123, 999_999))))
        case "fieldsV1" | "raw":
            return {"f:a": {".": {}, 'k:{"x":1}': {}}}
        case "any":
            return any_choice(ref, rng, depth)
    raise AssertionError(ref.kind)


def any_choice(ref: schema.TypeRef, rng: random.Random, depth: int) -> Any:
    """Return a random JSONSchemaPropsOrBool, OrArray, OrStringArray or JSON value."""
    if ref.named.endswith(".JSON"):
        return rng.choice((0, "a", [1, {"b": None}], {"c": 1.5}))
    other = {"OrBool": rng.random() < 0.5, "OrArray": [{"type": "string"}, {}], "OrStringArray": ["a", "b"]}
    name = ref.named.rpartition("JSONSchemaProps")[2]
    inner = any_object(schema.type_named("apiextensions/v1.JSONSchemaProps"), rng, depth - 2) if depth > 1 else {}
    return rng.choice((other[name], inner))


def type_meta(struct: schema.StructType) -> tuple[str, ...]:
    """Return the fields that protobuf only has in the envelope."""
    has_type_meta = any(field.inline and field.type.named == "meta/v1.TypeMeta" for field in struct.fields)
    return ("kind", "apiVersion") if has_type_meta else ()


def without_type_meta(ref: schema.TypeRef, value: Any) -> Any:
    if ref.kind == "struct" and ref.struct is not None and value is not None:
        omitted, fields = type_meta(ref.struct), ref.struct.json
        return {name: without_type_meta(fields[name].type, item) for name, item in value.items() if name not in omitted}
    if ref.kind == "list" and ref.element is not None:
        return [without_type_meta(ref.element, item) for item in value or ()] or None  # an empty list is omitted
    return value


def any_object(struct: schema.StructType | None, rng: random.Random, depth: int) -> JSON:
    assert struct is not None
    names = [name for name in struct.json if name not in type_meta(struct) and rng.random() < 0.7]
    values = ((name, any_value(struct.json[name].type, rng, depth)) for name in names)
    return {name: value for name, value in values if value is not None}


def normalized(struct: schema.StructType, obj: JSON) -> JSON:
    """Return the object in the form of Go's encoding."""
    type_ref = schema.type_ref(struct.name)
    return decode_struct(struct, without_type_meta(type_ref, obj))[0]


def objects(group: str, version: str, kind: str) -> Iterator[tuple[schema.StructType, JSON]]:
    struct = schema.type_for(group, version, kind)
    assert struct is not None
    for seed in range(4):
        rng = random.Random(f"{group}/{version}/{kind} {seed}")
        obj = any_object(struct, rng, DEPTH)
        yield struct, {**obj, "apiVersion": f"{group}/{version}" if group else version, "kind": kind}


@pytest.mark.parametrize(("group", "version", "kind"), KINDS, ids=["/".join(kind) for kind in KINDS])
def test_round_trip_of_random_objects(group: str, version: str, kind: str):
    for struct, obj in objects(group, version, kind):
        body = encode(obj)
        decoded = decode(body)
        assert (decoded["apiVersion"], decoded["kind"]) == (obj["apiVersion"], obj["kind"])
        assert normalized(struct, decoded) == normalized(struct, obj)
        assert encode(decoded) == body


def test_encode_list_contains_the_messages_of_its_items():
    pods = [obj for _, obj in objects("", "v1", "Pod")]
    write = writer("v1", "Pod")
    body = encode_list("v1", "PodList", {"resourceVersion": "7", "continue": "c"}, map(write, pods))
    assert body == encode(
        {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7", "continue": "c"}, "items": pods}
    )


def test_watch_event_frame_has_length_and_body():
    body = encode({"apiVersion": "v1", "kind": "Secret", "data": {"k": base64.b64encode(bytes(300)).decode()}})
    frame = encode_watch_event("ADDED", body)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    event = {number: value for number, _, value in wire_values(frame[4:])}
    assert event[1] == b"ADDED"
    assert list(wire_values(event[2])) == [(1, BYTES, body)]


def recorded() -> list[tuple[str, JSON, bytes]]:
    rows = json.loads(RECORDED.read_text())
    return [(f"{obj['apiVersion']}/{obj['kind']}", obj, base64.b64decode(data)) for obj, data in rows]


@pytest.mark.parametrize(("obj", "message"), [pytest.param(*rest, id=name) for name, *rest in recorded()])
def test_bytes_equal_those_of_kube_apiserver(obj: JSON, message: bytes):
    assert writer(obj["apiVersion"], obj["kind"])(obj) == message
    decoded = decode(wrap_in_envelope(obj["apiVersion"], obj["kind"], message))
    struct = schema.type_for(*obj["apiVersion"].rpartition("/")[::2], obj["kind"])
    assert struct is not None
    assert normalized(struct, decoded) == normalized(struct, obj)


def test_every_stored_kind_is_recorded():
    from kubeloop.devcluster.api.served_resources import BY_PATH

    stored = {
        f"{served.resource.api_version}/{served.resource.kind}" for served in BY_PATH.values() if served.is_stored
    }
    assert stored <= {name for name, *_ in recorded()}
