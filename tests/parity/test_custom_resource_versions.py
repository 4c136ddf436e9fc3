"""Custom resources in a version that is not stored: defaults of both versions, and owners, as in kube-apiserver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from support.apiserver.http_api import server_pair
from support.comparison.same_responses import Request, check_responses

JSON = dict[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
_SERVED_SECONDS = 20.0


def schema(defaulted: str, value: str) -> JSON:
    """Return a schema in which one field of the spec, and the status field of that name, have a default."""
    fields = {name: {"type": "string"} for name in ("a", "b")}
    fields[defaulted] = {"type": "string", "default": value}
    part = {"type": "object", "default": {}, "properties": fields}
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": part, "status": part}}}


def definition(plural: str, *, status: bool) -> JSON:
    """Return a definition whose version v1 is stored."""
    subresources = {"subresources": {"status": {}}} if status else {}
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": schema(*default), **subresources}
        for name, default in (("v1", ("a", "x")), ("v2", ("b", "y")))
    ]
    names = {"plural": plural, "kind": plural.capitalize()}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}
    return {"metadata": {"name": f"{plural}.example.com"}, "spec": spec}


def requests(plural: str) -> Iterator[Request]:
    path = f"/apis/example.com/{{}}/namespaces/default/{plural}"
    for version, other in (("v1", "v2"), ("v2", "v1")):
        collection, other_collection = path.format(version), path.format(other)
        name, applied = f"of-{version}", f"applied-{version}"

        def obj(name: str, version: str = version, **fields: Any) -> JSON:
            kind = plural.capitalize()
            return {"apiVersion": f"example.com/{version}", "kind": kind, "metadata": {"name": name}, **fields}

        yield Request("POST", f"{collection}?dryRun=All", obj(name))
        yield Request("POST", collection, obj(name))
        for read in (collection, other_collection):
            yield Request("GET", f"{read}/{name}")
        for patched in (collection, other_collection):
            yield Request("PATCH", f"{patched}/{name}", {"metadata": {"labels": {"a": patched[18:20]}}}, MERGE)
        yield Request("PATCH", f"{collection}/{name}", {"spec": None}, MERGE)
        yield Request("PATCH", f"{collection}/{name}?dryRun=All", {"spec": {"a": "k", "b": None}}, MERGE)
        yield Request("PUT", f"{collection}/{name}", obj(name))
        yield Request("PATCH", f"{collection}/{applied}?fieldManager=m", obj(applied, spec={"a": "5"}), APPLY)
        yield Request(
            "PATCH", f"{other_collection}/{applied}?fieldManager=k", obj(applied, other, spec={"b": "6"}), APPLY
        )
        yield Request("PATCH", f"{collection}/{applied}?fieldManager=m", obj(applied, spec={}), APPLY)
        yield Request("PATCH", f"{collection}/{name}/status", {"status": {"a": "1"}}, MERGE)
        yield Request("PATCH", f"{other_collection}/{name}/status", {"status": None}, MERGE)
    for version in ("v1", "v2"):
        yield Request("GET", path.format(version))


def test_defaults_of_both_versions_match_kube_apiserver(tmp_path):
    with server_pair(tmp_path) as servers:
        for server in (servers.real, servers.ours):
            for plural, status in (("widgets", True), ("gadgets", False)):
                assert server.request("POST", CRDS, definition(plural, status=status)).status == 201
            deadline = time.monotonic() + _SERVED_SECONDS
            while server.request("GET", "/apis/example.com/v2/gadgets").status != 200:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        check_responses(servers, [*requests("widgets"), *requests("gadgets")])
