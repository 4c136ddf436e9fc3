"""Protobuf bodies: decoding, encoding, round trips and errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.devcluster.serializer.decoding import decode_struct
from kubeloop.devcluster.serializer.protobuf.codec import decode, encode
from kubeloop.devcluster.serializer.protobuf.values import MAGIC
from kubeloop.devcluster.serializer.protobuf.wire import ProtobufError
from kubeloop.kube import schema

# runtime.Unknown of a v1 ConfigMap, with the empty fields that Go encodes: name "c", namespace "", data {"a": "b"}
CONFIG_MAP = (
    MAGIC
    + b"\x0a\x0f"
    + b"\x0a\x02v1\x12\x09ConfigMap"
    + b"\x12\x17"
    + (b"\x0a\x0d\x0a\x01c\x12\x00\x1a\x00\x2a\x00\x38\x00\x42\x00" + b"\x12\x06\x0a\x01a\x12\x01b")
    + b"\x1a\x00\x22\x00"
)

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web",
        "namespace": "default",
        "generation": 3,
        "creationTimestamp": "2026-05-01T12:00:00Z",
        "labels": {"app": "web", "tier": "front"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
        ],
        "managedFields": [
            {
                "manager": "m",
                "operation": "Update",
                "time": "2026-05-01T12:00:01Z",
                "fieldsV1": {"f:metadata": {"f:labels": {".": {}}}},
            }
        ],
    },
    "spec": {
        "volumes": [{"name": "v", "configMap": {"name": "cm", "defaultMode": 420}}],
        "containers": [
            {
                "name": "c",
                "image": "nginx",
                "ports": [{"containerPort": 80}],
                "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}},
                "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 5},
                "livenessProbe": {"tcpSocket": {"port": 8080}},
                "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k", "optional": False}}}],
            }
        ],
        "nodeName": "n1",
        "hostNetwork": True,
        "priority": -5,
        "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 0}],
        "securityContext": {"supplementalGroups": [1, -2]},
    },
}
INNER = {name: value for name, value in POD.items() if name not in ("apiVersion", "kind")}


def test_decode_drops_empty_fields():
    assert decode(CONFIG_MAP) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c"},
        "data": {"a": "b"},
    }


def test_encode_adds_empty_fields_as_go():
    assert encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}) == (
        CONFIG_MAP.replace(b"\x12\x17", b"\x12\x1b")
        .replace(b"\x0a\x0d\x0a\x01c", b"\x0a\x11\x0a\x01c")
        .replace(b"\x1a\x00\x2a\x00", b"\x1a\x00\x22\x00\x2a\x00\x32\x00")
    )


def normalized(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the fields that Go always encodes."""
    group, _, version = obj["apiVersion"].rpartition("/")
    struct = schema.type_for(group, version, obj["kind"]) or schema.type_named(f"meta/v1.{obj['kind']}")
    assert struct is not None
    kind = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    return kind | decode_struct(struct, {name: value for name, value in obj.items() if name not in kind})[0]


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(POD, id="pod"),
        pytest.param({"apiVersion": "v1", "kind": "Secret", "data": {"k": "aGVsbG8=", "empty": ""}}, id="bytes"),
        pytest.param(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "spec": {"renewTime": "2026-05-01T12:00:00.000123Z", "leaseDurationSeconds": 0},
            },
            id="micro time, zero of a pointer",
        ),
        pytest.param(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"extra": {"scopes": ["a", "b"]}, "user": "me"},
            },
            id="named list type",
        ),
        pytest.param(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "spec": {
                    "replicas": 0,
                    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
                },
            },
            id="int or string",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": [INNER]}, id="a list"
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 404, "message": "not found"},
            id="a status",
        ),
    ],
)
def test_round_trip(obj: dict[str, Any]):
    assert normalized(decode(encode(obj))) == normalized(obj)


@given(
    data=st.dictionaries(st.text(max_size=5), st.text(max_size=20), min_size=1),
    generation=st.integers(-(2**63), 2**63 - 1).filter(bool),
)
def test_round_trip_of_any_strings_and_numbers(data: dict[str, str], generation: int):
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generation": generation}, "data": data}
    assert normalized(decode(encode(obj))) == normalized(obj)


@given(kind=st.sampled_from(["Pod", "Secret", "Event", "Status"]), message=st.binary(max_size=60))
def test_garbage_is_decoded_or_rejected(kind: str, message: bytes):
    type_meta = b"\x0a\x02v1\x12" + bytes([len(kind)]) + kind.encode()
    body = MAGIC + b"\x0a" + bytes([len(type_meta)]) + type_meta + b"\x12" + bytes([len(message)]) + message
    try:
        assert decode(body)["kind"] == kind
    except ProtobufError as error:
        assert str(error)  # noqa: PT017, either outcome is right


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "empty data"),
        (
            b"garbage",
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
        ),
        (MAGIC + b"\x0a\x0b\x0a\x02v1\x12\x05Nosuc", 'no kind "Nosuc" is registered for version "v1"'),
        (CONFIG_MAP[:-9], "unexpected EOF"),
    ],
)
def test_decode_errors_have_kubernetes_messages(body: bytes, message: str):
    with pytest.raises(ProtobufError) as raised:
        decode(body)
    assert str(raised.value) == message


def test_unknown_fields_are_skipped():
    assert decode(
        CONFIG_MAP.replace(b"\x12\x17", b"\x12\x1a").replace(b"\x12\x01b", b"\x12\x01b\xf8\x07\x01")
    ) == decode(CONFIG_MAP)
