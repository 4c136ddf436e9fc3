"""jq queries: results without nulls, as jq returns them, and unsupported expressions."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from kubeloop.devcluster.languages.jq import JqError, Query

POD = {
    "metadata": {"name": "web", "labels": {"app": "web", "x.io/y": "z"}, "ownerReferences": [{"kind": "Job"}]},
    "spec": {"replicas": 3, "containers": [{"name": "a"}, {"name": "b", "ports": [80, 443]}]},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "False"}],
        "podIP": None,
        "count": 0,
        "ok": False,
    },
}

RESULTS = [
    pytest.param(".", [POD], id="the value itself"),
    pytest.param(".metadata.name", ["web"], id="a path"),
    pytest.param(".metadata.deletionTimestamp", [], id="missing field"),
    pytest.param(".missing.deeper", [], id="field of a missing field"),
    pytest.param(".status.podIP", [], id="null is no result"),
    pytest.param('.metadata.labels["x.io/y"]', ["z"], id="a key in brackets"),
    pytest.param('.metadata.labels."x.io/y"', ["z"], id="a key in quotes"),
    pytest.param('.["metadata"]["name"]', ["web"], id="brackets from the start"),
    pytest.param('."metadata".name', ["web"], id="quotes from the start"),
    pytest.param(".spec.containers[].name", ["a", "b"], id="iterate a list"),
    pytest.param(".spec.containers.[].name", ["a", "b"], id="iterate, with a dot"),
    pytest.param(".spec.containers[1].ports[0]", [80], id="by number"),
    pytest.param(".spec.containers[-1].name", ["b"], id="from the end"),
    pytest.param(".spec.containers[7].name", [], id="beyond the end"),
    pytest.param(".metadata.labels[]", ["web", "z"], id="iterate a map"),
    pytest.param('.status.conditions.[] | select( .type == "Ready" ) | .status', ["True"], id="select by equality"),
    pytest.param('.status.conditions[] | select(.type != "Ready") | .status', ["False"], id="not equal"),
    pytest.param('.status.conditions[] | select(.type == "No") | .status', [], id="none selected"),
    pytest.param(".missing[]", [], id="iterate null"),
    pytest.param(".metadata.name.x", [], id="field of a string"),
    pytest.param(".missing[]?", [], id="with a question mark"),
    pytest.param(".spec.replicas // 1", [3], id="alternative not needed"),
    pytest.param(".spec.other // 1", [1], id="alternative"),
    pytest.param(".status.ok // 5", [5], id="alternative of false"),
    pytest.param(".status.count // 5", [0], id="alternative of zero"),
    pytest.param('.spec.replicas > 2 and .metadata.name == "web"', [True], id="and"),
    pytest.param(".spec.replicas < 2 or .status.ok", [False], id="or"),
    pytest.param(".status.ok | not", [True], id="not"),
    pytest.param(".metadata.name, .spec.replicas", ["web", 3], id="two results"),
    pytest.param("(.metadata.name, .spec.replicas) | tostring", ["web", "3"], id="parentheses"),
    pytest.param(".spec.containers | length", [2], id="length"),
    pytest.param(".spec | keys", [["containers", "replicas"]], id="keys"),
    pytest.param('.metadata | has("labels")', [True], id="has"),
    pytest.param('.metadata.labels.app | startswith("we")', [True], id="startswith"),
    pytest.param('.metadata.labels.app | test("^w.b$")', [True], id="test"),
    pytest.param('[.spec.containers[].name] | contains(["b"])', [True], id="contains"),
    pytest.param('.spec.containers | map(.name) | any(. == "b")', [True], id="map, any"),
    pytest.param('[.status.conditions[].status] | all(. == "True")', [False], id="all"),
    pytest.param("first(.spec.containers[].name)", ["a"], id="first of a stream"),
    pytest.param(".spec.containers | last | .name", ["b"], id="last of a list"),
    pytest.param(".metadata.name | type", ["string"], id="type"),
    pytest.param('"7" | tonumber', [7], id="tonumber"),
    pytest.param("-.spec.replicas", [-3], id="minus"),
    pytest.param('null, 1, "a", true', [1, "a", True], id="constants"),
    pytest.param("true == 1", [False], id="a bool is not a number"),
]


@pytest.mark.parametrize(("text", "expected"), RESULTS)
def test_query_results(text, expected):
    results = Query(text).results(POD)
    assert results == expected
    assert [type(result) for result in results] == [type(result) for result in expected]


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not on the PATH")
@pytest.mark.parametrize(("text", "expected"), RESULTS)
def test_jq_binary_returns_the_same(text, expected):
    # .a.[] needs jq 1.7; a query that fails midway has no results here
    done = subprocess.run(
        ["jq", "-c", re.sub(r"(?<=[\w\]])\.\[", "[", text)],
        input=json.dumps(POD),
        capture_output=True,
        text=True,
        check=False,
    )
    results = [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else []
    assert [result for result in results if result is not None] == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        (".a |", "ends too soon"),
        (".a[", "ends too soon"),
        (".a ]", "unexpected ']'"),
        (".a[1:2]", "slices are not supported"),
        ("reduce .[] as $x (0; . + $x)", "unexpected '$'"),
        (".a as $x | .b", "unexpected '$'"),
        ("to_entries", "to_entries is not supported"),
        ("select", "select needs an argument"),
        ("length(.a)", "length takes no argument"),
        ('"\\(.a)"', "interpolation is not supported"),
        (".a.", "nothing follows"),
        ("(.a", "')' expected"),
        (".a + 1", "unexpected '+'"),
    ],
)
def test_unsupported_expression_is_rejected(text, problem):
    with pytest.raises(JqError) as raised:
        Query(text)
    assert problem in str(raised.value)
