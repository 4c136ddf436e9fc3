"""Requests that test validation rules of custom resources (x-kubernetes-validations): see rule_cases.yaml.

Each case is a field of a definition, with the schema and rules of the case; its objects set only that field. One
definition has many such fields, because kube-apiserver needs about a second to serve a new definition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from kubeloop.devcluster.apiextensions.schema_validation import check_schema
from kubeloop.devcluster.validation.common.error_list import ErrorList
from support.apiserver.api_response import ApiResponse
from support.comparison.custom_resource_requests import Step

JSON = dict[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "rules.example.com"
_PER_DEFINITION = 40
_SUBJECT: JSON = {  # the schema for expressions that do not compile
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 10},
        "size": {"type": "integer"},
        "when": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 10}},
        "labels": {"type": "object", "maxProperties": 3, "additionalProperties": {"type": "string", "maxLength": 9}},
        "inner": {
            "type": "object",
            "properties": {"deep": {"type": "object", "properties": {"x": {"type": "string"}}}},
        },
        "namespace": {"type": "string"},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
    },
}


@dataclass(frozen=True)
class Case:
    """A schema with its rules."""

    about: str
    schema: JSON
    values: tuple[Any, ...] = ()
    updates: tuple[tuple[Any, Any], ...] = ()

    @property
    def served(self) -> bool:
        """Return True if the case has objects and a valid schema, so that a definition needs a field for it."""
        errors = ErrorList()
        check_schema(errors, {"type": "object", "properties": {"p": self.schema}}, "", has_status=False)
        return bool(self.values or self.updates) and not errors


def _with_rules(schema: JSON, rules: list[JSON]) -> JSON:
    return {**schema, "x-kubernetes-validations": rules}


@cache
def cases() -> tuple[Case, ...]:
    result: list[Case] = []
    for number, entry in enumerate(yaml.safe_load((Path(__file__).parent / "rule_cases.yaml").read_text())):
        result += [
            Case(text, _with_rules({"type": "object"}, [{"rule": text}]), ({},))
            for text in entry.get("expressions", ())
        ]
        result += [Case(text, _with_rules(_SUBJECT, [{"rule": text}])) for text in entry.get("refused", ())]
        if "schema" in entry:
            schema = _with_rules(entry["schema"], entry["rules"])
            updates = tuple((old, new) for old, new in entry.get("updates", ()))
            about = f"{number}: {entry['rules'][0]['rule']}"
            result.append(Case(about, schema, tuple(entry.get("values", ())), updates))
    return tuple(result)


def definition(plural: str, fields: JSON) -> JSON:
    kind = plural.capitalize()
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"plural": plural, "singular": plural, "kind": kind, "listKind": f"{kind}List"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def _object(plural: str, name: str, field: str, value: Any, **metadata: Any) -> JSON:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": plural.capitalize(),
        "metadata": {"name": name, **metadata},
        "spec": {} if value is None else {field: value},
    }


def steps() -> Iterator[Step]:
    """Return dry runs of every definition, then served definitions with their objects."""
    yield from _whole_steps()
    served = []
    for number, case in enumerate(cases()):
        yield Step(f"definition {case.about}", "POST", f"{CRDS}?dryRun=All", definition("tried", {"p": case.schema}))
        if case.served:
            served.append((f"p{number}", case))
    for start in range(0, len(served), _PER_DEFINITION):
        part = served[start : start + _PER_DEFINITION]
        plural = f"things{start}"
        yield from _served_steps(plural, part)


_WHOLE: JSON = {
    "type": "object",
    "x-kubernetes-validations": [
        {"rule": "self.metadata.name.startsWith('a')", "message": "names begin with a"},
        {"rule": "self.kind == 'Wholes' && self.apiVersion.endsWith('/v1')"},
        {"rule": "!has(self.metadata.generateName)"},
        {"rule": "!has(self.status) || !has(self.status.ready) || self.status.ready <= self.spec.replicas"},
        {
            "rule": "self.spec.replicas >= oldSelf.spec.replicas",
            "message": "never fewer",
            "reason": "FieldValueForbidden",
        },
    ],
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer", "default": 1},
                "limits": {
                    "type": "object",
                    "maxProperties": 4,
                    "additionalProperties": {
                        "x-kubernetes-int-or-string": True,
                        "x-kubernetes-validations": [{"rule": "isQuantity(string(self))"}],
                    },
                },
                "template": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                    "x-kubernetes-validations": [{"rule": "self.metadata.name != 'bad'"}],
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {"ready": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= 0"}]}},
        },
    },
}


def _whole(name: str, spec: JSON, **more: Any) -> JSON:
    metadata = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": f"{GROUP}/v1", "kind": "Wholes", "metadata": metadata, "spec": spec, **more}


def _whole_steps() -> Iterator[Step]:
    """Rules at the root of a resource, of its status, its scale, its metadata and of embedded resources."""
    body = definition("wholes", {})
    version = body["spec"]["versions"][0]
    version["schema"]["openAPIV3Schema"] = _WHOLE
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.ready"}
    version["subresources"] = {"status": {}, "scale": scale}
    path = f"/apis/{GROUP}/v1/wholes"
    yield Step("definition of wholes", "POST", CRDS, body, settle=True)
    yield Step("name violates a rule", "POST", path, _whole("b", {}))
    yield Step("valid name", "POST", path, _whole("a", {"replicas": 3}))
    yield Step("a generated name", "POST", path, {**_whole("", {}), "metadata": {"generateName": "a-"}})
    yield Step("fewer", "PUT", f"{path}/a", _whole("a", {"replicas": 1}, metadata={"resourceVersion": "0"}))
    merge = "application/merge-patch+json"
    yield Step("fewer by a patch", "PATCH", f"{path}/a", {"spec": {"replicas": 2}}, merge)
    yield Step("fewer by a scale", "PATCH", f"{path}/a/scale", {"spec": {"replicas": 1}}, merge)
    yield Step("scale up", "PATCH", f"{path}/a/scale", {"spec": {"replicas": 5}}, merge)
    yield Step("status violates the root rule", "PATCH", f"{path}/a/status", {"status": {"ready": 9}}, merge)
    yield Step("status violates its own rule", "PATCH", f"{path}/a/status", {"status": {"ready": -1}}, merge)
    yield Step("valid status", "PATCH", f"{path}/a/status", {"status": {"ready": 5}}, merge)
    limits = {"cpu": "1", "memory": 5, "disk": "1Gx"}
    yield Step("limits", "PATCH", f"{path}/a", {"spec": {"limits": limits}}, merge)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}}
    yield Step("embedded name", "PATCH", f"{path}/a", {"spec": {"template": pod}}, merge)
    apply = "application/apply-patch+yaml"
    for name in ("c", "ac"):
        applied = _whole(name, {"replicas": 1})
        yield Step(f"{name} applied", "PATCH", f"{path}/{name}?fieldManager=x", applied, apply)
    stricter = json.loads(json.dumps(body))
    schema = stricter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["x-kubernetes-validations"] = [{"rule": "self.replicas > 100", "message": "many"}]
    yield Step("stricter definition", "PATCH", f"{CRDS}/wholes.{GROUP}", {"spec": stricter["spec"]}, merge, settle=True)
    yield Step("unchanged field", "PATCH", f"{path}/a", {"metadata": {"labels": {"x": "y"}}}, merge)
    yield Step("changed field", "PATCH", f"{path}/a", {"spec": {"replicas": 7}}, merge)
    yield Step("end of wholes", "DELETE", f"{CRDS}/wholes.{GROUP}")


def _served_steps(plural: str, part: list[tuple[str, Case]]) -> Iterator[Step]:
    fields = {field: case.schema for field, case in part}
    yield Step(f"definition of {plural}", "POST", CRDS, definition(plural, fields), settle=True)
    path = f"/apis/{GROUP}/v1/{plural}"
    for field, case in part:
        for index, value in enumerate(case.values):
            body = _object(plural, f"{field}-{index}", field, value)
            yield Step(f"{case.about} of {json.dumps(value)}", "POST", f"{path}?dryRun=All", body)
        for index, (old, new) in enumerate(case.updates):
            name = f"{field}-u{index}"
            about = f"{case.about} from {json.dumps(old)}"
            yield Step(about, "POST", path, _object(plural, name, field, old))
            merge = "application/merge-patch+json"
            patch = {"metadata": {"labels": {"a": "b"}}, "spec": {field: new}}
            yield Step(f"{about} to {json.dumps(new)}", "PATCH", f"{path}/{name}?dryRun=All", patch, merge)
    yield Step(f"end of {plural}", "DELETE", f"{CRDS}/{plural}.{GROUP}")


def comparable(response: ApiResponse) -> JSON:
    """Return a response without the type names that kube-apiserver derives from the time, and with sorted causes."""
    content, warnings = response.content, sorted(map(_plain, response.warnings))
    if response.status < 400:
        return {"status": response.status, "warnings": warnings}
    causes = (content.get("details") or {}).get("causes") or []
    texts = [f"{cause.get('field')}: {cause.get('reason')}: {_plain(cause.get('message', ''))}" for cause in causes]
    return {
        "status": response.status,
        "reason": content.get("reason"),
        "causes": sorted(texts) or _plain(content.get("message", "")),
        "warnings": warnings,
    }


def _plain(text: str) -> str:
    return re.sub(r"selfType\d*", "selfType", text)
