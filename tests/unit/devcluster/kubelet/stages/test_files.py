"""Stage files: parsing, and errors with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.devcluster.kubelet.stages.files import Finalizers, read_stages
from kubeloop.kube.user_error import UserError
from support.objects.stages import DELETE, SELECT_ALL, stage_text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("a: [", "stages.yaml", id="invalid YAML"),
        pytest.param("", "the file contains no stages", id="empty file"),
        pytest.param("kind: Pod\napiVersion: v1\n", "stages.yaml:1: v1 Pod is not supported", id="another kind"),
        pytest.param("- 1", ":1: a map is required", id="list instead of map"),
        pytest.param(stage_text(spec=SELECT_ALL), "spec.next is missing", id="next is missing"),
        pytest.param(stage_text(spec=DELETE), "spec.selector is missing", id="selector is missing"),
        pytest.param(
            stage_text(kind="''", spec=SELECT_ALL + DELETE),
            ":8: spec.resourceRef: kind is missing",
            id="kind is missing",
        ),
        pytest.param(
            stage_text(spec=SELECT_ALL + DELETE).replace("apiGroup: v1", "apiGroup: apps"),
            ":8: spec.resourceRef.apiGroup: 'apps' is not an apiVersion",
            id="group without version",
        ),
        pytest.param(
            stage_text(spec=SELECT_ALL + DELETE + "  wait: 1\n"), ":11: spec: field 'wait'", id="unknown field"
        ),
        pytest.param(
            stage_text(spec=SELECT_ALL + "  next: {delete: maybe}\n"),
            ":10: spec.next.delete: 'maybe' is not",
            id="not a boolean",
        ),
        pytest.param(
            stage_text(spec=SELECT_ALL + DELETE + "  delay: {durationMilliseconds: 1s}\n"),
            ":11: spec.delay.durationMilliseconds: '1s' is not a non-negative integer",
            id="not a number",
        ),
        pytest.param(
            stage_text(spec="  selector:\n    matchExpressions:\n    - {key: '.a |', operator: Exists}\n" + DELETE),
            ":11: spec.selector.matchExpressions[0].key: jq expression '.a |': syntax error",
            id="invalid jq expression",
        ),
        pytest.param(
            stage_text(spec="  selector:\n    matchExpressions:\n    - {key: .a, operator: In}\n" + DELETE),
            ":11: spec.selector.matchExpressions[0]: In needs values",
            id="In without values",
        ),
        pytest.param(
            stage_text(spec="  selector:\n    matchExpressions:\n    - cel: {expression: 'self.a =='}\n" + DELETE),
            ":11: spec.selector.matchExpressions[0].cel.expression: CEL expression 'self.a ==': ERROR: <input>:1:10:",
            id="invalid CEL expression",
        ),
        pytest.param(
            stage_text(
                spec=SELECT_ALL + "  next:\n    statusTemplate: |\n\n      phase: {{ .x }}\n      a: {{ date }}\n"
            ),
            ":14: spec.next.statusTemplate: template: function 'date' is not supported",
            id="unsupported template function, at its line",
        ),
        pytest.param(
            stage_text(spec=SELECT_ALL + "  next: {statusTemplate: '{{ if }}'}\n"), ":10: ", id="template in one line"
        ),
        pytest.param(
            stage_text(spec=SELECT_ALL + "  steps:\n  - apply: {template: x, type: json}\n"),
            ":11: spec.steps[0].apply.type: 'json' is not one of apply, merge, strategic",
            id="unsupported type of apply",
        ),
        pytest.param(
            stage_text(spec=SELECT_ALL + DELETE) + "---" + stage_text(spec=SELECT_ALL + DELETE),
            "'one' is defined more than once",
            id="duplicate name",
        ),
        pytest.param(
            stage_text(spec=SELECT_ALL + DELETE, metadata="  annotations: {kubeloop.dev/add-to: x}"),
            "is not one of",
            id="invalid annotation add-to",
        ),
    ],
)
def test_invalid_stage_raises_error_with_file_and_line(read_stage_texts, text, problem):
    with pytest.raises(UserError) as caught:
        read_stage_texts(text)
    assert problem in str(caught.value)
    assert caught.value.hint


def test_missing_file_raises_error():
    with pytest.raises(UserError, match="No such file"):
        read_stages([Path("/nowhere/stages.yaml")])


def test_empty_documents_and_null_fields_are_ignored(read_stage_texts):
    text = stage_text(spec=SELECT_ALL + DELETE + "  weight: null\n  delay:\n")
    assert len(read_stage_texts(text, "\n# a comment\n", "\n")) == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(Finalizers(("new", "a"), (), empty=False), ["a", "b", "new"], id="add"),
        pytest.param(Finalizers((), ("a", "missing"), empty=False), ["b"], id="remove"),
        pytest.param(Finalizers(("new",), (), empty=True), ["new"], id="empty, then add"),
        pytest.param(Finalizers((), (), empty=False), ["a", "b"], id="no change"),
    ],
)
def test_finalizers_applied_to_object(change, expected):
    assert change.applied_to(["a", "b"]) == expected
