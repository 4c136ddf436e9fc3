"""Values that mutation expressions create."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.languages.mutation_objects import (
    APPLY_CONFIGURATION_RESULT,
    JSON_PATCH_RESULT,
    MUTATION_LIBRARY,
    to_json,
)
from kubeloop.kube.policy_cel.environment import Environment


def evaluate(text: str, results: Any) -> Any:
    expression = Environment(has_params=False, library=MUTATION_LIBRARY).compile(text, results)
    assert expression.program is not None, expression.error
    return expression.program.run({}).value


def test_apply_configuration_to_json():
    value = evaluate("Object{spec: Object.spec{replicas: 3}}", APPLY_CONFIGURATION_RESULT)
    assert value.type_name_errors() == ""
    assert to_json(value) == {"spec": {"replicas": 3}}


def test_nested_type_name_must_be_its_path():
    value = evaluate("Object{spec: Object.status{}}", APPLY_CONFIGURATION_RESULT)
    assert value.type_name_errors().startswith('unexpected type name "Object.status", expected "Object.spec"')


def test_json_patch_operations_to_json():
    text = "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~c'), value: 'x'}]"
    assert to_json(evaluate(text, JSON_PATCH_RESULT)) == [
        {"op": "add", "path": "/metadata/labels/a~1b~0c", "value": "x"}
    ]
