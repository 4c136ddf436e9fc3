"""Protobuf beside a real kube-apiserver: the same bodies sent to both, and the bytes that come back.

Objects are sent with dryRun=All, so that none is in another's way; what each server makes up is compared by its form.
"""

from __future__ import annotations

import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import yaml

from kubeloop.devcluster.api.request import PROTOBUF_TYPE
from kubeloop.devcluster.api.served_resources import BY_PATH, Served
from kubeloop.devcluster.serializer.protobuf import codec
from kubeloop.devcluster.serializer.protobuf.wire import ProtobufError
from support.apiserver_process import TOKEN, apiserver_command, running_apiserver_sync
from support.differential import VALID
from support.real_apiserver import needs_binaries, real_apiserver

JSON = dict[str, Any]
MAPS = "/api/v1/namespaces/kube-public/configmaps"
MADE_UP = (
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "time",
    "name",
    "clusterIP",
    "clusterIPs",
    "healthCheckNodePort",
)
"""Fields in which each server is its own; a generated name is one of them."""

_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Answer(NamedTuple):
    status: int
    media_type: str
    body: bytes


class Api:
    """One API server."""

    def __init__(self, url: str, token: str, trust: ssl.SSLContext | None = None) -> None:
        self._url, self._token, self._trust = url, token, trust

    def __call__(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        accept: str = PROTOBUF_TYPE,
        kind: str = PROTOBUF_TYPE,
    ) -> Answer:
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Accept": accept,
            **({"Content-Type": kind} if body is not None else {}),
        }
        request = urllib.request.Request(self._url + path, method=method, data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, context=self._trust) as answer:
                return Answer(answer.status, answer.headers["Content-Type"], answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.headers["Content-Type"], error.read())


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[tuple[Api, Api]]:
    needs_binaries()
    folder = tmp_path_factory.mktemp("protobuf")
    flags = {"service-cluster-ip-range": "10.0.0.0/24"}
    with (
        real_apiserver(folder / "real", flags=flags) as real,
        running_apiserver_sync(apiserver_command(folder)) as (url, _),
    ):
        trust = ssl.create_default_context(cafile=str(real.ca))
        yield Api(real.url, real.token, trust), Api(url, TOKEN)


def masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: type(each).__name__ if key in MADE_UP else masked(each) for key, each in value.items()}
    if isinstance(value, str):
        return _UID.sub("(uid)", value)
    return [masked(each) for each in value] if isinstance(value, list) else value


def document(answer: Answer) -> Any:
    try:
        return masked(codec.decode(answer.body)) if answer.media_type == PROTOBUF_TYPE else answer.body
    except ProtobufError as error:
        return f"{error}: {answer.body!r}"


def valid() -> list[tuple[str, str, JSON]]:
    declared = (each for path in sorted(VALID.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text()))
    return [(each["kind"], each["path"], obj) for each in declared if "objects" in each and "path" in each
            for obj in each["objects"]]  # fmt: skip


def served_at(path: str) -> Served:
    parts = path.strip("/").split("/")
    group, version = ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])
    return BY_PATH[(group, version, parts[-1])]


def test_objects_of_every_kind_are_read_and_answered_alike(servers):
    real, ours = servers
    wrong = []
    for kind, path, obj in valid():
        api_version = served_at(path).resource.api_version
        body = codec.encode({**obj, "apiVersion": api_version, "kind": kind.partition("/")[0]})
        one, other = (ask("POST", f"{path}?dryRun=All", body) for ask in (real, ours))
        if (one[:2], document(one)) != (other[:2], document(other)):
            wrong.append(
                f"{kind} {obj['metadata']}\n  real {one[:2]} {document(one)}\n  ours {other[:2]} {document(other)}"
            )
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong)


def test_answers_hold_their_fields_in_the_order_and_with_the_zeros_of_go(servers):
    real, _ = servers
    for _, path, obj in valid():
        real(
            "POST",
            path,
            codec.encode(
                {**obj, "apiVersion": served_at(path).resource.api_version, "kind": served_at(path).resource.kind}
            ),
        )
    compared = 0
    for each in BY_PATH.values():
        if not each.stored:
            continue
        resource = each.resource
        path = f"/{'apis/' + resource.group if resource.group else 'api'}/{resource.version}/{resource.plural}"
        listed = real("GET", path)
        assert listed.media_type == PROTOBUF_TYPE
        assert codec.encode(codec.decode(listed.body)) == listed.body, path
        compared += len(codec.decode(listed.body).get("items", ()))
    assert compared > 100


REQUESTS = [
    ("GET", f"{MAPS}/nope", None, PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("GET", f"{MAPS}/nope", None, "application/yaml", PROTOBUF_TYPE),
    ("GET", f"{MAPS}/nope", None, f"{PROTOBUF_TYPE};as=PartialObjectMetadata;g=meta.k8s.io;v=v1", PROTOBUF_TYPE),
    ("GET", MAPS, None, f"{PROTOBUF_TYPE};as=Table;g=meta.k8s.io;v=v1", PROTOBUF_TYPE),
    ("GET", MAPS, None, f"{PROTOBUF_TYPE};as=PartialObjectMetadata;g=meta.k8s.io;v=v1", PROTOBUF_TYPE),
    ("GET", MAPS, None, "application/cbor", PROTOBUF_TYPE),
    ("GET", f"{MAPS}?limit=x", None, PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("GET", f"{MAPS}?watch=1&timeoutSeconds=1&resourceVersion=x", None, PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, b"", PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, b"k8s", PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, b"k8s\x00", PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, b"k8s\x00\x0a\x01", PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, b"{}", PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, b"{}", PROTOBUF_TYPE, "application/cbor"),
    ("POST", MAPS, codec.encode({"kind": "Pod", "apiVersion": "v1"}), PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, codec.encode({"kind": "ConfigMap", "apiVersion": "v1"}), PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, codec.wrap_in_envelope("v1", "Nosuch", b""), PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, codec.wrap_in_envelope("v1", "ConfigMap", b"\x0a\x05abc"), PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("POST", MAPS, codec.wrap_in_envelope("v1", "ConfigMap", b"\x08\x01"), PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("PATCH", f"{MAPS}/nope", b"{}", PROTOBUF_TYPE, PROTOBUF_TYPE),
    (
        "DELETE",
        f"{MAPS}/nope",
        codec.encode({"kind": "DeleteOptions", "apiVersion": "v1"}),
        PROTOBUF_TYPE,
        PROTOBUF_TYPE,
    ),
    ("DELETE", f"{MAPS}/nope", codec.encode({"kind": "Pod", "apiVersion": "v1"}), PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("GET", "/apis/apps/v1", None, PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("GET", "/apis/batch", None, PROTOBUF_TYPE, PROTOBUF_TYPE),
    ("GET", "/version", None, PROTOBUF_TYPE, PROTOBUF_TYPE),
]


def told(answer: Answer) -> Any:
    """What an answer holds: its bytes, or what they say without the line of Go's sources in which a scheme is made."""
    if answer.media_type != PROTOBUF_TYPE or b" is registered for version " not in answer.body:
        return answer.body
    status = codec.decode(answer.body)
    return {**status, "message": re.sub(r' in scheme "[^"]*"', "", status["message"])}


def test_failures_and_discovery_are_the_same_bytes(servers):
    real, ours = servers
    wrong = []
    for method, path, body, accept, kind in REQUESTS:
        one, other = (ask(method, path, body, accept=accept, kind=kind) for ask in (real, ours))
        if (one[:2], told(one)) != (other[:2], told(other)):
            wrong.append(f"{method} {path} {accept} {kind} {body!r}\n  real {one}\n  ours {other}")
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong)
