"""Protobuf of every kind that is served: round trips of any object, and the bytes of a real kube-apiserver."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeloop.devcluster.serializer.decoding import decode_struct
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

JSON = dict[str, Any]
DEPTH = 6
RECORDED = Path(__file__).parents[4] / "support" / "recorded_protobuf.json"
"""Of each kind one object as kube-apiserver v1.36.2 has answered it: its JSON, and its message without envelope."""

KINDS = [each for each in sorted(schema.kinds()) if not each[2].endswith(("List", "Options"))]


def any_value(ref: schema.TypeRef, rng: random.Random, depth: int) -> Any:
    """A value of a type as it stands in JSON; None where it gets too deep."""
    match ref.kind:
        case "struct":
            return any_object(ref.struct, rng, depth - 1) if depth > 0 else None
        case "list" | "map" if depth <= 0:
            return None
        case "list":
            values = (any_value(ref.element, rng, depth - 1) for _ in range(rng.randint(1, 3)))
            return [each for each in values if each is not None] or None
        case "map":
            values = ((f"k{i}", any_value(ref.element, rng, depth - 1)) for i in range(rng.randint(1, 3)))
            return {key: each for key, each in values if each is not None} or None
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
            return rng.choice(("2026-05-01T12:00:00Z", "1969-12-31T23:59:59Z"))
        case "microTime":
            return rng.choice(("2026-05-01T12:00:00.000123Z", "2026-05-01T12:00:00.000000Z"))
        case "fieldsV1" | "raw":
            return {"f:a": {".": {}, 'k:{"x":1}': {}}}
        case "any":
            return any_choice(ref, rng, depth)
    raise AssertionError(ref.kind)


def any_choice(ref: schema.TypeRef, rng: random.Random, depth: int) -> Any:
    """What stands in a custom resource's schema where there are several possibilities."""
    if ref.named.endswith(".JSON"):
        return rng.choice((0, "a", [1, {"b": None}], {"c": 1.5}))
    other = {"OrBool": rng.random() < 0.5, "OrArray": [{"type": "string"}, {}], "OrStringArray": ["a", "b"]}
    name = ref.named.rpartition("JSONSchemaProps")[2]
    inner = any_object(schema.type_named("apiextensions/v1.JSONSchemaProps"), rng, depth - 2) if depth > 1 else {}
    return rng.choice((other[name], inner))


def type_meta(struct: schema.StructType) -> tuple[str, ...]:
    """What protobuf knows of whole bodies alone."""
    is_whole = any(each.inline and each.type.named == "meta/v1.TypeMeta" for each in struct.fields)
    return ("kind", "apiVersion") if is_whole else ()


def without_type_meta(ref: schema.TypeRef, value: Any) -> Any:
    if ref.kind == "struct" and ref.struct is not None:
        left_out, fields = type_meta(ref.struct), ref.struct.json
        return {
            name: without_type_meta(fields[name].type, each) for name, each in value.items() if name not in left_out
        }
    if ref.kind == "list" and ref.element is not None:
        return [without_type_meta(ref.element, each) for each in value or ()] or None  # an empty one is none there
    return value


def any_object(struct: schema.StructType | None, rng: random.Random, depth: int) -> JSON:
    assert struct is not None
    names = [name for name in struct.json if name not in type_meta(struct) and rng.random() < 0.7]
    values = ((name, any_value(struct.json[name].type, rng, depth)) for name in names)
    return {name: value for name, value in values if value is not None}


def as_go_has_it(struct: schema.StructType, obj: JSON) -> JSON:
    """With what Go writes whether it is set or not, and without what it leaves out."""
    whole = schema.type_ref(struct.name)
    return decode_struct(struct, without_type_meta(whole, obj))[0]


def objects(group: str, version: str, kind: str) -> Iterator[tuple[schema.StructType, JSON]]:
    struct = schema.type_for(group, version, kind)
    assert struct is not None
    for seed in range(4):
        rng = random.Random(f"{group}/{version}/{kind} {seed}")
        obj = any_object(struct, rng, DEPTH)
        yield struct, {**obj, "apiVersion": f"{group}/{version}" if group else version, "kind": kind}


@pytest.mark.parametrize(("group", "version", "kind"), KINDS, ids=["/".join(each) for each in KINDS])
def test_any_object_survives_the_round_trip(group: str, version: str, kind: str):
    for struct, obj in objects(group, version, kind):
        body = encode(obj)
        read = decode(body)
        assert (read["apiVersion"], read["kind"]) == (obj["apiVersion"], obj["kind"])
        assert as_go_has_it(struct, read) == as_go_has_it(struct, obj)
        assert encode(read) == body


def test_a_list_holds_its_items_messages():
    pods = [obj for _, obj in objects("", "v1", "Pod")]
    write = writer("v1", "Pod")
    body = encode_list("v1", "PodList", {"resourceVersion": "7", "continue": "c"}, map(write, pods))
    assert body == encode(
        {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7", "continue": "c"}, "items": pods}
    )


def test_a_frame_is_a_length_and_an_event_with_a_whole_body_in_it():
    body = encode({"apiVersion": "v1", "kind": "Secret", "data": {"k": base64.b64encode(bytes(300)).decode()}})
    sent = encode_watch_event("ADDED", body)
    assert int.from_bytes(sent[:4], "big") == len(sent) - 4
    event = {number: value for number, _, value in wire_values(sent[4:])}
    assert event[1] == b"ADDED"
    assert list(wire_values(event[2])) == [(1, BYTES, body)]


def recorded() -> list[tuple[str, JSON, bytes]]:
    rows = json.loads(RECORDED.read_text())
    return [(f"{obj['apiVersion']}/{obj['kind']}", obj, base64.b64decode(data)) for obj, data in rows]


@pytest.mark.parametrize(("obj", "message"), [pytest.param(*rest, id=name) for name, *rest in recorded()])
def test_bytes_are_those_of_kube_apiserver(obj: JSON, message: bytes):
    assert writer(obj["apiVersion"], obj["kind"])(obj) == message
    read = decode(wrap_in_envelope(obj["apiVersion"], obj["kind"], message))
    struct = schema.type_for(*obj["apiVersion"].rpartition("/")[::2], obj["kind"])
    assert struct is not None
    assert as_go_has_it(struct, read) == as_go_has_it(struct, obj)


def test_one_object_of_every_kind_that_is_kept_is_recorded():
    from kubeloop.devcluster.api.served_resources import BY_PATH

    kept = {f"{each.resource.api_version}/{each.resource.kind}" for each in BY_PATH.values() if each.is_stored}
    assert kept <= {name for name, *_ in recorded()}
