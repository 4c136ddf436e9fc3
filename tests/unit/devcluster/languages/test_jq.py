"""jq expressions: results without nulls, refused functions, and limits of expressions that may not end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kubeloop.devcluster.languages.jq import JqError, Program, Query, _needed, _path, _worker, _WorkerEnded

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)

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
    pytest.param(".spec.containers[0:1][].name", ["a"], id="slice"),
    pytest.param(".spec.replicas as $n | $n + 1", [4], id="variable"),
    pytest.param("reduce .spec.containers[1].ports[] as $port (0; . + $port)", [523], id="reduce"),
    pytest.param("def twice: . * 2; .spec.replicas | twice", [6], id="function"),
    pytest.param('"\\(.metadata.name)-\\(.spec.replicas)"', ["web-3"], id="string interpolation"),
    pytest.param(".metadata.labels | to_entries[0].key", ["app"], id="to_entries"),
    pytest.param('if .status.ok then "yes" else "no" end', ["no"], id="condition"),
    pytest.param('.metadata.name | sub("w"; "W")', ["Web"], id="sub"),
    pytest.param("[limit(3; repeat(1))]", [[1, 1, 1]], id="limit of an endless stream"),
    pytest.param("9007199254740993", [9007199254740993], id="integer beyond the precision of a double"),
    pytest.param(".spec.replicas # comment \\", [3], id="comment that ends with a backslash"),
    pytest.param("now | todate", ["2026-01-01T12:00:00Z"], id="now is the given time"),
    pytest.param("env, $ENV, (env | keys | length)", [{}, {}, 0], id="env is empty"),
    pytest.param("def halt: 1; halt, .halt", [1], id="own function with the name of a refused one"),
    pytest.param("1, error(2)", [], id="results before an error are dropped"),
    pytest.param("error(null)", [], id="null as error"),
    pytest.param("label $out | 1, break $out, 2", [1], id="break"),
]


def evaluate(*texts):
    queries = [Query(text) for text in texts]
    results = Program(queries).results(POD, NOW)
    return [results[query] for query in queries]


@pytest.mark.parametrize(("text", "expected"), RESULTS)
def test_query_results(text, expected):
    (results,) = evaluate(text)
    assert results == expected
    assert [type(result) for result in results] == [type(result) for result in expected]


def test_one_program_evaluates_all_expressions():
    texts = [parameters.values[0] for parameters in RESULTS]
    assert evaluate(*texts) == [parameters.values[1] for parameters in RESULTS]
    assert evaluate() == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the expression is empty"),
        (" # nothing", "syntax error, unexpected end of file"),
        (".a |", "syntax error, unexpected end of file at line 1, column 4"),
        (".a\n]", "at line 2, column 1"),
        ("(.a", "syntax error, unexpected end of file"),
        (".) | (.", "syntax error"),
        (".] catch [], try [.", "syntax error"),
        ("= 1", "syntax error"),
        ("$x", "$x is not defined at line 1, column 1"),
        ("1 | foo(2)", "foo/1 is not defined at line 1, column 5"),
        (".refused_halt |", "syntax error"),
        ('import "a" as a; .', "syntax error"),
        ('include "a"; .', "syntax error"),
        ("halt", "halt is not supported"),
        ('"\\(halt)"', "halt is not supported"),
        ("[1, 2] | map(halt_error)", "halt_error is not supported"),
        ("def f: halt_error(1); f", "halt_error is not supported"),
        ("input", "input is not supported"),
        ("inputs", "inputs is not supported"),
        ("debug", "debug is not supported"),
        ('debug("a")', "debug is not supported"),
        ("stderr", "stderr is not supported"),
        ("input_line_number", "input_line_number is not supported"),
        ("$__prog_args", "$__prog_args is not defined"),
    ],
)
def test_invalid_or_unsupported_expression_is_rejected(text, problem):
    with pytest.raises(JqError) as raised:
        Query(text)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("text", "cheap"),
    [
        ('.status.conditions.[] | select( .type == "Ready" ) | .status', True),
        (".spec.replicas + 1, (.metadata.labels | keys)", True),
        ('.metadata.annotations["range"], .until', True),
        ("..", True),
        ("recurse(.a)", False),
        ('test("(a+)+$")', False),
        ("[range(3)]", False),
        (".spec.replicas * 2", False),
        (".a += 1", False),
        ("def f: f; f", False),
        ('reduce .[] as $x (""; . + .)', False),
    ],
)
def test_expression_is_cheap_if_it_cannot_loop(text, cheap):
    assert Query(text).is_cheap is cheap


@pytest.mark.parametrize(
    ("endless", "reason"),
    [
        ("def f: f; f", "takes more than 1 s"),
        (".a[400000000] = 1", "ended the process"),  # takes all of its memory
    ],
    ids=["loop", "memory"],
)
def test_endless_expression_is_ignored_after_its_limit(caplog, endless, reason):
    queries = [Query(".metadata.name"), Query(endless), Query(".spec.replicas * 2")]
    program = Program(queries)
    for _ in range(2):
        results = program.results(POD, NOW)
        assert [results[query] for query in queries] == [["web"], [], [6]]
    (record,) = caplog.records
    assert f"jq expression {endless!r} is ignored from now on" in record.message
    assert reason in record.message


def test_program_fails_for_an_object_if_only_all_expressions_together_exceed_the_limit(caplog, monkeypatch):
    program = Program([Query(".metadata.name"), Query("[range(3)]"), Query("[range(4)]")])
    evaluate_alone = _worker.evaluate

    def evaluate(text, value):
        if "range(3)" in text and "range(4)" in text and not evaluations:
            evaluations.append(text)
            raise _WorkerEnded("too slow")
        return evaluate_alone(text, value)

    evaluations = []
    monkeypatch.setattr(_worker, "evaluate", evaluate)
    assert [*program.results(POD, NOW).values()] == [[], [], []]
    assert [*program.results(POD, NOW).values()] == [["web"], [[0, 1, 2]], [[0, 1, 2, 3]]]
    assert [record.message for record in caplog.records] == ["jq expressions of an object failed: too slow"]


@pytest.mark.parametrize(
    ("texts", "needed"),
    [
        (
            [".metadata.name", ".metadata.labels.app", ".metadata.missing"],
            {"metadata": {"name": 1, "labels": {"app": 2}}},
        ),
        (['.metadata.labels["a|b"] | .x', ".spec"], {"metadata": {"labels": {"app": 2}}, "spec": [3]}),
        ([".metadata.name", ".metadata[]?"], {"metadata": {"name": 1, "labels": {"app": 2}, "uid": 5}}),
        ([".status.conditions.[] | select(.type)", ".status"], {"status": None}),
        ([".spec.x"], {"spec": [3]}),
    ],
)
def test_jq_receives_only_the_needed_parts_of_an_object(texts, needed):
    obj = {"metadata": {"name": 1, "labels": {"app": 2}, "uid": 5}, "spec": [3], "data": {}}
    assert _needed(obj, [_path(text) for text in texts]) == needed


@pytest.mark.parametrize(
    "text",
    [
        ".",
        "..",
        ".[]",
        '.["a"]',
        ".a, .b",
        ".a // .b",
        ".a.b and .c",
        ".a |= 1",
        ".a as $x | .b",
        ".a + 1",
        "(.a | .b), .c",
    ],
)
def test_jq_receives_the_whole_object_if_an_expression_may_read_it(text):
    obj = {"a": {}, "b": 1, "c": 2}
    assert _needed(obj, [(), ("a",), _path(text)]) == obj
    assert _path(text) == ()
