"""Types of the API as OpenAPI 2 and 3 schemas.

Generated from kube.schema: fields, required ones, defaults, merge keys, list types and kinds. Descriptions for
`kubectl explain` come from the installed client library (see descriptions). Source of the forms: k8s.io/kube-openapi.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kubeloop.devcluster.api.served_resources import group_versions
from kubeloop.devcluster.openapi.descriptions import field_descriptions
from kubeloop.devcluster.serializer.request_bodies import UNSERVED_KINDS
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.schema import Field, StructType, TypeRef

_PACKAGES = {
    "apiextensions/v1": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
    "apiregistration/v1": "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1",
    "meta/v1": "io.k8s.apimachinery.pkg.apis.meta.v1",
    "resource": "io.k8s.apimachinery.pkg.api.resource",
    "intstr": "io.k8s.apimachinery.pkg.util.intstr",
    "runtime": "io.k8s.apimachinery.pkg.runtime",
    "version": "io.k8s.apimachinery.pkg.version",
}
_PATCH = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"
_SCALARS: dict[str, JSON] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float64": {"type": "number", "format": "double"},
    "byte": {"type": "integer", "format": "byte"},
    "bytes": {"type": "string", "format": "byte"},
}
_ZERO: dict[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "float64": 0}
_SCALARS_V2: dict[str, JSON] = {
    "quantity": {"type": "string"},
    "intOrString": {"type": "string", "format": "int-or-string"},
    "time": {"type": "string", "format": "date-time"},
    "microTime": {"type": "string", "format": "date-time"},
    "duration": {"type": "string"},
    "fieldsV1": {"type": "object"},
    "raw": {"type": "object"},
    "any": {},
}
_SCALARS_V3 = _SCALARS_V2 | {
    "time": {**_SCALARS_V2["time"], "nullable": True},  # an unset time is null unless the field is omitted
    "microTime": {**_SCALARS_V2["microTime"], "nullable": True},
    "quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "intOrString": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
}


def _schema_name(type_name: str) -> str:
    """Return the schema name of a type: "io.k8s.api.core.v1.PodSpec" for "core/v1.PodSpec"."""
    package, _, name = type_name.rpartition(".")
    prefix = _PACKAGES.get(package) or "io.k8s.api." + package.replace("/", ".")
    return f"{prefix}.{name}"


@cache
def _kinds_of_type() -> dict[str, list[JSON]]:
    result: dict[str, list[JSON]] = {}
    for (group, version, kind), name in schema.kinds().items():
        result.setdefault(name, []).append({"group": group, "kind": kind, "version": version})
    versions = sorted({*group_versions(), *_NOT_SERVED})
    for name in _KINDS_OF_EVERY_VERSION:
        kind = name.rpartition(".")[2]
        result[name] = [{"group": group, "kind": kind, "version": version} for group, version in versions]
    for kind in ("Status", "APIVersions", "APIGroup", "APIGroupList", "APIResourceList"):
        result[f"meta/v1.{kind}"] = [{"group": "", "kind": kind, "version": "v1"}]
    return result


_KINDS_OF_EVERY_VERSION = ("meta/v1.DeleteOptions", "meta/v1.WatchEvent")
"""Types that are kinds of every group version."""

_NOT_SERVED = [
    tuple(version.split("/"))
    for version in (
        "admission.k8s.io/v1", "admission.k8s.io/v1beta1", "apiextensions.k8s.io/v1beta1",
        "apiregistration.k8s.io/v1beta1", *UNSERVED_KINDS,
    )
]  # fmt: skip
"""Group versions that kube-apiserver knows but does not serve by default; clients may use them for these kinds."""
_UNKNOWN_TO_APIEXTENSIONS = ("admission.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "imagepolicy.k8s.io")


def title(text: str) -> str:
    return text[:1].upper() + text[1:]


def _union(discriminator: str, *fields: str) -> JSON:
    named: JSON = {"fields-to-discriminateBy": {name: title(name) for name in fields}}
    return {"discriminator": discriminator, **named} if discriminator else named


_UNIONS = {
    "core/v1.AppArmorProfile": _union("type", "localhostProfile"),
    "core/v1.PodSchedulingGroup": _union("", "podGroupName"),
    "core/v1.SeccompProfile": _union("type", "localhostProfile"),
    "scheduling/v1alpha2.PodGroupSchedulingPolicy": _union("", "basic", "gang"),
    "scheduling/v1alpha2.PodGroupTemplateReference": _union("", "workload"),
    "flowcontrol/v1.LimitResponse": _union("type", "queuing"),
    "flowcontrol/v1.PriorityLevelConfigurationSpec": _union("type", "exempt", "limited"),
    "flowcontrol/v1.Subject": _union("kind", "group", "serviceAccount", "user"),
}
"""x-kubernetes-unions by type."""


class Schemas:
    """Schemas of the types that a document refers to; grows with each reference.

    of: group and version of an OpenAPI 3 document; None for custom resources. enums: False to leave out the values of
    enumerations.
    """

    def __init__(self, *, v3: bool, of: tuple[str, str] | None = ("", "v1"), enums: bool = True) -> None:
        self.v3 = v3
        self._enums = enums
        self._of = of
        self._scalars = _SCALARS_V3 if v3 else _SCALARS_V2
        self._prefix = "#/components/schemas/" if v3 else "#/definitions/"
        self.schemas: dict[str, JSON] = {}
        self._custom_types: dict[tuple[str, str, str], str] = {}

    def _kinds(self, type_name: str) -> list[JSON]:
        """Return the kinds of a type: of every version, or of the document's own version."""
        kinds = _kinds_of_type().get(type_name, [])
        if type_name not in _KINDS_OF_EVERY_VERSION or not self.v3:
            return kinds
        if self._of is None:
            return [kind for kind in kinds if kind["group"] not in _UNKNOWN_TO_APIEXTENSIONS]
        return [kind for kind in kinds if (kind["group"], kind["version"]) in (("", "v1"), self._of)]

    def define(self, group: str, version: str, kind: str, value: JSON) -> None:
        """Add the type of a custom resource."""
        name = ".".join((*reversed(group.split(".")), version, kind))
        self._custom_types[group, version, kind] = name
        self.schemas[name] = value

    def type_name(self, group: str, version: str, kind: str) -> str:
        """Return the name of a kind's type for reference(), or ""."""
        if (type_name := self._custom_types.get((group, version, kind))) is not None:
            return type_name
        struct = schema.type_for(group, version, kind)
        return struct.name if struct is not None else ""

    def reference(self, type_name: str) -> JSON:
        if type_name in self.schemas:
            return {"$ref": self._prefix + type_name}
        name = _schema_name(type_name)
        if name not in self.schemas:
            struct = schema.type_named(type_name)
            if struct is None:
                raise KeyError(type_name)
            self.schemas[name] = {}  # before its fields are added: types may be recursive
            self.schemas[name] = self._struct(struct)
        return {"$ref": self._prefix + name}

    def patch(self) -> JSON:
        self.schemas[_PATCH] = {"type": "object"}
        return {"$ref": self._prefix + _PATCH}

    def has_status(self, type_name: str) -> bool:
        """Return True if the type has a `status` field."""
        self.reference(type_name)
        value = self.schemas.get(type_name) or self.schemas[_schema_name(type_name)]
        return "status" in value.get("properties", ())

    def _scalar(self, ref: TypeRef) -> JSON:
        name = _schema_name(ref.named)
        self.schemas.setdefault(name, self._scalars[ref.kind])
        return {"$ref": self._prefix + name}

    def _value(self, ref: TypeRef, *, nested: bool = False) -> JSON:
        """Return the schema of a value. A property may have keywords besides $ref, hence allOf in OpenAPI 3.

        nested: the value is an element of a list or map.
        """
        if ref.kind == "struct" or ref.kind in self._scalars:
            reference = self.reference(ref.named) if ref.kind == "struct" else self._scalar(ref)
            return {"allOf": [reference]} if self.v3 and not nested else dict(reference)
        if ref.kind == "list" and ref.element is not None:
            return {"type": "array", "items": self._value(ref.element, nested=True)}
        if ref.kind == "map" and ref.element is not None:
            return {"type": "object", "additionalProperties": self._value(ref.element, nested=True)}
        value = dict(_SCALARS[ref.kind])
        if ref.enum and self._enums:
            value["enum"] = sorted(ref.enum)
        return value

    def _property(self, field: Field) -> JSON:
        value = self._value(field.type)
        if self.v3 and not (field.omit_empty or field.omit_zero) and _is_nullable(field.type):
            value["nullable"] = True
        kind = field.type.kind
        if self.v3:  # OpenAPI 2 is published without defaults: old kubectl versions would enforce them
            if field.default is not None:
                value["default"] = field.default
            elif not field.type.pointer and kind == "struct":
                value["default"] = {}
            elif not (field.type.pointer or field.omit_empty or field.omit_zero) and kind in _ZERO:
                value["default"] = _ZERO[kind]
        if field.patch_strategy:
            value["x-kubernetes-patch-strategy"] = ",".join(field.patch_strategy)
        if field.patch_merge_key:
            value["x-kubernetes-patch-merge-key"] = field.patch_merge_key
        if field.list_type:
            value["x-kubernetes-list-type"] = field.list_type
        if field.list_map_keys:
            value["x-kubernetes-list-map-keys"] = list(field.list_map_keys)
        if atomic := field.map_type or field.struct_type:
            value["x-kubernetes-map-type"] = atomic
        return value

    def _struct(self, struct: StructType) -> JSON:
        result: JSON = {"type": "object"}
        properties = {name: self._property(field) for name, field in sorted(struct.json.items())}
        if self.v3:
            for name, text in field_descriptions(struct.name).items():
                if name in properties:
                    properties[name] = {"description": text, **properties[name]}
        if required := [name for name, field in struct.json.items() if field.required]:
            result["required"] = required
        if properties:
            result["properties"] = properties
        if kinds := self._kinds(struct.name):
            result["x-kubernetes-group-version-kind"] = kinds
        if unions := _UNIONS.get(struct.name):
            result["x-kubernetes-unions"] = [unions]
        if struct.atomic:
            result["x-kubernetes-map-type"] = "atomic"
        return result


def _is_nullable(ref: TypeRef) -> bool:
    """Return True if the Go type can be nil: an empty field that is not omitted is then null in JSON."""
    return ref.pointer or ref.kind in ("list", "map", "bytes")
