"""A declared kind has paths, discovery, OpenAPI, tables and field ownership."""

from __future__ import annotations

import json
import subprocess
import sys
from textwrap import dedent

# runs in a separate process, because declarations are permanent
PROGRAM = dedent(
    """
    import asyncio, json, random

    from kubeloop.devcluster.api.served_resources import declare
    from kubeloop.kube import schema

    schema.declare("example.com", "v1", "Widget", spec={"size": "int32", "tags": "[]string"}, status={"ready": "bool"})
    declare(
        "example.com/v1", "widgets", "Widget", short="wd", subresources="status", generation="spec",
        columns=("Size#=spec.size", "Tags=spec.tags", "Age"),
    )

    from kubeloop.devcluster.api.request import Request
    from kubeloop.devcluster.server.apiserver import ApiServer
    from kubeloop.kube.clock import SystemClock


    async def main():
        api = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None)

        def request(method, path, body=None, **headers):
            payload = b"" if body is None else json.dumps(body).encode()
            response = api.respond(Request.of(method, path, headers, payload))
            return response.status, json.loads(response.body)

        path = "/apis/example.com/v1/namespaces/default/widgets"
        widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 3}}
        apply = {"Content-Type": "application/apply-patch+yaml"}
        larger = {"metadata": {"name": "a"}, "spec": {"size": 4, "tags": ["x", "y"]}}
        larger |= {"apiVersion": "example.com/v1", "kind": "Widget"}
        print(json.dumps({
            "created": request("POST", path, widget),
            "wrong": request("POST", path, {**widget, "metadata": {"name": "b"}, "spec": {"size": "large"}}),
            "unknown": request("POST", path + "?fieldValidation=Strict", {**widget, "spec": {"colour": "red"}}),
            "conflict": request("PATCH", path + "/a?fieldManager=me", larger, **apply),
            "forced": request("PATCH", path + "/a?fieldManager=me&force=true", larger, **apply),
            "status": request("PATCH", path + "/a/status", {"status": {"ready": True}},
                          **{"Content-Type": "application/merge-patch+json"}),
            "table": request("GET", path, Accept="application/json;as=Table;v=v1;g=meta.k8s.io"),
            "resources": request("GET", "/apis/example.com/v1"),
            "groups": request("GET", "/apis"),
            "openapi": request("GET", "/openapi/v3/apis/example.com/v1"),
            "deleted": request("DELETE", path + "/a"),
        }))

    asyncio.run(main())
    """
)


def test_declared_kind_is_served_like_built_in_kinds():
    process = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 0, process.stderr
    responses = json.loads(process.stdout)

    status, created = responses["created"]
    assert (status, created["metadata"]["generation"], created["spec"]) == (201, 1, {"size": 3})
    assert responses["wrong"][0] == 400
    assert "WidgetSpec.spec.size of type int32" in responses["wrong"][1]["message"]
    assert responses["unknown"][1]["message"].endswith('strict decoding error: unknown field "spec.colour"')
    assert responses["conflict"][0] == 409
    assert responses["conflict"][1]["details"]["causes"][0]["field"] == ".spec.size"
    status, forced = responses["forced"]
    assert (status, forced["spec"]["tags"], forced["metadata"]["generation"]) == (200, ["x", "y"], 2)
    status, updated = responses["status"]
    assert (status, updated["status"], updated["metadata"]["generation"]) == (200, {"ready": True}, 2)

    _, table = responses["table"]
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size", "Tags", "Age"]
    assert table["rows"][0]["cells"][:3] == ["a", 4, "x,y"]
    resources = {entry["name"]: entry for entry in responses["resources"][1]["resources"]}
    assert set(resources) == {"widgets", "widgets/status"}
    assert resources["widgets"]["shortNames"] == ["wd"]
    assert responses["groups"][1]["groups"][-1]["name"] == "example.com"
    document = responses["openapi"][1]
    assert "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}/status" in document["paths"]
    (spec,) = (value for name, value in document["components"]["schemas"].items() if name.endswith("v1.WidgetSpec"))
    assert spec["properties"]["size"]["format"] == "int32"
    assert responses["deleted"][0] == 200
