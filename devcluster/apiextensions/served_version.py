"""One served version of a custom resource: the rules of its kind, as the rest of the server asks for them.

Objects are kept in the form of the storage version, the version's `home`; conversion writes another apiVersion and
drops the fields that the other version does not have, or is a webhook's. Source: apiextensions-apiserver
pkg/registry/customresource.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import deepcopy
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.deferred_work import DeferredWork
from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.api.name_checks import dns_subdomain, qualified_name
from kubeloop.devcluster.api.request import PROTOBUF_TYPE
from kubeloop.devcluster.api.served_resources import ALL_VERBS, CustomResource, ServedResource
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.apiextensions import managed_fields
from kubeloop.devcluster.apiextensions.structural_schema import (
    RULES,
    MetadataError,
    Schema,
    apply_defaults,
    check_embedded,
    check_unique_items,
    pruned_object,
    walk,
)
from kubeloop.devcluster.apiextensions.value_validation import validate
from kubeloop.devcluster.handlers.scale import Places
from kubeloop.devcluster.languages import jsonpath
from kubeloop.devcluster.printers.formatting import human_duration
from kubeloop.devcluster.registry.scale import scale_document
from kubeloop.devcluster.serializer.decoding import DecodeError
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import (
    STANDARD_FINALIZERS,
    path_segment,
    validate_object_meta,
    validate_object_meta_update,
)
from kubeloop.kube.json_object import JSON

if TYPE_CHECKING:
    from kubeloop.devcluster.apiextensions.cel_rules import Findings, RuleTree
    from kubeloop.devcluster.apiextensions.conversion_webhook import ConversionWebhook


TERMINATING_VERBS = ("delete", "deletecollection", "get", "list", "watch")
VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
"""In the order in which discovery tells them."""

_MAX_INT32 = (1 << 31) - 1
_NOT_SET = -(1 << 31)
_BLOCKING = (
    "FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid",
)  # fmt: skip
_AGE: JSON = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


class Version:
    """The rules of one version of a definition.

    `served` is what it is to the registry, `home` the version in whose form objects are stored (which may be this
    one), `others` the served ones but for home, `definition` the CustomResourceDefinition it comes from, `spec` its
    entry in spec.versions. webhook: what converts objects; None where versions differ by their schemas alone.
    """

    def __init__(
        self,
        definition: JSON,
        spec: JSON,
        deferred_work: DeferredWork,
        webhook: ConversionWebhook | None,
        *,
        terminating: bool,
    ) -> None:
        self._deferred_work = deferred_work
        self._webhook = webhook
        self.definition = definition
        self.spec = spec
        self.terminating = terminating
        self.schema: Schema = (spec.get("schema") or {}).get("openAPIV3Schema") or {}
        self.home: Version = self
        self.others: tuple[Version, ...] = ()
        names, subresources = definition["status"]["acceptedNames"], spec.get("subresources") or {}
        self._scale: JSON | None = subresources.get("scale")
        resource = CustomResource(
            group=definition["spec"]["group"],
            version=spec["name"],
            kind=names["kind"],
            plural=names["plural"],
            namespaced=definition["spec"]["scope"] == "Namespaced",
            type=dict,
            singular=names.get("singular", ""),
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=tuple(name for name in ("status", "scale") if name in subresources),
            rules=self,
        )
        self.api_versions = {f"{resource.group}/{each['name']}" for each in definition["spec"]["versions"]}
        self.served = ServedResource(
            resource=resource,
            verbs=ALL_VERBS,
            unconditional_update=False,
            crd_version=self,
        )
        self.list_kind: str = names.get("listKind") or f"{resource.kind}List"
        self._has_rules = any(each.get(RULES) for _, each in walk(self.schema))
        self._rules: RuleTree | None = None
        self._rule_warnings: list[str] = []  # of the object that was validated last; warnings() takes them
        self._columns: list[JSON] = spec.get("additionalPrinterColumns") or [_AGE]

    patch_types = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")

    @property
    def is_home(self) -> bool:
        return self.home is self

    @property
    def is_converted(self) -> bool:
        """Does a webhook make this version's objects of those that are stored?"""
        return self._webhook is not None and not self.is_home

    # --- forms --------------------------------------------------------------------------------------------------------

    def decode(self, raw: JSON) -> tuple[JSON, list[str]]:
        """A body as an object of this version, and what strict decoding says of it. Raises DecodeError."""
        try:
            obj, unknown = pruned_object(raw, self.schema)
        except MetadataError as error:
            if not error.path:
                raise DecodeError(str(error)) from error
            found = ErrorList()
            found.invalid(error.path, error.value, str(error))
            raise DecodeError(f"{error.path}: {found[0]['message']}") from error
        return obj, [f'unknown field "{path}"' for path in unknown]

    def normal(self, obj: JSON) -> JSON:
        """What an applied configuration has made of an object: nothing is pruned, so that nulls are refused."""
        return {**deepcopy(obj), "metadata": pruned_object({"metadata": obj["metadata"]}, {})[0]["metadata"]}

    def default(self, obj: JSON) -> None:
        """Fill in defaults, in place."""
        apply_defaults(obj, self.schema)

    def stored(self, obj: JSON) -> JSON:
        """An object of this version as it is stored. Raises as shown()."""
        stored = obj if self.is_home else self._converted(obj, self.home)
        if self._webhook is not None and self._deferred_work.may_defer:
            for each in self.others:  # whoever watches is told at once, when nobody can wait
                each.shown(stored)
        return stored

    def prepare(self, objects: Sequence[JSON]) -> None:
        """Let shown() find these objects. Raises as it does."""
        if self._webhook is not None:
            self._webhook.prepare(objects, self.served.resource.api_version)

    def shown(self, obj: JSON) -> JSON:
        """A stored object in this version; also one that was stored before its definition has changed.

        With a webhook, raises Later, and StatusError 500 if that fails.
        """
        return self._converted(obj, self)

    def reread(self, obj: JSON) -> JSON:
        """A stored object as a server reads it after its definition has changed: pruned and with new defaults."""
        read, _ = pruned_object({**obj, "apiVersion": self.served.resource.api_version}, self.schema)
        self.default(read)
        return {"kind": read["kind"], **read}

    def _converted(self, obj: JSON, target: Version) -> JSON:
        api_version = target.served.resource.api_version
        if obj["apiVersion"] == api_version and target.is_home:
            return obj
        if self._webhook is not None and obj["apiVersion"] != api_version:
            obj = self._webhook.converted(obj, api_version)
        converted, _ = pruned_object({**obj, "apiVersion": api_version}, target.schema)
        return converted

    def wrong_kind(self, obj: JSON) -> errors.StatusError:
        """The refusal of an object of another kind, or of another version: 422 or 400."""
        resource = self.served.resource
        kind, api_version = obj.get("kind") or "", obj.get("apiVersion") or ""
        if api_version != resource.api_version:
            told = f"the API version in the data ({api_version}) does not match the expected API version "
            return errors.bad_request(f"{told}({resource.api_version})")
        found = ErrorList()
        found.invalid("kind", kind, f"must be {resource.kind}")
        return errors.invalid(resource.group, kind, (obj.get("metadata") or {}).get("name", ""), found)

    def type_error(self, config: JSON) -> str:
        """What of an applied configuration does not fit the schema; "" if all does."""
        return managed_fields.type_error(self.schema, config)

    def check_accept(self, accept: str) -> None:
        """There is no protobuf of custom resources, only of their metadata. Raises StatusError 406 to who wants it."""
        if accept and all(
            each.partition(";")[0].strip() == PROTOBUF_TYPE and "as=PartialObjectMetadata" not in each
            for each in accept.split(",")
        ):
            raise errors.form_not_acceptable()

    def unsupported_patch(self) -> errors.StatusError:
        """415 for a patch that is no JSON patch, merge patch or apply."""
        told = "the body of the request was in an unknown format - accepted media types include: "
        return errors.StatusError(415, "UnsupportedMediaType", told + ", ".join(self.patch_types))

    # --- ownership ----------------------------------------------------------------------------------------------------

    def track_create(self, obj: JSON, writer: Writer, now: Callable[[], str]) -> None:
        managed_fields.track_create(self.served, self.schema, obj, writer, now)

    def track_update(self, obj: JSON, old: JSON, writer: Writer, now: Callable[[], str], subresource: str) -> None:
        managed_fields.track_update(self.served, self.schema, obj, old, writer, now, subresource)

    def merge_configuration(self, live: JSON, config: JSON) -> JSON:
        """As apply.overlaid()."""
        return managed_fields.merge_configuration(self.schema, live, config)

    def atomic_paths(self, config: JSON) -> list[str]:
        """As apply.atomic_paths()."""
        return list(managed_fields.atomic_paths(managed_fields.typed(self.schema), config, ""))

    def apply(self, live: JSON | None, config: JSON, *, manager: str, force: bool, subresource: str, now: str) -> JSON:
        """As apply.apply_configuration(). Raises StatusError."""
        return managed_fields.apply_configuration(
            self.served, self.schema, live, config, manager=manager, force=force, subresource=subresource, now=now
        )

    # --- strategy -----------------------------------------------------------------------------------------------------

    def check_create(self, name: str) -> None:
        """Raises StatusError 403 while the definition is being deleted."""
        if self.terminating:
            why = "create not allowed while custom resource definition is terminating"
            raise errors.forbidden(self.served.resource, name, why)

    def prepare_create(self, obj: JSON) -> None:
        """What a new object may not bring along."""
        if self.served.has_status:
            obj.pop("status", None)
            self.default(obj)  # a status that has one
        obj["metadata"]["generation"] = 1

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """Status stays with its subresource; every change but of metadata is a new generation."""
        if self.served.has_status:
            if "status" in old:
                obj["status"] = old["status"]
            else:
                obj.pop("status", None)
        if any(obj.get(name) != old.get(name) for name in {*obj, *old} if name != "metadata"):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def prepare_status(self, obj: JSON, old: JSON) -> JSON:
        """What a write of the status stores: the old object with the new status."""
        metadata = {name: value for name, value in old["metadata"].items() if name != "managedFields"}
        if "managedFields" in obj["metadata"]:
            metadata["managedFields"] = obj["metadata"]["managedFields"]
        result = {**old, "metadata": metadata}
        result.pop("status", None)
        return {**result, "status": obj["status"]} if "status" in obj else result

    # --- validation ---------------------------------------------------------------------------------------------------

    def validate_create(self, obj: JSON) -> list[JSON]:
        """Causes against creating `obj`."""
        found, metadata = ErrorList(), obj["metadata"]
        validate_object_meta(found, metadata, namespaced=self.served.resource.namespaced, name_check=dns_subdomain)
        validate(found, obj, self.schema)
        self._check_scale(found, obj)
        check_embedded(found, obj, self.schema)
        check_unique_items(found, obj, self.schema)
        if not found and (wrong := path_segment(metadata.get("name", ""))):
            found.invalid_each("metadata.name", metadata["name"], wrong)
        return self._finished(found, obj, None)

    def validate_update(self, obj: JSON, old: JSON, subresource: str) -> list[JSON]:
        """Causes against replacing `old` by `obj`; what was wrong before may stay as it was."""
        found, metadata, before = ErrorList(), obj["metadata"], old["metadata"]
        namespaced = self.served.resource.namespaced
        validate_object_meta(found, metadata, namespaced=namespaced, name_check=path_segment)
        for _ in range(2):  # by the store and by the strategy
            validate_object_meta_update(found, metadata, before)
        if subresource != "status":
            validate(found, obj, self.schema, old=old)
        elif "status" in obj and (schema := (self.schema.get("properties") or {}).get("status")):
            validate(found, obj["status"], schema, old=old.get("status"), path="status")
        self._check_scale(found, obj, only_status=subresource == "status")
        if subresource != "status":
            check_embedded(found, obj, self.schema)
        were_unique, are_unique = ErrorList(), ErrorList()
        check_unique_items(are_unique, obj, self.schema)
        if are_unique:
            check_unique_items(were_unique, old, self.schema)
        if not were_unique:
            found.extend(are_unique)
        return self._finished(found, obj, old)

    def _finished(self, found: ErrorList, obj: JSON, old: JSON | None) -> list[JSON]:
        """With what the schema's rules have against the object, unless it is no object of the schema at all."""
        self._rule_warnings = []
        if not self._has_rules:
            return found
        if any(each["reason"] in _BLOCKING for each in found):
            told = "some validation rules were not checked because the object was invalid; "
            found.invalid("<nil>", None, f"{told}correct the existing errors to complete validation")
            return found
        ran = self._ran_rules(obj, old)
        self._rule_warnings = [*ran.warnings]
        found.extend(ran.errors)
        return found

    def _ran_rules(self, obj: JSON, old: JSON | None) -> Findings:
        """Raises Later for what takes long."""
        from kubeloop.devcluster.apiextensions.cel_rules import RuleTree, check_object  # only who has rules needs CEL

        if self._rules is None:
            self._rules = RuleTree(self.schema, root=True)
        rules = self._rules

        def key() -> Hashable:
            names = ("name", "generateName") if rules.has_own else ()  # of a resource, that only its own rules see
            seen = {name: obj["metadata"].get(name) for name in names}
            before = None if old is None else (old["metadata"]["uid"], old["metadata"]["resourceVersion"])
            return rules, before, msgspec.json.encode({**obj, "metadata": seen})

        return self._deferred_work.compute_or_defer(key, lambda loop_budget: check_object(rules, obj, old, loop_budget))

    def _check_scale(self, found: ErrorList, obj: JSON, *, only_status: bool = False) -> None:
        if self._scale is None:
            return
        paths = [self._scale["statusReplicasPath"]]
        if not only_status:
            paths.insert(0, self._scale["specReplicasPath"])
        for path in paths:
            try:
                replicas = _integer_at(obj, path)
            except _WrongType as error:
                found.invalid(path, 0, str(error))
                continue
            if replicas is not None and replicas < 0:
                found.invalid(path, replicas, "should be a non-negative integer")
            elif replicas is not None and replicas > _MAX_INT32:
                found.invalid(path, replicas, f"should be less than or equal to {_MAX_INT32}")
        if selector := self._scale.get("labelSelectorPath"):
            try:
                _text_at(obj, selector)
            except _WrongType as error:
                found.invalid(selector, "", str(error))

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        """What a client hears that writes this object: unwise finalizers."""
        added = {*(obj["metadata"].get("finalizers") or ())}
        if old is not None:
            added -= {*(old["metadata"].get("finalizers") or ())}
        told, self._rule_warnings = self._rule_warnings, []
        for name in sorted(added):
            told += [f"metadata.finalizers: {quoted(name)}: {wrong}" for wrong in qualified_name(name)]
            if "/" not in name and name not in STANDARD_FINALIZERS:
                path = " including a path (/)" if "." in name else ""
                advice = f"prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other "
                told.append(f"metadata.finalizers: {quoted(name)}: {advice}finalizer writers")
        return told

    @property
    def deprecation(self) -> str:
        """What everybody hears who uses this version; "" if it is not deprecated."""
        if not self.spec.get("deprecated"):
            return ""
        resource = self.served.resource
        default = f"{resource.api_version} {resource.kind} is deprecated"
        better = self._newer_version()
        if better:
            default += f"; use {resource.group}/{better} {resource.kind}"
        return str(self.spec.get("deprecationWarning") or default)

    def _newer_version(self) -> str:
        """The version to use instead: the first by discovery's order that is served, not deprecated and newer."""
        mine = version_rank(self.spec["name"])
        for each in sorted(self.definition["spec"]["versions"], key=lambda each: version_rank(each["name"])):
            if each.get("served") and not each.get("deprecated") and version_rank(each["name"]) < mine:
                return str(each["name"])
        return ""

    # --- scale --------------------------------------------------------------------------------------------------------

    def scale_of(self, obj: JSON, *, reading: bool = False) -> JSON:
        """The autoscaling/v1 Scale of an object. Raises StatusError 500, for readers, if it has no replicas."""
        assert self._scale is not None
        spec_path = self._scale["specReplicasPath"]
        try:
            replicas = _integer_at(obj, spec_path)
            status = _integer_at(obj, self._scale["statusReplicasPath"])
            selector = _text_at(obj, self._scale["labelSelectorPath"]) if self._scale.get("labelSelectorPath") else ""
        except _WrongType as error:
            raise errors.internal(str(error)) from error
        if replicas is None and reading:
            message = f"Internal error occurred: the spec replicas field {quoted(spec_path)} does not exist"
            raise errors.internal(message, reason="InternalError", details={"causes": [{"message": message[25:]}]})
        return scale_document(obj, replicas, status, selector)

    def scale_to_write(self, obj: JSON) -> JSON:
        """As scale_of(), for an update: replicas that are not there are a number that nobody asks for."""
        scale = self.scale_of(obj)
        assert self._scale is not None
        if _integer_at(obj, self._scale["specReplicasPath"]) is None:
            scale["spec"] = {"replicas": _NOT_SET}
        return scale

    @property
    def replicas_places(self) -> Places:
        """Where the versions of the definition have their replicas; None for those without scale."""
        found: dict[str, tuple[str, ...] | None] = {}
        for each in self.definition["spec"]["versions"]:
            scale = (each.get("subresources") or {}).get("scale")
            place = tuple(jsonpath.field_names(scale["specReplicasPath"])) if scale else None
            found[f"{self.served.resource.group}/{each['name']}"] = place
        return found

    def scaled(self, obj: JSON, scale: JSON) -> JSON:
        """`obj` with the replicas of `scale`, whose resourceVersion is a precondition. Raises StatusError."""
        assert self._scale is not None
        if (scale.get("spec") or {}).get("replicas") == _NOT_SET:
            raise errors.bad_request(
                f"the spec replicas field {quoted(self._scale['specReplicasPath'])} cannot be empty"
            )
        result = deepcopy(obj)
        parent: JSON = result
        *parents, last = jsonpath.field_names(self._scale["specReplicasPath"])
        for name in parents:
            parent = parent.setdefault(name, {})
        parent[last] = (scale.get("spec") or {}).get("replicas", 0)
        version = (scale.get("metadata") or {}).get("resourceVersion")
        if version:
            result["metadata"]["resourceVersion"] = version
        return result

    # --- reading ------------------------------------------------------------------------------------------------------

    def getters(self) -> dict[str, Callable[[JSON], str]]:
        """What field selectors may name."""
        found: dict[str, Callable[[JSON], str]] = {"metadata.name": lambda obj: obj["metadata"].get("name", "")}
        if self.served.resource.namespaced:
            found["metadata.namespace"] = lambda obj: obj["metadata"].get("namespace", "")
        for each in self.spec.get("selectableFields") or ():
            path = each["jsonPath"]
            found[path.removeprefix(".")] = _getter(path)
        return found

    def column_definitions(self, described: list[JSON]) -> list[JSON]:
        """The columns of a table. `described` are those of kinds without printer, for their texts: name and age."""
        name, age = described
        return [
            name,
            *(
                {
                    "name": each["name"],
                    "type": each["type"],
                    "format": each.get("format", ""),
                    "description": age["description"] if each is _AGE else _described(each),
                    "priority": each.get("priority", 0),
                }
                for each in self._columns
            ),
        ]

    def cells(self, obj: JSON, now: datetime) -> list[Any]:
        """One row."""
        row: list[Any] = [obj["metadata"].get("name", "")]
        for column in self._columns:
            found = jsonpath.find(column["jsonPath"], obj)
            row.append(_cell(column["type"], found[0], now) if found else None)
        return row


def version_rank(name: str) -> tuple[int, int, int, str]:
    """Sorts versions as discovery lists them: v2, v1, v1beta2, v1beta1, v1alpha1, and others by name."""
    kinds = {"": 0, "beta": 1, "alpha": 2}
    rest = name.removeprefix("v")
    major = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    stage = rest[len(major) :].rstrip("0123456789")
    minor = rest[len(major) + len(stage) :]
    if not name.startswith("v") or not major or stage not in kinds or (stage and not minor) or (minor and not stage):
        return 3, 0, 0, name
    return kinds[stage], -int(major), -int(minor or 0), name


class _WrongType(Exception):
    """What stands at a path is not of the type that is wanted there."""


def _nested(obj: JSON, path: str) -> Any:
    value: Any = obj
    for name in jsonpath.field_names(path):
        if not isinstance(value, dict):
            shown, wanted = _go_type(value), "map[string]interface{}"
            raise _WrongType(f"{path} accessor error: {value} is of the type {shown}, expected {wanted}")
        if name not in value:
            return None
        value = value[name]
    return value


def _integer_at(obj: JSON, path: str) -> int | None:
    value = _nested(obj, path)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise _WrongType(f"{path} accessor error: {value} is of the type {_go_type(value)}, expected int64")


def _text_at(obj: JSON, path: str) -> str:
    value = _nested(obj, path)
    if value is None or isinstance(value, str):
        return value or ""
    raise _WrongType(f"{path} accessor error: {value} is of the type {_go_type(value)}, expected string")


def _go_type(value: Any) -> str:
    names = {bool: "bool", str: "string", int: "int64", float: "float64", list: "[]interface {}"}
    return names.get(type(value), "map[string]interface {}" if isinstance(value, dict) else "<nil>")


def _getter(path: str) -> Callable[[JSON], str]:
    def get(obj: JSON) -> str:
        found = jsonpath.find(path, obj)
        value = found[0] if found else None
        if isinstance(value, bool):
            return "true" if value else "false"
        return "" if value is None else str(value)

    return get


def _described(column: JSON) -> str:
    return column.get("description") or f"Custom resource definition column (in JSONPath format): {column['jsonPath']}"


def _cell(type_: str, value: Any, now: datetime) -> Any:
    match type_:
        case "string":
            return jsonpath.to_string(value)
        case "integer" if isinstance(value, (int, float)) and not isinstance(value, bool):
            return int(value)
        case "number" if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        case "boolean" if isinstance(value, bool):
            return value
        case "date" if isinstance(value, str):
            try:
                return human_duration(now - datetime.fromisoformat(value))
            except (ValueError, TypeError):
                return "<invalid>"
    return None
