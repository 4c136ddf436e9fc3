"""A kind is declared in one place: a few lines, and it has paths, discovery, OpenAPI, tables and field ownership."""

from __future__ import annotations

import json
import subprocess
import sys
from textwrap import dedent

# A process of its own: what is declared is there for good.
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

        def ask(method, path, body=None, **headers):
            payload = b"" if body is None else json.dumps(body).encode()
            answer = api.handle_now(Request.of(method, path, headers, payload))
            return answer.status, json.loads(answer.body)

        here = "/apis/example.com/v1/namespaces/default/widgets"
        widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 3}}
        apply = {"Content-Type": "application/apply-patch+yaml"}
        grown = {"metadata": {"name": "a"}, "spec": {"size": 4, "tags": ["x", "y"]}}
        grown |= {"apiVersion": "example.com/v1", "kind": "Widget"}
        print(json.dumps({
            "created": ask("POST", here, widget),
            "wrong": ask("POST", here, {**widget, "metadata": {"name": "b"}, "spec": {"size": "large"}}),
            "unknown": ask("POST", here + "?fieldValidation=Strict", {**widget, "spec": {"colour": "red"}}),
            "conflict": ask("PATCH", here + "/a?fieldManager=me", grown, **apply),
            "forced": ask("PATCH", here + "/a?fieldManager=me&force=true", grown, **apply),
            "status": ask("PATCH", here + "/a/status", {"status": {"ready": True}},
                          **{"Content-Type": "application/merge-patch+json"}),
            "table": ask("GET", here, Accept="application/json;as=Table;v=v1;g=meta.k8s.io"),
            "resources": ask("GET", "/apis/example.com/v1"),
            "groups": ask("GET", "/apis"),
            "openapi": ask("GET", "/openapi/v3/apis/example.com/v1"),
            "gone": ask("DELETE", here + "/a"),
        }))

    asyncio.run(main())
    """
)


def test_a_toy_kind_declared_in_a_few_lines_is_served_like_any_other():
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)

    status, created = said["created"]
    assert (status, created["metadata"]["generation"], created["spec"]) == (201, 1, {"size": 3})
    assert said["wrong"][0] == 400
    assert "WidgetSpec.spec.size of type int32" in said["wrong"][1]["message"]
    assert said["unknown"][1]["message"].endswith('strict decoding error: unknown field "spec.colour"')
    assert said["conflict"][0] == 409
    assert said["conflict"][1]["details"]["causes"][0]["field"] == ".spec.size"
    status, forced = said["forced"]
    assert (status, forced["spec"]["tags"], forced["metadata"]["generation"]) == (200, ["x", "y"], 2)
    status, written = said["status"]
    assert (status, written["status"], written["metadata"]["generation"]) == (200, {"ready": True}, 2)

    _, shown = said["table"]
    assert [column["name"] for column in shown["columnDefinitions"]] == ["Name", "Size", "Tags", "Age"]
    assert shown["rows"][0]["cells"][:3] == ["a", 4, "x,y"]
    resources = {entry["name"]: entry for entry in said["resources"][1]["resources"]}
    assert set(resources) == {"widgets", "widgets/status"}
    assert resources["widgets"]["shortNames"] == ["wd"]
    assert said["groups"][1]["groups"][-1]["name"] == "example.com"
    whole = said["openapi"][1]
    assert "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}/status" in whole["paths"]
    (spec,) = (each for name, each in whole["components"]["schemas"].items() if name.endswith("v1.WidgetSpec"))
    assert spec["properties"]["size"]["format"] == "int32"
    assert said["gone"][0] == 200
