"""Generator of malformed and hostile requests to the API server and to the endpoint of a process."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import quote

from support.hostile import values
from support.hostile.values import VALID, damaged


class HostileRequest(NamedTuple):
    """Bytes of a connection. half_close: the client ends its side after them. complete: they get a response."""

    kind: str
    data: bytes
    half_close: bool = False
    complete: bool = False


class Target(NamedTuple):
    """A server. paths: some that it serves; token: "" if it has none."""

    paths: Sequence[str]
    token: str


API_PATHS = (
    "/", "/api", "/apis", "/version", "/healthz", "/readyz?verbose", "/livez/ping", "/metrics", "/openapi/v2",
    "/openapi/v3",
    "/flagz", "/statusz", "/.well-known/openid-configuration", "/openid/v1/jwks", "/api/v1/pods", "/api/v1/nodes",
    "/api/v1/namespaces/default/pods/a", "/api/v1/namespaces/default/pods/a/log", "/apis/apps/v1/deployments",
    "/api/v1/namespaces/default/pods/a/exec?command=sh", "/api/v1/namespaces/default/pods/a/portforward?ports=80",
    "/api/v1/namespaces/default/services/a/proxy/x", "/api/v1/watch/pods", "/apis/metrics.k8s.io/v1beta1/pods",
    "/apis/apps/v1/namespaces/default/deployments/a/scale", "/api/v1/namespaces/default/pods/a/eviction",
)  # fmt: skip
ENDPOINT_PATHS = (
    "/healthz", "/livez", "/readyz?verbose", "/metrics", "/configz", "/metrics/resources", "/traces", "/debug/traces",
    "/debug/traces/lines", "/debug/traces/stream", "/debug/explain", "/debug/scheduler/cache", "/debug/scheduler/queue",
)  # fmt: skip
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PROPFIND")


def _head(target: Target, method: str, path: str, *lines: bytes) -> bytes:
    token = b"Authorization: Bearer %b\r\n" % target.token.encode() if target.token else b""
    head = b"%b %b HTTP/1.1\r\nHost: localhost\r\n%b" % (method.encode(), path.encode("utf-8", "surrogatepass"), token)
    return head + b"".join(b"%b\r\n" % line for line in lines) + b"\r\n"


def _with_body(target: Target, method: str, path: str, content_type: str, body: bytes) -> bytes:
    length = b"Content-Length: %d" % len(body)
    return _head(target, method, path, b"Content-Type: " + content_type.encode(), length, b"Connection: close") + body


# --- kinds ------------------------------------------------------------------------------------------------------------


def random_bytes(rng: random.Random, target: Target) -> bytes:
    prefix = rng.choice((b"", b"GET ", b"GET / HTTP/1.1\r\n", _head(target, "GET", "/")[:-2], b"\x16\x03\x01", b"\0"))
    return prefix + rng.randbytes(rng.choice((1, 10, 100, 5_000, 100_000))) + rng.choice((b"", b"\r\n\r\n"))


def damaged_request(rng: random.Random, target: Target) -> bytes:
    return damaged(rng, _head(target, rng.choice(_METHODS), rng.choice(target.paths), b"Accept: */*"))


def framing(rng: random.Random, target: Target) -> bytes:
    """Return a request of ambiguous length, followed by another one: request smuggling."""
    length = rng.choice(
        (b"5", b"+5", b"-5", b"0x5", b"5, 5", b"5 5", b"", b" ", b"1e1", b"9" * 30, b"9" * 5000, b"\xb2", b"5\0", b"05")
    )
    encoding = rng.choice(
        (
            b"chunked", b" chunked", b"chunked ", b"Chunked", b"chunked, identity", b"identity, chunked", b"xchunked",
            b"chunked\r\n ,", b"gzip, chunked", b"\x0bchunked", b"chunked;q=1", b"chunked, chunked", b"", b"identity",
        )
    )  # fmt: skip
    size = rng.choice(
        (b"5", b"zz", b"-1", b"F" * 16, b"F" * 5000, b"", b"0x5", b"5;" + b"a" * 20_000, b"5 ", b" 5", b"5\n", b"0")
    )
    lines = rng.choice(
        (
            [b"Content-Length: " + length],
            [b"Content-Length: " + length, b"Transfer-Encoding: " + encoding],
            [b"Transfer-Encoding: " + encoding, b"Content-Length: " + length],
            [b"Content-Length: 5", b"Content-Length: " + length],
            [b"Content-Length: 5", b"content-length: 5"],
            [b"Transfer-Encoding: " + encoding],
            [b"Transfer-Encoding: chunked", b"Transfer-Encoding: " + encoding],
            [b"Transfer-Encoding : chunked"],
            [b"X: y\r\n Content-Length: 5"],
            [b"X: y\r\n\tTransfer-Encoding: chunked"],
            [b"Content-Length\0: 5"],
            [b"Content-Length : 5"],
            [b"Expect: 100-continue", b"Content-Length: " + length],
            [b"Content-Length: 5\nTransfer-Encoding: chunked"],
            [b"Content-Length: 5\rX: y"],
        )
    )
    smuggled = _head(target, "DELETE", "/api/v1/namespaces/default", b"X-Smuggled: 1")
    chunks = (
        rng.choice((b"%b\r\nhello\r\n0\r\n\r\n", b"%b\r\nhello", b"%b\nhello\n0\n\n", b"%b\r\nhelloworld\r\n0\r\n\r\n"))
        % size
    )
    return (
        _head(target, rng.choice(("GET", "POST")), rng.choice(target.paths), *lines)
        + rng.choice((b"hello", chunks))
        + smuggled
    )


def heads(rng: random.Random, target: Target) -> bytes:
    path = rng.choice(target.paths).encode()
    first = rng.choice(
        (
            b"GET " + path, b"GET  " + path + b" HTTP/1.1", b"get " + path + b" HTTP/1.1",
            b"GET " + path + b" HTTP/9.9",
            b"GET " + path + b" HTTP/1.0", b"PRI * HTTP/2.0", b"GET * HTTP/1.1", b"OPTIONS * HTTP/1.1",
            b" GET / HTTP/1.1",
            b"CONNECT example.com:443 HTTP/1.1", b"GET http://example.com" + path + b" HTTP/1.1", b"G\0T / HTTP/1.1",
            b"GET //example.com" + path + b" HTTP/1.1", b"GET http://[ HTTP/1.1", b"GET http://a:b:c/ HTTP/1.1",
            b"GET " + path + b"#x HTTP/1.1", b"GET http://[::1]]/ HTTP/1.1", b"GET \xff\xfe HTTP/1.1",
            b"GET /\\..\\ HTTP/1.1",
            b"A" * rng.choice((30, 100_000)) + b" / HTTP/1.1",
            b"GET /" + b"a" * rng.choice((9_000, 200_000, 1_100_000)) + b" HTTP/1.1",
        )
    )  # fmt: skip
    header = rng.choice(
        (
            b"", b"Host: a", b"no colon", b": empty", b"A\0: b", b"A: b\0c", b"A : b", b"\xff: \xff",
            b"A: " + b"b" * 70_000,
            b"A: b\r\n" * rng.choice((2_000, 40_000)) + b"A: b", b"Accept: " + b"a/b;q=x," * 2_000,
            b"Host: " + b"a" * 9000,
            b"Authorization: Bearer " + b"a" * 50_000, b"Authorization: Bearer a.b.c", b"Authorization: Basic \xff",
            b"Authorization: Bearer " + b"eyJhbGciOiJub25lIn0.e30." , b"Accept-Encoding: gzip;q=,*", b"Accept: \x00",
            b"Impersonate-User: a\r\nImpersonate-Extra-\xff: b", b"Impersonate-Group: x", b"Audit-Id: " + b"x" * 5000,
            b"Connection: close, upgrade, keep-alive", b"If-None-Match: " + b'"a",' * 3000, b"traceparent: 00-zz",
            b"Accept: application/json;as=Table;v=v9;g=x", b"Accept: application/cbor", b"Range: bytes=0-,0-,0-",
        )
    )  # fmt: skip
    return (
        first + rng.choice((b"\r\n", b"\r\n", b"\n", b"\r")) + header + rng.choice((b"\r\n\r\n", b"\n\n", b"\r\n", b""))
    )


def paths(rng: random.Random, target: Target) -> bytes:
    path = rng.choice(target.paths)
    part = rng.choice(
        (
            "/..", "/../../../etc/passwd", "/%2e%2e/%2e%2e", "/%00", "/%ff", "/%", "/%zz", "//", "/./.", "/%2f%2f",
            "\\..\\", "/;x",
            "/a" * 5_000, "/" * 5_000, "/" + "%41" * 20_000, "/é", "/%c3%28", "/%ed%a0%80", "/*", "/{name}",
            "/" + "9" * 5000,
        )
    )  # fmt: skip
    return _head(
        target, rng.choice(_METHODS), path.partition("?")[0] + part, b"Content-Length: 0", b"Connection: close"
    )


def queries(rng: random.Random, target: Target) -> bytes:
    parameters = {
        "limit": values.number, "resourceVersion": values.number, "timeoutSeconds": values.number,
        "watch": values.number,
        "continue": values.continue_token, "labelSelector": values.selector, "fieldSelector": values.selector,
        "resourceVersionMatch": values.number, "sendInitialEvents": values.number, "gracePeriodSeconds": values.number,
        "shardSelector": values.selector, "tailLines": values.number, "sinceTime": values.number,
        "limitBytes": values.number,
        "namespace": values.selector, "owner": values.selector, "pod": values.selector, "key": values.selector,
        "cursor": values.continue_token, "trace": values.number, "command": values.selector, "ports": values.number,
        "dryRun": values.number, "fieldValidation": values.number, "propagationPolicy": values.selector,
        "timeout": values.number, "pretty": values.number, "fieldManager": lambda rng: rng.choice(values.STRINGS[:18]),
    }  # fmt: skip
    names = rng.sample(list(parameters), rng.randint(1, 4))
    pairs = [f"{name}={quote(parameters[name](rng).encode('utf-8', 'surrogatepass'))}" for name in names]
    pairs += rng.choice(
        ([], [], ["a=%zz"], ["%ff=%fe"], ["a;b=c"], ["&" * 5_000], ["a=b"] * 5_000, ["=" * 100], ["watch=1"] * 3)
    )
    if any(pair.startswith("watch=") for pair in pairs):
        pairs.append("timeoutSeconds=1")
    path = rng.choice(target.paths)
    method = rng.choice(("GET", "GET", "GET", "DELETE", "POST"))
    joined = path + ("&" if "?" in path else "?") + "&".join(pairs)
    return _head(target, method, joined, b"Content-Length: 0", b"Connection: close")


def bodies(rng: random.Random, target: Target) -> bytes:
    path, obj = rng.choice(VALID)
    content_type, make = rng.choice(
        (
            ("application/json", values.json_body),
            ("application/json", values.json_body),
            ("application/yaml", values.yaml_body),
            ("application/vnd.kubernetes.protobuf", values.protobuf_body),
            ("application/cbor", values.cbor_body),
            ("text/plain", values.json_body),
            ("\xff/;;=", values.json_body),
        )
    )
    method = rng.choice(("POST", "POST", "POST", "PUT", "DELETE"))
    name = "" if method == "POST" else f"/{obj['metadata'].get('name', 'a')}"
    return _with_body(target, method, path + name, content_type, make(rng, obj))


def patches(rng: random.Random, target: Target) -> bytes:
    content_type, make = rng.choice(
        (
            ("application/json-patch+json", values.json_patch_body),
            ("application/merge-patch+json", values.merge_patch_body),
            ("application/strategic-merge-patch+json", values.merge_patch_body),
            ("application/apply-patch+yaml", values.yaml_body),
            ("application/apply-patch+yaml", values.json_body),
            ("application/apply-patch+cbor", values.cbor_body),
        )
    )
    path, obj = rng.choice(VALID)
    place = rng.choice(
        (
            f"{path}/{obj['metadata'].get('name', 'a')}?fieldManager=x&force={rng.choice(('true', 'x'))}",
            "/api/v1/namespaces/default?fieldManager=x",
            "/api/v1/namespaces/default/configmaps/kube-root-ca.crt?fieldManager=x",
            "/api/v1/nodes/node-0/status?fieldManager=x",
        )
    )
    return _with_body(target, "PATCH", place, content_type, make(rng, obj))


def upgrades(rng: random.Random, target: Target) -> bytes:
    key = rng.choice((b"dGhlIHNhbXBsZSBub25jZQ==", b"", b"x", b"\xff" * 30))
    protocol = rng.choice(
        (b"v5.channel.k8s.io", b"v4.channel.k8s.io", b"x", b"SPDY/3.1+portforward.k8s.io", b"a," * 999)
    )
    lines = [
        b"Connection: " + rng.choice((b"Upgrade", b"upgrade, close", b"x")),
        b"Upgrade: " + rng.choice((b"websocket", b"websocket", b"SPDY/3.1", b"h2c", b"TLS/1.0, websocket", b"")),
        b"Sec-WebSocket-Key: " + key,
        b"Sec-WebSocket-Version: " + rng.choice((b"13", b"13", b"0", b"x")),
        b"Sec-WebSocket-Protocol: " + protocol,
    ]
    frames = rng.choice(
        (
            b"", rng.randbytes(300), b"\x82\xff" + b"\xff" * 8 + b"mask", b"\x81\x05hello", b"\xf2\x85maskhello",
            b"\x82\x85mask\x09ello", b"\x88\x80mask", b"\x89\xfe\x01\x00mask" + b"a" * 256,
            b"\x80\x03\x00\x01" + b"\xff" * 40,
        )
    )  # fmt: skip
    return _head(target, "GET", rng.choice(target.paths), *rng.sample(lines, rng.randint(3, 5))) + frames


def pipelined(rng: random.Random, target: Target) -> bytes:
    requests = [_head(target, "GET", rng.choice(target.paths[:6])) for _ in range(rng.choice((5, 40, 200)))]
    return b"".join(requests) + rng.choice((b"", b"\0", b"GET", _head(target, "POST", "/", b"Content-Length: 99")))


_ANY: tuple[Callable[[random.Random, Target], bytes], ...] = (
    random_bytes, damaged_request, framing, framing, heads, heads, paths, queries, queries, upgrades, pipelined,
)  # fmt: skip
_BODIES = (bodies, bodies, bodies, patches, patches)


def hostile_request(rng: random.Random, target: Target) -> HostileRequest:
    """Return the next request; a fifth of them is cut off, or sent by a client that ends its side."""
    make = rng.choice(_ANY + _BODIES if target.token else _ANY)
    data = make(rng, target)
    fate = rng.random()
    if fate < 0.1:
        data = data[: rng.randrange(len(data) + 1)]
    return HostileRequest(make.__name__, data, fate < 0.2, fate >= 0.2 and make in (bodies, patches, paths, queries))
