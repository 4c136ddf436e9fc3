"""Request info: resource and verb of a path and method."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request_info import check_names, request_verb, route, route_watch_path

JSON = dict[str, Any]
PODS, NODES = "/api/v1/namespaces/ns/pods", "/api/v1/nodes"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        (PODS, ("pods", "ns", "", "")),
        ("/api/v1/pods", ("pods", "", "", "")),
        (f"{PODS}/p/status", ("pods", "ns", "p", "status")),
        (f"{PODS}/p/proxy/a/b", ("pods", "ns", "p", "proxy")),
        ("/api/v1/namespaces/ns", ("namespaces", "", "ns", "")),
        ("/api/v1/namespaces/ns/finalize", ("namespaces", "", "ns", "finalize")),
        ("/apis/apps/v1/namespaces/ns/deployments/d/scale", ("deployments", "ns", "d", "scale")),
        ("/apis/apps/v1", None),
        ("/healthz", None),
        ("//api/v1/pods", None),
    ],
)
def test_resource_of_a_path(path: str, parts: tuple[str, str, str, str] | None):
    info = route(path)
    assert (info and (info.served.resource.plural, info.namespace, info.name, info.subresource)) == parts


@pytest.mark.parametrize(
    "path", ["/api/v1/unknown", "/api/v2/pods", "/api/v1/namespaces/ns/nodes", "/api/v1/pods/p", f"{PODS}/p/scale"]
)
def test_path_without_a_resource_gets_404(path: str):
    with pytest.raises(StatusError) as raised:
        route(path)
    assert (raised.value.code, raised.value.message) == (404, "the server could not find the requested resource")


@pytest.mark.parametrize("path", ["", "/namespaces/ns/podgroups", "/namespaces/ns/podgroups/g/status"])
def test_paths_of_a_disabled_gate_get_404(path: str):
    path = f"/apis/scheduling.k8s.io/v1alpha2{path}"
    with pytest.raises(StatusError) as raised:
        route(path)
    assert raised.value.code == 404
    info = route(path, frozenset({"GenericWorkload"}))
    assert (info is not None) == ("podgroups" in path)  # that of the version itself is left to discovery


@pytest.mark.parametrize(
    ("method", "path", "verb"),
    [
        ("GET", PODS, "list"), ("POST", PODS, "create"), ("DELETE", PODS, "deletecollection"),
        ("GET", f"{PODS}/p", "get"), ("PUT", f"{PODS}/p", "update"), ("PATCH", f"{PODS}/p", "patch"),
        ("POST", f"{PODS}/p/eviction", "create"), ("HEAD", f"{PODS}/p/proxy", "get"), ("POST", REVIEWS, "create"),
        ("POST", f"{PODS}/p", 405), ("PUT", PODS, 405), ("DELETE", "/api/v1/pods", 405), ("GET", REVIEWS, 405),
        ("GET", f"{PODS}/p/eviction", 405), ("GET", f"{REVIEWS}/r", 404),
    ],
)  # fmt: skip
def test_verb_of_a_method(method: str, path: str, verb: str | int):
    info = route(path)
    assert info is not None
    try:
        result: str | int = request_verb(info, method)
    except StatusError as error:
        result = error.code
    assert result == verb


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "/api/v1/watch/namespaces/ns/pods/p", "p"),
        ("GET", "/api/v1/watch/nodes", ""),
        ("GET", NODES, None),
        ("POST", "/api/v1/watch/nodes", 405),
        ("GET", "/api/v1/watch/namespaces/ns/pods/p/status", 404),
    ],
)
def test_deprecated_watch_path(method: str, path: str, name: str | int | None):
    try:
        info = route_watch_path(path, method)
        result = info and info.name
    except StatusError as error:
        result = error.code
    assert result == name


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        pytest.param({"name": "p"}, "", id="without a namespace"),
        pytest.param(
            {"name": "p", "namespace": "other"},
            "the namespace of the provided object does not match the namespace sent on the request",
            id="another namespace",
        ),
        pytest.param(
            {}, "the name of the object (p based on URL) was undeterminable: name must be provided", id="no name"
        ),
        pytest.param(
            {"name": "q"}, "the name of the object (q) does not match the name on the URL (p)", id="another name"
        ),
    ],
)
def test_names_of_an_object_match_its_path(metadata: JSON, message: str):
    info, obj = route(f"{PODS}/p"), {"metadata": metadata}
    assert info is not None
    if not message:
        check_names(info, obj)
        assert obj == {"metadata": {"name": "p", "namespace": "ns"}}
        return
    with pytest.raises(StatusError) as raised:
        check_names(info, obj)
    assert (raised.value.code, raised.value.message) == (400, message)
