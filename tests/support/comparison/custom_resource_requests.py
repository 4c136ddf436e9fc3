"""Requests for custom resources whose responses are compared between API servers.

`steps()` is one sequence for a server without these groups: accepted and refused definitions, accepted and refused
objects, patches, applies, subresources, selectors, tables, two versions, and deletion.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from support.apiserver.api_response import ApiResponse

JSON = dict[str, Any]

WIDGETS: JSON = yaml.safe_load((Path(__file__).parent / "widgets.yaml").read_text())
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_GROUP = "/apis/example.com/v1"
_ALL = f"{_GROUP}/namespaces/default/widgets"


@dataclass(frozen=True)
class Step:
    """One request.

    settle: the server may process the change asynchronously after it responded. loosely: only the status is compared,
    because the message comes from a library (of regular expressions) or is not JSON.
    """

    about: str
    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"
    accept: str = "application/json"
    settle: bool = False
    loosely: bool = False


def widget(name: str, spec: JSON | None = None, **more: Any) -> JSON:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"color": "red", **(spec or {})},
        **more,
    }


def definition(plural: str = "gears", kind: str = "Gear", group: str = "other.example.com", **version: Any) -> JSON:
    """Return a minimal definition. version: fields of its only version."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": plural, "kind": kind},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    **version,
                }
            ],
        },
    }


def _schema(properties: JSON, **more: Any) -> JSON:
    spec = {"type": "object", "properties": properties, **more}
    return {"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}


def _changed(obj: JSON, path: str, value: Any) -> JSON:
    """Return a copy with another value at a path of names and indices. None removes the field."""
    result = copy.deepcopy(obj)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    inner: Any = result
    for part in parents:
        inner = inner[part]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return result


_S = {"type": "string"}
REFUSED_DEFINITIONS: dict[str, JSON] = {
    "name differs from plural and group": {**definition(), "metadata": {"name": "gear.other.example.com"}},
    "no group": _changed(definition(), "spec/group", ""),
    "group without dot": definition(group="example"),
    "invalid scope": _changed(definition(), "spec/scope", "Global"),
    "no scope": _changed(definition(), "spec/scope", None),
    "no versions": _changed(definition(), "spec/versions", []),
    "no storage version": _changed(definition(), "spec/versions/0/storage", False),
    "invalid version name": _changed(definition(), "spec/versions/0/name", "V1"),
    "uppercase plural": definition(plural="Gears"),
    "no kind": _changed(definition(), "spec/names/kind", ""),
    "kind equals list kind": _changed(definition(), "spec/names/listKind", "Gear"),
    "invalid short name": _changed(definition(), "spec/names/shortNames", ["G_"]),
    "invalid category": _changed(definition(), "spec/names/categories", ["A"]),
    "no schema": _changed(definition(), "spec/versions/0/schema", None),
    "preserveUnknownFields": _changed(definition(), "spec/preserveUnknownFields", True),
    "Kubernetes group without approval": definition(group="gears.k8s.io"),
    "invalid approval": _changed(
        definition(group="gears.k8s.io"),
        "metadata",
        {"name": "gears.gears.k8s.io", "annotations": {"api-approved.kubernetes.io": "yes"}},
    ),
    "deprecation warning without deprecation": definition(deprecationWarning="old"),
    "field without type": definition(**_schema({"a": {"description": "x"}})),
    "invalid type": definition(**_schema({"a": {"type": "text"}})),
    "array without items": definition(**_schema({"a": {"type": "array"}})),
    "additionalProperties at the root": definition(
        schema={"openAPIV3Schema": {"type": "object", "additionalProperties": True}}
    ),
    "root is not an object": definition(schema={"openAPIV3Schema": {"type": "string"}}),
    "nullable root": definition(schema={"openAPIV3Schema": {"type": "object", "nullable": True}}),
    "type in anyOf": definition(**_schema({"a": {"type": "string", "anyOf": [{"type": "string"}]}})),
    "field only in oneOf": definition(**_schema({"a": _S}, oneOf=[{"properties": {"b": {"minLength": 1}}}])),
    "description in not": definition(**_schema({"a": {"type": "string", "not": {"description": "x"}}})),
    "unique items": definition(**_schema({"a": {"type": "array", "items": _S, "uniqueItems": True}})),
    "map list without keys": definition(
        **_schema({"a": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}})
    ),
    "optional key of a map list": definition(
        **_schema(
            {
                "a": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"k": _S}},
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                }
            }
        )
    ),
    "set of objects": definition(
        **_schema({"a": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}})
    ),
    "list type of a string": definition(**_schema({"a": {"type": "string", "x-kubernetes-list-type": "set"}})),
    "invalid list type": definition(**_schema({"a": {"type": "array", "items": _S, "x-kubernetes-list-type": "bag"}})),
    "invalid map type": definition(**_schema({"a": {"type": "object", "x-kubernetes-map-type": "loose"}})),
    "invalid default": definition(**_schema({"a": {"type": "string", "default": 3}})),
    "default with an unknown field": definition(**_schema({"a": {"type": "object", "default": {"b": 1}}})),
    "default in metadata": definition(
        schema={
            "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "metadata": {"type": "object", "properties": {"name": {"type": "string", "default": "x"}}}
                },
            }
        }
    ),
    "labels in metadata": definition(
        schema={
            "openAPIV3Schema": {
                "type": "object",
                "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}},
            }
        }
    ),
    "invalid pattern": definition(**_schema({"a": {"type": "string", "pattern": "["}})),
    "reference": definition(**_schema({"a": {"$ref": "#/definitions/b"}})),
    "embedded resource is a string": definition(
        **_schema({"a": {"type": "string", "x-kubernetes-embedded-resource": True}})
    ),
    "int-or-string with another type": definition(
        **_schema({"a": {"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True}})
    ),
    "properties and additionalProperties": definition(
        **_schema({"a": {"type": "object", "properties": {"b": _S}, "additionalProperties": _S}})
    ),
    "column without path": definition(additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": ""}]),
    "invalid column type": definition(additionalPrinterColumns=[{"name": "A", "type": "text", "jsonPath": ".spec.a"}]),
    "column path without dot": definition(
        additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": "spec.a"}]
    ),
    "invalid scale paths": definition(
        subresources={"scale": {"specReplicasPath": ".status.a", "statusReplicasPath": ".spec.b"}}
    ),
    "missing selectable field": definition(**_schema({"a": _S}), selectableFields=[{"jsonPath": ".spec.b"}]),
    "selectable object": definition(**_schema({"a": _S}), selectableFields=[{"jsonPath": ".spec"}]),
    "conversion webhook without client config": _changed(definition(), "spec/conversion", {"strategy": "Webhook"}),
    "invalid conversion strategy": _changed(definition(), "spec/conversion", {"strategy": "Magic"}),
    "unknown field": _changed(definition(), "spec/colour", "red"),
}
"""Definitions that are refused (with fieldValidation=Strict)."""

REFUSED_WIDGETS: dict[str, JSON] = {
    "no color": _changed(widget("bad"), "spec", {}),
    "null color": widget("bad", {"color": None}),
    "invalid color": widget("bad", {"color": "pink"}),
    "spec is a list": _changed(widget("bad"), "spec", []),
    "number as string": widget("bad", {"replicas": "3"}),
    "fraction for an integer": widget("bad", {"replicas": 1.5}),
    "too many": widget("bad", {"replicas": 101}),
    "too few": widget("bad", {"replicas": -1}),
    "beyond int32": widget("bad", {"replicas": 3000000000}),
    "too short": widget("bad", {"name": "a"}),
    "too long": widget("bad", {"name": "abcdefghij"}),
    "pattern mismatch": widget("bad", {"name": "a-b"}),
    "invalid time": widget("bad", {"when": "yesterday"}),
    "invalid address": widget("bad", {"address": "1.2.3"}),
    "boolean port": widget("bad", {"port": True}),
    "not a multiple": widget("bad", {"ratio": 0.7}),
    "exclusive minimum": widget("bad", {"ratio": 0}),
    "too many items": widget("bad", {"tags": ["a", "b", "c", "d"]}),
    "duplicate item": widget("bad", {"tags": ["a", "a"]}),
    "duplicate key": widget("bad", {"parts": [{"name": "a"}, {"name": "a"}]}),
    "missing key": widget("bad", {"parts": [{"size": 1}]}),
    "too few items": widget("bad", {"parts": []}),
    "too many properties": widget("bad", {"labels": {"a": "1", "b": "2", "c": "3"}}),
    "label is a number": widget("bad", {"labels": {"a": 1}}),
    "embedded object without kind": widget("bad", {"template": {"apiVersion": "v1"}}),
    "embedded object with invalid metadata": widget(
        "bad", {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": 1}}}}
    ),
    "embedded object with an invalid label": widget(
        "bad", {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "-"}}}}
    ),
    "oneOf: both": widget("bad", {"one": {"a": "x", "b": "y"}}),
    "oneOf: none": widget("bad", {"one": {}}),
    "anyOf: none": widget("bad", {"any": {}}),
    "allOf: one missing": widget("bad", {"all": {"a": 1}}),
    "allOf: none": widget("bad", {"all": {}}),
    "not": widget("bad", {"never": "bad"}),
    "invalid name": widget("Bad_"),
    "invalid label": _changed(widget("bad"), "metadata", {"name": "bad", "labels": {"a": "-"}}),
    "label is not a string": _changed(widget("bad"), "metadata", {"name": "bad", "labels": {"a": 1}}),
    "wrong kind": {**widget("bad"), "kind": "Gadget"},
    "wrong version": {**widget("bad"), "apiVersion": "example.com/v2"},
    "wrong namespace": _changed(widget("bad"), "metadata", {"name": "bad", "namespace": "other"}),
    "two errors": widget("bad", {"color": "pink", "replicas": 200}),
}
"""Widgets that are refused."""

_W1 = widget(
    "w1",
    {
        "parts": [{"name": "a"}, {"name": "b", "size": 5}],
        "tags": ["x", "z"],
        "extra": {"foo": {"bar": 1}},
        "port": "http",
        "ratio": 2.5,
        "labels": {"k": "v"},
        "on": True,
        "maybe": None,
        "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "unknown": 1}, "spec": {"any": 1}},
        "unknown": 1,
        "nested": {"more": {}},
    },
    status={"replicas": 9},
)


def _patch(about: str, patch: Any, content_type: str = MERGE, name: str = "w1", query: str = "", sub: str = "") -> Step:
    path = f"{_ALL}/{name}{'/' + sub if sub else ''}{'?' + query if query else ''}"
    return Step(about, "PATCH", path, patch, content_type)


def _discovery() -> Iterator[Step]:
    yield Step("versions of the group", "GET", "/apis/example.com")
    yield Step("resources of the version", "GET", _GROUP)
    yield Step("missing version", "GET", "/apis/example.com/v2")
    yield Step("missing resource", "GET", f"{_GROUP}/gadgets")
    yield Step("missing subresource", "GET", f"{_ALL}/w1/log")
    yield Step("namespaced object without namespace", "GET", f"{_GROUP}/widgets/w1")


def _reading() -> Iterator[Step]:
    yield Step("read", "GET", f"{_ALL}/w1")
    yield Step("read a missing object", "GET", f"{_ALL}/missing")
    yield Step("list", "GET", _ALL)
    yield Step("list across namespaces", "GET", f"{_GROUP}/widgets")
    yield Step("list one of two", "GET", f"{_ALL}?labelSelector=app%3Dx")
    yield Step("select by name", "GET", f"{_ALL}?fieldSelector=metadata.name%3Dw1")
    yield Step("select by a field", "GET", f"{_ALL}?fieldSelector=spec.color%3Dred,spec.on%3Dtrue")
    yield Step("select by an unselectable field", "GET", f"{_ALL}?fieldSelector=spec.name%3Dx")
    yield Step("as a table", "GET", _ALL, accept=TABLE)
    yield Step("one as a table", "GET", f"{_ALL}/w1", accept=TABLE)
    yield Step("a table without objects", "GET", f"{_ALL}?includeObject=None", accept=TABLE)
    yield Step("as metadata", "GET", _ALL, accept=METADATA)
    yield Step("as protobuf", "GET", f"{_ALL}/w1", accept="application/vnd.kubernetes.protobuf", loosely=True)
    yield Step(
        "as protobuf or JSON", "GET", f"{_ALL}/w1", accept="application/vnd.kubernetes.protobuf,application/json"
    )


def _writing() -> Iterator[Step]:
    yield Step("create", "POST", f"{_ALL}?fieldManager=tester", _W1)
    yield Step("create again", "POST", _ALL, _W1)
    yield Step("create strictly", "POST", f"{_ALL}?fieldValidation=Strict", widget("bad", {"unknown": 1, "x": 2}))
    yield Step(
        "create ignoring unknown fields",
        "POST",
        f"{_ALL}?fieldValidation=Ignore&dryRun=All",
        widget("dry", {"unknown": 1}),
    )
    yield Step(
        "invalid finalizer",
        "POST",
        f"{_ALL}?dryRun=All",
        _changed(widget("fin"), "metadata", {"name": "fin", "finalizers": ["mine"]}),
    )
    yield Step("create without namespace", "POST", f"{_GROUP}/widgets", widget("w2"))
    yield Step("create in a missing namespace", "POST", f"{_GROUP}/namespaces/none/widgets", widget("w2"))
    yield Step(
        "create with a generated name", "POST", _ALL, _changed(widget("x"), "metadata", {"generateName": "gen-"})
    )
    yield Step(
        "create green",
        "POST",
        _ALL,
        _changed(widget("w2", {"color": "green"}), "metadata", {"name": "w2", "labels": {"app": "x"}}),
    )
    for about, body in REFUSED_WIDGETS.items():
        yield Step(f"refused: {about}", "POST", _ALL, body, loosely=about == "wrong version")
    yield Step("put without resourceVersion", "PUT", f"{_ALL}/w2", widget("w2", {"color": "blue"}))
    yield Step("put a missing object", "PUT", f"{_ALL}/w9", widget("w9"))
    yield Step("put with another name", "PUT", f"{_ALL}/w2", widget("w3"))
    yield Step("delete the generated", "DELETE", f"{_ALL}?fieldSelector=spec.color%3Dred,metadata.name!%3Dw1")


def _patching() -> Iterator[Step]:
    yield _patch("merge", {"spec": {"replicas": 2, "extra": {"foo": None, "new": [1]}}}, query="fieldManager=merger")
    yield _patch("merge nothing", {"spec": {"replicas": 2}})
    yield _patch("merge metadata", {"metadata": {"labels": {"app": "x"}, "finalizers": ["example.com/mine"]}})
    yield _patch("merge status", {"status": {"replicas": 3}})
    yield _patch("merge an unknown field", {"spec": {"unknown": 1}})
    yield _patch("merge an unknown field strictly", {"spec": {"unknown": 1}}, query="fieldValidation=Strict")
    yield _patch("merge an invalid value", {"spec": {"color": "pink"}})
    yield _patch("merge another kind", {"kind": "Gadget"})
    yield _patch("strategic", {"spec": {}}, "application/strategic-merge-patch+json")
    yield _patch("JSON content type", {"spec": {}}, "application/json")
    yield _patch("JSON", [{"op": "replace", "path": "/spec/color", "value": "blue"}], "application/json-patch+json")
    yield _patch(
        "JSON patch with a failing test",
        [{"op": "test", "path": "/spec/color", "value": "x"}],
        "application/json-patch+json",
    )
    yield _patch("missing object", {"spec": {}}, name="missing")
    yield _patch(
        "status by merging",
        {"status": {"phase": "Running", "replicas": 1, "selector": "a=b"}, "spec": {"color": "red"}},
        sub="status",
        query="fieldManager=operator",
    )
    yield _patch("invalid status", {"status": {"phase": "Gone"}}, sub="status")
    yield _patch("condition", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, sub="status")
    yield Step("read the status", "GET", f"{_ALL}/w1/status")
    yield Step("read the scale", "GET", f"{_ALL}/w1/scale")
    yield Step("read the scale of a missing object", "GET", f"{_ALL}/missing/scale")
    yield _patch("scale", {"spec": {"replicas": 7}}, sub="scale", query="fieldManager=scaler")
    yield _patch("scale above the maximum", {"spec": {"replicas": 700}}, sub="scale")
    yield _patch("scale below zero", {"spec": {"replicas": -1}}, sub="scale")
    yield Step(
        "put a scale",
        "PUT",
        f"{_ALL}/w1/scale",
        {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": "w1", "namespace": "default"},
            "spec": {"replicas": 4},
        },
    )
    yield Step("after all patches", "GET", f"{_ALL}/w1")


def _applying() -> Iterator[Step]:
    base = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "ap"}}

    def apply(about: str, spec: JSON, manager: str = "one", query: str = "", **more: Any) -> Step:
        path = f"{_ALL}/ap?fieldManager={manager}{'&' + query if query else ''}"
        return Step(about, "PATCH", path, {**base, "spec": spec, **more}, APPLY)

    parts = [{"name": "a", "size": 1}, {"name": "b"}]
    yield apply(
        "first apply",
        {"color": "red", "parts": parts, "labels": {"x": "1"}, "tags": ["p", "q"], "extra": {"a": {"b": [1]}}},
    )
    yield apply(
        "apply the same",
        {"color": "red", "parts": parts, "labels": {"x": "1"}, "tags": ["p", "q"], "extra": {"a": {"b": [1]}}},
    )
    yield apply(
        "second manager adds",
        {"parts": [{"name": "c", "colors": ["x"]}], "labels": {"y": "2"}, "tags": ["r"], "atomic": {"a": "1"}},
        "two",
    )
    yield apply(
        "second manager conflicts",
        {"color": "blue", "parts": [{"name": "a", "size": 2}], "extra": {"a": {"b": [2]}}},
        "two",
    )
    yield apply("second manager forces", {"color": "blue", "parts": [{"name": "a", "size": 2}]}, "two", "force=true")
    yield apply("first manager removes fields", {"color": "blue", "parts": [{"name": "b"}], "labels": {"x": "1"}})
    yield apply("unknown field", {"color": "blue", "what": 1}, "three")
    yield apply("unknown field strictly", {"color": "blue", "what": 1}, "three", "fieldValidation=Strict")
    yield apply("invalid value", {"color": "pink"}, "one", "force=true")
    yield apply("no manager", {"color": "red"}, "")
    yield Step("update takes over", "PATCH", f"{_ALL}/ap?fieldManager=upd", {"spec": {"labels": {"x": "9"}}}, MERGE)
    yield apply("apply conflicts with the update", {"labels": {"x": "1"}, "parts": [{"name": "b"}], "color": "blue"})
    yield Step(
        "apply a status",
        "PATCH",
        f"{_ALL}/ap/status?fieldManager=op",
        {**base, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        APPLY,
    )
    yield Step(
        "apply another condition",
        "PATCH",
        f"{_ALL}/ap/status?fieldManager=op2",
        {**base, "status": {"conditions": [{"type": "Done", "status": "True"}]}},
        APPLY,
    )
    yield Step("applied object", "GET", f"{_ALL}/ap")
    yield apply("list for a map", {"labels": ["x"]}, "four")
    yield apply("map for a list", {"parts": {"a": 1}}, "four")
    yield apply("duplicate key", {"parts": [{"name": "b"}, {"name": "b"}]}, "four")
    yield apply("null", {"color": "blue", "maybe": None, "name": None}, "four")
    yield apply(
        "embedded object",
        {
            "color": "blue",
            "template": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"labels": {"a": "b"}},
                "spec": {"x": {"y": 1}},
            },
        },
        "four",
    )
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "12345678-1234-1234-1234-123456789abc"}
    metadata = {"name": "ap", "labels": {"l": "1"}, "finalizers": ["a.b/c"], "ownerReferences": [owner]}
    yield apply("metadata", {"color": "blue"}, "five", metadata=metadata)
    yield apply("fewer metadata", {"color": "blue"}, "five", metadata={"name": "ap", "labels": {"l": "1"}})
    yield apply("unknown field of metadata", {"color": "blue"}, "five", metadata={"name": "ap", "odd": 1})
    yield apply("label is a number", {"color": "blue"}, "five", metadata={"name": "ap", "labels": {"l": 1}})
    yield Step("delete with a wrong uid", "DELETE", f"{_ALL}/ap", {"preconditions": {"uid": "x"}})
    yield Step("delete with dry run", "DELETE", f"{_ALL}/ap?dryRun=All")
    yield Step("delete in the foreground", "DELETE", f"{_ALL}/ap?propagationPolicy=Foreground")
    yield Step("terminating object", "GET", f"{_ALL}/ap")
    yield Step("create a terminating object", "POST", _ALL, widget("ap"))
    yield Step("remove finalizers", "PATCH", f"{_ALL}/ap", {"metadata": {"finalizers": None}}, MERGE)


def _versions() -> Iterator[Step]:
    """Two versions, one deprecated; a change of the storage version; a new default; a removed field."""
    one: JSON = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "deprecated": True,
        **_schema({"a": _S, "old": _S, "n": {"type": "integer"}}),
    }
    two: JSON = {
        "name": "v1",
        "served": True,
        "storage": False,
        **_schema({"a": {"type": "string", "default": "new"}, "b": _S, "n": {"type": "integer", "maximum": 5}}),
    }
    both = definition()
    both["spec"]["versions"] = [one, two]
    path, old, new = (
        f"{_CRDS}/gears.other.example.com",
        "/apis/other.example.com/v1beta1/gears",
        "/apis/other.example.com/v1/gears",
    )
    gear = {
        "apiVersion": "other.example.com/v1beta1",
        "kind": "Gear",
        "metadata": {"name": "g"},
        "spec": {"old": "x", "n": 9},
    }
    yield Step("two versions", "POST", _CRDS, both, settle=True)
    yield Step("the group", "GET", "/apis/other.example.com")
    yield Step("create in the old version", "POST", f"{old}?fieldManager=t", gear)
    yield Step("read in the new version", "GET", f"{new}/g")
    yield Step("list in the new version", "GET", new)
    yield Step("table without columns", "GET", new, accept=TABLE)
    yield Step("patch an object that is invalid in the new version", "PATCH", f"{new}/g", {"spec": {"b": "y"}}, MERGE)
    yield Step("patch to another invalid value", "PATCH", f"{new}/g", {"spec": {"n": 8}}, MERGE)
    yield Step("read in the old version", "GET", f"{old}/g")
    stored = _changed(_changed(both, "spec/versions/0/storage", False), "spec/versions/1/storage", True)
    yield Step(
        "store the new version", "PATCH", path, {"spec": {"versions": stored["spec"]["versions"]}}, MERGE, settle=True
    )
    yield Step("stored versions", "GET", path)
    yield Step("read an object of the old storage version", "GET", f"{new}/g")
    yield Step(
        "drop a stored version",
        "PATCH",
        path,
        {"spec": {"versions": stored["spec"]["versions"][1:]}},
        MERGE,
    )
    odd = {"a": {"type": "array", "items": {"type": "string", "odd": 1, "nullable": False, "required": []}}}
    odd["m"] = {"type": "object", "additionalProperties": {"type": "string", "odd": 1, "description": ""}}
    yield Step(
        "unknown fields in nested schemas", "POST", f"{_CRDS}?dryRun=All", definition("odds", "Odd", **_schema(odd))
    )
    yield Step("change the plural", "PATCH", path, {"spec": {"names": {"plural": "wheels"}}}, MERGE)
    yield Step("change the scope", "PATCH", path, {"spec": {"scope": "Namespaced"}}, MERGE)
    yield Step("change the short names", "PATCH", path, {"spec": {"names": {"shortNames": ["gr"]}}}, MERGE, settle=True)
    unserved = _changed(stored, "spec/versions/0/served", False)
    yield Step(
        "stop serving the old version",
        "PATCH",
        path,
        {"spec": {"versions": unserved["spec"]["versions"]}},
        MERGE,
        settle=True,
    )
    yield Step("old version is not served", "GET", f"{old}/g")
    yield Step("the group now", "GET", "/apis/other.example.com")
    yield Step("kind in use", "POST", _CRDS, definition("cogs", "Gear"), settle=True)
    yield Step("conditions of the refused kind", "GET", f"{_CRDS}/cogs.other.example.com")
    yield Step("refused kind is not served", "GET", "/apis/other.example.com/v1/cogs")
    yield Step("delete the definition with the name", "DELETE", path, settle=True)
    yield Step("deleted definition", "GET", path)
    yield Step("kind is accepted", "GET", f"{_CRDS}/cogs.other.example.com")
    yield Step("kind is served", "GET", "/apis/other.example.com/v1/cogs")
    yield Step("delete the second definition", "DELETE", f"{_CRDS}/cogs.other.example.com", settle=True)
    yield Step("group is not served", "GET", "/apis/other.example.com")


def steps() -> Iterator[Step]:
    """Return all requests in order."""
    yield Step("before", "GET", _ALL)
    yield Step("group before", "GET", "/apis/example.com")
    for about, body in REFUSED_DEFINITIONS.items():
        loosely = about == "invalid pattern"
        yield Step(f"refused: {about}", "POST", f"{_CRDS}?fieldValidation=Strict", body, loosely=loosely)
    yield Step("define", "POST", f"{_CRDS}?fieldManager=tester", WIDGETS, settle=True)
    yield Step("the definition", "GET", f"{_CRDS}/widgets.example.com")
    yield Step("define again", "POST", _CRDS, WIDGETS)
    yield from _discovery()
    yield from _writing()
    yield from _reading()
    yield from _patching()
    yield from _applying()
    yield from _versions()
    yield Step("delete an object with finalizer", "DELETE", f"{_ALL}/w1")
    yield Step("delete one", "DELETE", f"{_ALL}/w2")
    yield Step("delete the definition", "DELETE", f"{_CRDS}/widgets.example.com")
    yield Step("create while the definition terminates", "POST", _ALL, widget("late"))
    yield Step("remove the finalizer", "PATCH", f"{_ALL}/w1", {"metadata": {"finalizers": None}}, MERGE, settle=True)


# --- comparing --------------------------------------------------------------------------------------------------------

_SERVER_FIELDS = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "time",
    "description",
)
_GENERATED = (
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r'(resourceVersion\\*":\\*")\d+'), r"\1VERSION"),
    (re.compile(r"^\d+s$"), "AGE"),
)


def comparable(step: Step, response: ApiResponse) -> JSON:
    """Return a response without generated values, and with sorted parts where Go's order is random."""
    status, content, warnings = response.status, response.content, list(response.warnings)
    if step.loosely:
        return {"status": status}
    if isinstance(content, str):
        return {"status": status, "text": content, "warnings": warnings}
    if status >= 400:
        details = content.get("details") or {}
        causes = sorted(
            _without_generated(f"{cause.get('reason')} {cause.get('field')} {cause.get('message')}")
            for cause in details.get("causes", ())
        )
        result = {"status": status, "reason": content.get("reason"), "causes": causes, "warnings": warnings}
        result["details"] = {name: value for name, value in details.items() if name not in ("causes", "uid")}
        if len(causes) < 2:
            result["message"] = _without_generated(content.get("message") or "")
        return result
    return {"status": status, "object": _plain(content), "warnings": warnings}


def _without_generated(text: str) -> str:
    for pattern, replacement in _GENERATED:
        text = pattern.sub(replacement, text)
    return text


def _plain(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        result = {key: _plain(inner, key) for key, inner in sorted(value.items()) if key not in _SERVER_FIELDS}
        if "generateName" in result:
            result["name"] = "GENERATED"
        return result
    if isinstance(value, list):
        values = [_plain(item) for item in value]
        unordered = name in ("managedFields", "required", "conditions")
        return sorted(values, key=lambda item: json.dumps(item, sort_keys=True)) if unordered else values
    return _without_generated(value) if isinstance(value, str) else value


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Return a line for each difference of two responses."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}):
            yield from differences(one.get(name, "(nothing)"), other.get(name, "(nothing)"), f"{path}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{path}[{index}]")
    elif one != other:
        yield f"{path}: expected {json.dumps(one)}, not {json.dumps(other)}"
