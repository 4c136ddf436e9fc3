"""Go templates: output as in text/template, KWOK and Sprig, and errors with their line."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.devcluster.languages.gotemplate.syntax import TemplateError
from kubeloop.devcluster.languages.gotemplate.template import Template
from kubeloop.devcluster.languages.gotemplate.values import from_json

POD = {
    "metadata": {"name": "web", "labels": {"app": "web", "a-b": "dashed"}, "generation": 3},
    "spec": {
        "nodeName": "node-0",
        "replicas": 0,
        "containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y:2"}],
    },
    "status": {"phase": "Running", "nothing": None, "none": [], "share": 0.25},
}


def rendered(text: str, data: object = POD) -> str:
    return Template(text).render(from_json(data))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("plain } text {", "plain } text {", id="plain text"),
        pytest.param("{{ .metadata.name }}", "web", id="a field"),
        pytest.param("{{.metadata.name}}-{{.spec.nodeName}}", "web-node-0", id="without spaces"),
        pytest.param("{{ .metadata.missing }}", "<no value>", id="missing field"),
        pytest.param("{{ .metadata.missing.deeper }}", "<no value>", id="field of nil"),
        pytest.param("{{ .status.nothing }}", "<no value>", id="null"),
        pytest.param("{{ .metadata.generation }} {{ .status.share }}", "3 0.25", id="numbers"),
        pytest.param("{{ .metadata.labels }}", "map[a-b:dashed app:web]", id="a map, sorted"),
        pytest.param("{{ .spec.containers }}", "[map[image:x:1 name:a] map[image:y:2 name:b]]", id="a list"),
        pytest.param('{{ `raw "string"` }}{{ "tab\\t\\u00e9\\x41" }}', 'raw "string"tab\téA', id="strings"),
        pytest.param("{{ 'a' }} {{ 0x10 }} {{ -3 }} {{ 1.50 }} {{ 1e3 }}", "97 16 -3 1.5 1000", id="constants"),
        pytest.param("a {{- .metadata.name -}} b", "awebb", id="trim both sides"),
        pytest.param("a\n  {{- /* a note */ -}}\n b", "ab", id="a comment that trims"),
        pytest.param("a{{/* a note\n of two lines */}}b", "ab", id="a comment"),
        pytest.param("{{ -1 }} {{- 2 }}", "-12", id="minus sign is not a trim marker"),
        pytest.param('{{ "}}" }}', "}}", id="braces in a string"),
        pytest.param("{{ $.metadata.name }}", "web", id="root data"),
        pytest.param("{{ $x := .metadata }}{{ $x.name }}", "web", id="a variable and its field"),
        pytest.param("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}", "2", id="outer assignment"),
        pytest.param("{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ end }}{{ $x }}", "1", id="inner declaration"),
        pytest.param("{{ (index .spec.containers 1).name }}", "b", id="a field of parentheses"),
        pytest.param('{{ .metadata.name | Quote | printf "%s-%s" "x" }}', 'x-"web"', id="pipes"),
        pytest.param("{{ if .status.none }}yes{{ else }}no{{ end }}", "no", id="an empty list is false"),
        pytest.param("{{ if 0 }}a{{ else if .spec }}b{{ else }}c{{ end }}", "b", id="else if"),
        pytest.param("{{ with .spec.nodeName }}{{ . }}{{ else }}none{{ end }}", "node-0", id="with"),
        pytest.param("{{ with .none }}{{ . }}{{ else }}{{ .metadata.name }}{{ end }}", "web", id="with, else"),
        pytest.param("{{ with .none }}1{{ else with .spec }}{{ .nodeName }}{{ end }}", "node-0", id="else with"),
        pytest.param("{{ with $n := .spec.nodeName }}{{ $n }}{{ end }}", "node-0", id="with a variable"),
        pytest.param("{{ range .spec.containers }}{{ .name }};{{ end }}", "a;b;", id="range"),
        pytest.param("{{ range $i, $c := .spec.containers }}{{ $i }}{{ $c.name }}{{ end }}", "0a1b", id="with index"),
        pytest.param("{{ range $c := .spec.containers }}{{ $c.name }}{{ end }}", "ab", id="with one variable"),
        pytest.param(
            "{{ range $k, $v := .metadata.labels }}{{ $k }}={{ $v }};{{ end }}", "a-b=dashed;app=web;", id="map"
        ),
        pytest.param("{{ range .status.none }}x{{ else }}empty{{ end }}", "empty", id="range, else"),
        pytest.param("{{ range .missing }}x{{ end }}", "", id="range over nothing"),
        pytest.param("{{ range 3 }}{{ . }}{{ end }}", "012", id="range over a number"),
        pytest.param(
            "{{ range 9 }}{{ if eq . 2 }}{{ continue }}{{ end }}{{ if gt . 3 }}{{ break }}{{ end }}{{ . }}{{ end }}",
            "013",
            id="break and continue",
        ),
        pytest.param("{{ range .spec.containers }}{{ $.metadata.name }}{{ end }}", "webweb", id="root data in a range"),
        pytest.param('{{ or .missing "x" }}{{ and 1 0 }}{{ not 1 }}', "x0false", id="or, and, not"),
        pytest.param("{{ or 1 (index .spec.containers 9) }}", "1", id="or short-circuits"),
        pytest.param('{{ eq .status.phase "Pending" "Running" }}', "true", id="eq with several"),
        pytest.param(
            '{{ eq .missing "x" }} {{ ne 1 2 }} {{ lt 1 2 }} {{ ge "b" "a" }}', "false true true true", id="comparison"
        ),
        pytest.param(
            '{{ index .metadata.labels "a-b" }} {{ index .metadata.labels "no" }}', "dashed <no value>", id="index"
        ),
        pytest.param('{{ index .spec.containers 0 "name" }} {{ len .spec.containers }}', "a 2", id="index deep, len"),
        pytest.param("{{ slice .spec.containers 1 }}", "[map[image:y:2 name:b]]", id="slice of Sprig"),
        pytest.param(
            '{{ if .spec.replicas }}set{{ end }} {{ eq .spec.replicas "0" }} {{ int .spec.replicas }}',
            "set true 0",
            id="a number of the object is a json.Number",
        ),
        pytest.param('{{ print 1 2 "a" 3 }}|{{ println "a" 1 }}', "1 2a3|a 1\n", id="print"),
        pytest.param(
            '{{ printf "%05d|%-4s|%q|%.2f|%v|%x|%t|%%" 42 "a" "b" 1.5 .status.none 255 true }}',
            '00042|a   |"b"|1.50|[]|ff|true|%',
            id="printf",
        ),
        pytest.param('{{ printf "%d" "x" }}{{ printf "%s" }}', "%!d(string=x)%!s(MISSING)", id="printf error verbs"),
        pytest.param(
            '{{ .metadata.name | Quote }}{{ 3 | Quote }}{{ "a<\\"" | Quote }}', '"web""3""a\\u003c\\""', id="Quote"
        ),
        pytest.param("x:{{ YAML .metadata.labels 1 }}", "x:\n  a-b: dashed\n  app: web\n  ", id="YAML"),
        pytest.param(
            "{{ range NodeConditions }}{{ .type }}={{ .status }} {{ end }}",
            "Ready=True MemoryPressure=False DiskPressure=False PIDPressure=False NetworkUnavailable=False ",
            id="NodeConditions",
        ),
        pytest.param('{{ default "x" .missing }}{{ default "x" .metadata.name }}', "xweb", id="default"),
        pytest.param('{{ $d := dict "a" 1 "b" 2 }}{{ $d.a }}{{ index $d "b" }}', "12", id="dict"),
        pytest.param('{{ int "7" }} {{ int "x" }}', "7 0", id="conversion"),
    ],
)
def test_template_output(text, expected):
    assert rendered(text) == expected


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        pytest.param("a\n{{ .x", 2, "unclosed action", id="unclosed action"),
        pytest.param("\n\n{{ if .x }}", 3, "{{if}} without its {{end}}", id="unclosed branch"),
        pytest.param("a{{ end }}", 1, "unexpected {{end}}", id="unexpected end"),
        pytest.param("{{ if 1 }}{{ else }}{{ else }}{{ end }}", 1, "a second {{else}}", id="two else"),
        pytest.param("{{ }}", 1, "missing value", id="empty action"),
        pytest.param("{{ if }}x{{ end }}", 1, "missing value", id="no condition"),
        pytest.param(
            "{{ .a\n | env }}", 2, "'env' is not supported: of Sprig, there are only", id="unsupported function"
        ),
        pytest.param("{{ required 1 .a }}", 1, "function 'required' is not defined", id="function of Helm"),
        pytest.param('{{ define "x" }}{{ end }}', 1, "{{define}} is not supported", id="define"),
        pytest.param('{{ template "x" }}', 1, "{{template}} is not supported", id="template"),
        pytest.param("a\n{{ $x }}", 2, "undefined variable $x", id="a variable never declared"),
        pytest.param("{{ if 1 }}{{ $x := 1 }}{{ end }}\n{{ $x }}", 2, "undefined variable $x", id="out of scope"),
        pytest.param("{{ $x = 1 }}", 1, "undefined variable $x", id="assigned before declared"),
        pytest.param("{{ len }}", 1, "wrong number of arguments for len: wants 1, got 0", id="too few arguments"),
        pytest.param("{{ 1 | not 2 }}", 1, "wrong number of arguments for not: wants 1, got 2", id="too many"),
        pytest.param("{{ or len 1 }}", 1, "wrong number of arguments for len", id="a bare function as argument"),
        pytest.param("{{ 1 2 }}", 1, "1 is not a function", id="a number called"),
        pytest.param("{{ .x 2 }}", 1, ".x is not a function", id="a field called"),
        pytest.param("{{ (1 }}", 1, "( that is not closed", id="parenthesis"),
        pytest.param('{{ "abc }}', 1, "a string that does not end", id="string"),
        pytest.param("{{ 1 | }}", 1, "missing value", id="nothing after the pipe"),
        pytest.param("{{ .a ! }}", 1, "unexpected '!'", id="unexpected character"),
        pytest.param("{{ break }}", 1, "{{break}} outside of a range", id="break outside of a range"),
        pytest.param("{{ range .x }}{{ else }}{{ break }}{{ end }}", 1, "outside of a range", id="break in the else"),
        pytest.param("{{/* never closed", 1, "a comment that does not end", id="comment"),
    ],
)
def test_invalid_template_error_has_its_line(text, line, problem):
    with pytest.raises(TemplateError) as raised:
        Template(text)
    assert raised.value.line == line
    assert problem in raised.value.problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ .metadata.name.x }}", "can't evaluate field x in type string"),
        ("{{ index .missing 0 }}", "index: index of untyped nil"),
        ("\n{{ index .spec.containers 2 }}", "line 2: index: index 2 is out of range (length 2)"),
        ("{{ range .metadata.name }}{{ end }}", "range can't iterate over type string"),
        ('{{ lt 1 "a" }}', "incompatible types for comparison"),
        ("{{ printf 1 }}", "printf: wrong type for value; expected string; got int"),
        ("{{ printf .metadata.generation }}", "printf: wrong type for value; expected string; got json.Number"),
        ("{{ range .metadata.generation }}{{ end }}", "range can't iterate over type json.Number"),
        ('{{ slice "abcdef" 1 3 }}', "slice: list should be type of slice or array but string"),
    ],
)
def test_rendering_error_names_the_problem(text, problem):
    template = Template(text)
    with pytest.raises(TemplateError) as raised:
        template.render(from_json(POD))
    assert problem in str(raised.value)


def test_context_functions_are_checked_and_passed_at_rendering():
    template = Template("{{ NodeIPWith .spec.nodeName | Quote }}", context={"NodeIPWith": (1, 1)})
    assert template.render(POD, {"NodeIPWith": lambda name: f"ip of {name}"}) == '"ip of node-0"'
    with pytest.raises(TemplateError, match="not defined"):
        Template("{{ NodeIPWith 1 }}")


def test_template_can_be_rendered_repeatedly():
    template = Template("{{ $n := 0 }}{{ range $i, $c := .spec.containers }}{{ $n = $i }}{{ end }}{{ $n }}")
    assert [template.render(POD), template.render({"spec": {}}), template.render(POD)] == ["1", "0", "1"]


@given(st.text(alphabet="{}-%/*.$|()\"`' \nabif01=:,", max_size=40))
def test_any_text_is_parsed_or_rejected(text):
    try:
        template = Template(text)
    except TemplateError as error:
        line = error.line
    else:
        render_or_template_error(template)
        line = 1
    assert 1 <= line <= text.count("\n") + 1


@given(st.integers(0, 2**32 - 1))
def test_random_action_sequences_are_parsed_or_rejected(seed):
    rng = random.Random(seed)
    pieces = [
        "{{ if .a }}",
        "{{ else }}",
        "{{ end }}",
        "{{ range $i, $x := .b }}",
        "{{ $x.c }}",
        "text",
        "{{ with .d }}",
        "{{- .e -}}",
        "{{ else if .f }}",
        "{{ $y := 1 }}",
        "{{ $y }}",
        "{{ break }}",
        "{{ or .g (not .h) | Quote }}",
    ]
    try:
        template = Template("".join(rng.choice(pieces) for _ in range(rng.randint(1, 9))))
    except TemplateError:
        return
    render_or_template_error(template)


def render_or_template_error(template: Template) -> None:
    for data in ({}, {"a": 1, "b": [{"c": 2}], "d": {"e": "x"}}):
        try:
            assert isinstance(template.render(data), str)
        except TemplateError:
            continue
