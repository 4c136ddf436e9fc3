"""One served version of a custom resource: the rules of its kind, in the form the rest of the server uses.

Objects are stored in the definition's storage version. Conversion sets another apiVersion and drops the fields that the
other version does not have, or is done by a webhook. Source: apiextensions-apiserver pkg/registry/customresource.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence, Set
from copy import deepcopy
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.selectable_fields import METADATA, NAME
from kubeloop.devcluster.api.served_resources import ALL_VERBS, ServedResource
from kubeloop.devcluster.api.slow_work import Outdated, SlowWorkContext
from kubeloop.devcluster.api.strategy import CustomResource, Strategy, Write
from kubeloop.devcluster.apiextensions.custom_scale import PathScale, replicas_paths
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
from kubeloop.devcluster.apiextensions.value_types import object_type
from kubeloop.devcluster.apiextensions.value_validation import validate
from kubeloop.devcluster.languages import jsonpath
from kubeloop.devcluster.printers.formatting import human_duration
from kubeloop.devcluster.serializer.decoding import DecodeError
from kubeloop.devcluster.storage.store import object_key
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import (
    STANDARD_FINALIZERS,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.validation.name_checks import qualified_name
from kubeloop.kube.values.times import parse_time, seconds_between

if TYPE_CHECKING:
    from kubeloop.devcluster.apiextensions.cel_rules import RuleTree
    from kubeloop.devcluster.apiextensions.conversion_webhook import ConversionWebhook


TERMINATING_VERBS = ("delete", "deletecollection", "get", "list", "watch")
VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
"""In discovery order."""

_BLOCKING = (
    "FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid",
)  # fmt: skip
_AGE: JSON = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


class ServedVersion:
    """The rules of one version of a definition.

    `served` is its declaration in the registry, `storage_version` the version in whose form objects are stored
    (possibly this one), `others` the other served versions except the storage version, `definition` the
    CustomResourceDefinition, `spec` its entry in spec.versions. webhook: converts objects; None if versions differ by
    their schemas alone.
    """

    def __init__(self, definition: JSON, spec: JSON, webhook: ConversionWebhook | None, *, terminating: bool) -> None:
        self._webhook = webhook
        self.definition = definition
        self.spec = spec
        self.terminating = terminating
        self.schema: Schema = (spec.get("schema") or {}).get("openAPIV3Schema") or {}
        self.storage_version: ServedVersion = self
        self.others: tuple[ServedVersion, ...] = ()
        self.unreadable: Mapping[str, str] = {}
        """Versions of stored objects by key that the definition no longer has: a migration was forgotten."""
        self.is_watched = False
        """True once a client has watched this version."""
        self.has_webhook = webhook is not None
        self.reads_other_versions = False
        """True for a storage version whose objects were in part written in other versions, before it was one."""
        self.is_current = True
        """False once the definition has changed: other versions are served, or none."""
        names, subresources = definition["status"]["acceptedNames"], spec.get("subresources") or {}
        paths = subresources.get("scale")
        self._scale = PathScale(paths, replicas_paths(definition)) if paths else None
        self._columns: list[JSON] = spec.get("additionalPrinterColumns") or [_AGE]
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
            strategy=self._strategy(),
        )
        self.api_versions: Set[str] = {f"{resource.group}/{entry['name']}" for entry in definition["spec"]["versions"]}
        self.served = ServedResource(
            resource=resource,
            verbs=ALL_VERBS,
            unconditional_update=False,
            crd_version=self,
            own_list_kind=names.get("listKind") or "",
            deprecated=_deprecation(definition, spec, resource),
        )
        self.value_type = object_type(self.schema)
        self._has_rules = any(schema.get(RULES) for _, schema in walk(self.schema))
        self._rules: RuleTree | None = None

    @property
    def list_problem(self) -> str:
        """The error of reading all objects, if some are unreadable."""
        resource = self.served.resource
        failed = f"failed to list {resource.api_version}, Kind={resource.kind}"
        return f"storage is (re)initializing: {failed}: {_unconverted(next(iter(self.unreadable.values())))}"

    @property
    def scale(self) -> PathScale:
        """The subresource scale, which the version has."""
        assert self._scale is not None
        return self._scale

    @property
    def is_storage_version(self) -> bool:
        return self.storage_version is self

    @property
    def reads_as_stored(self) -> bool:
        """True if objects are read in this version without conversion."""
        return self.is_storage_version and not self.reads_other_versions

    @property
    def uses_webhook(self) -> bool:
        """True if a webhook converts stored objects to this version."""
        return self.has_webhook and not self.reads_as_stored

    # --- forms --------------------------------------------------------------------------------------------------------

    def decode(self, raw: JSON) -> tuple[JSON, list[str]]:
        """Return a request body as an object of this version, and the errors of strict decoding. Raises DecodeError."""
        try:
            obj, unknown = pruned_object(raw, self.schema)
        except MetadataError as error:
            if not error.path:
                raise DecodeError(str(error)) from error
            errors_found = ErrorList()
            errors_found.invalid(error.path, error.value, str(error))
            raise DecodeError(f"{error.path}: {errors_found[0]['message']}") from error
        return obj, [f'unknown field "{path}"' for path in unknown]

    def normalize_applied(self, obj: JSON) -> JSON:
        """Return the result of an apply in normal form. Nothing is pruned, so that validation rejects nulls."""
        return {**deepcopy(obj), "metadata": pruned_object({"metadata": obj["metadata"]}, {})[0]["metadata"]}

    def default(self, obj: JSON) -> None:
        """Set defaults, in place."""
        apply_defaults(obj, self.schema)

    def to_storage(self, obj: JSON) -> JSON:
        """Return an object of this version in the storage version, with its defaults, which every read would set.

        With a webhook: see prepare_write().
        """
        if self.is_storage_version:
            return obj
        stored = self._converted(obj, self.storage_version)
        self.storage_version.default(stored)
        return stored

    async def prepare_write(self, context: SlowWorkContext, obj: JSON) -> None:
        """Call the webhook, if there is one, for to_storage(); the last step before an object is stored.

        The object is also converted to the other versions that are watched, because sending watch events cannot wait;
        if that fails, these watches get an error. Raises StatusError 500 if the webhook fails otherwise; Outdated.
        """
        if self._webhook is not None:
            await self.storage_version.prepare_conversions([obj])
            stored = self.to_storage(obj)
            if not self.is_storage_version:
                await self.prepare_conversions([stored])  # for the response
            for version in self.others:
                if version.is_watched and version is not self:
                    with contextlib.suppress(errors.StatusError):
                        await version.prepare_conversions([stored])
        if not self.is_current:
            raise Outdated

    async def prepare_conversions(self, objects: Sequence[JSON]) -> None:
        """Call the webhook, if there is one, so that objects can be converted to this version without waiting.

        Raises StatusError 500 if the webhook fails; Outdated.
        """
        if self._webhook is not None:
            await self._webhook.convert_all(objects, self.served.resource.api_version)
        if not self.is_current:
            raise Outdated

    def from_storage(self, obj: JSON) -> JSON:
        """Return a stored object in this version; it may have been stored before its definition changed.

        With a webhook, raises StatusError 500 unless prepare_conversions() has converted the object.
        """
        return self._converted(obj, self)

    def converted(self, obj: JSON) -> JSON:
        """Return an object in this version as admission sees it, with fields that this version does not have.

        With a webhook, raises StatusError 500 unless prepare_conversions() has converted the object.
        """
        api_version = self.served.resource.api_version
        if obj["apiVersion"] == api_version:
            return obj
        if self._webhook is not None:
            obj = self._webhook.converted(obj, api_version)
        return {**obj, "apiVersion": api_version}

    def pruned(self, obj: JSON) -> JSON:
        """Return an object without unknown fields, if it is in the stored version; else to_storage() drops them."""
        return pruned_object(obj, self.schema)[0] if self.is_storage_version else obj

    def read_with_current_schema(self, obj: JSON) -> JSON:
        """Return a stored object as a server reads it after its definition changed: pruned, with new defaults."""
        read, _ = pruned_object({**obj, "apiVersion": self.served.resource.api_version}, self.schema)
        self.default(read)
        return read

    def _converted(self, obj: JSON, target: ServedVersion) -> JSON:
        api_version = target.served.resource.api_version
        if obj["apiVersion"] == api_version and target.is_storage_version:
            return obj
        if self._webhook is not None and obj["apiVersion"] != api_version:
            obj = self._webhook.converted(obj, api_version)
        converted, _ = pruned_object({**obj, "apiVersion": api_version}, target.schema)
        return converted

    def wrong_kind(self, obj: JSON) -> errors.StatusError:
        """Return the error for an object of another kind (422) or another version (400)."""
        resource = self.served.resource
        kind, api_version = obj.get("kind") or "", obj.get("apiVersion") or ""
        if api_version != resource.api_version:
            message = f"the API version in the data ({api_version}) does not match the expected API version "
            return errors.bad_request(f"{message}({resource.api_version})")
        causes = ErrorList()
        causes.invalid("kind", kind, f"must be {resource.kind}")
        return errors.invalid(resource.group, kind, (obj.get("metadata") or {}).get("name", ""), causes)

    def check_readable(self, method: str, namespace: str, name: str, *, in_pages: bool) -> None:
        """Raise StatusError 500 or 429 for a request that reads objects of a removed version.

        in_pages: it is a list with a limit. 429 answers lists and watches that kube-apiserver serves from its cache,
        which it cannot fill; there the retry is after 1 s at first and after 30 s at last.
        """
        if not self.unreadable or method == "POST":
            return
        if name:
            if version := self.unreadable.get(object_key(namespace, name)):
                raise errors.internal(_unconverted(version))
            return
        prefix = f"{namespace}/" if namespace else ""
        if method == "DELETE" or in_pages:
            for key, version in self.unreadable.items():
                if key.startswith(prefix):
                    raise errors.internal(_unconverted(version))
            return
        raise errors.StatusError(
            429, "TooManyRequests", self.list_problem, details={"retryAfterSeconds": 1}, headers=[("Retry-After", "1")]
        )

    # --- strategy -----------------------------------------------------------------------------------------------------

    def _strategy(self) -> Strategy:
        """Return the strategy of the kind in this version."""
        return Strategy(
            default=self.default,
            validate=self._validate,
            validate_update=self._validate_update,
            validate_subresources={"status": self._validate_status, "scale": self._validate_update},
            core_finalizers=False,
            prepare_create=self._prepare_create,
            sets_initial_status=True,
            prepare_update=_prepare_update,
            status_metadata=None,
            warnings=finalizer_warnings,
            status_warnings=finalizer_warnings,
            cells=self._cells,
            column_definitions=self._column_definitions,
            selectable_fields={
                **(METADATA if self.definition["spec"]["scope"] == "Namespaced" else NAME),
                **{
                    field["jsonPath"].removeprefix("."): _getter(field["jsonPath"])
                    for field in self.spec.get("selectableFields") or ()
                },
            },
        )

    def _prepare_create(self, obj: JSON, _write: Write) -> None:
        """Remove the fields of a new object that only the server sets, and set its generation."""
        if self.served.has_status:
            obj.pop("status", None)
            if self.is_storage_version:
                self.default(obj)  # the status may have a default; see to_storage()
        obj["metadata"]["generation"] = 1

    def _validate(self, causes: ErrorList, obj: JSON) -> None:
        validate(causes, obj, self.schema)
        if self._scale is not None:
            self._scale.validate(causes, obj)
        check_embedded(causes, obj, self.schema)
        check_unique_items(causes, obj, self.schema)

    def _validate_update(self, causes: ErrorList, obj: JSON, old: JSON) -> None:
        """Validate an update. Unchanged invalid values are accepted."""
        validate(causes, obj, self.schema, old=old)
        if self._scale is not None:
            self._scale.validate(causes, obj)
        check_embedded(causes, obj, self.schema)
        self._check_unique_items(causes, obj, old)

    def _validate_status(self, causes: ErrorList, obj: JSON, old: JSON) -> None:
        if "status" in obj and (schema := (self.schema.get("properties") or {}).get("status")):
            validate(causes, obj["status"], schema, old=old.get("status"), path="status")
        if self._scale is not None:
            self._scale.validate(causes, obj, only_status=True)
        self._check_unique_items(causes, obj, old)

    def _check_unique_items(self, causes: ErrorList, obj: JSON, old: JSON) -> None:
        were_unique, are_unique = ErrorList(), ErrorList()
        check_unique_items(are_unique, obj, self.schema)
        if are_unique:
            check_unique_items(were_unique, old, self.schema)
        if not were_unique:
            causes.extend(are_unique)

    def check_create(self, name: str) -> None:
        """Raise StatusError 403 while the definition is being deleted."""
        if self.terminating:
            message = "create not allowed while custom resource definition is terminating"
            raise errors.forbidden(self.served.resource, name, message)

    async def check_rules(
        self, context: SlowWorkContext, obj: JSON, old: JSON | None, causes: list[JSON]
    ) -> tuple[Sequence[JSON], Sequence[str]]:
        """Return the causes and warnings of the schema's CEL rules.

        causes: of validate_create() or validate_update(); the rules run only if the object fits the schema.
        """
        if not self._has_rules:
            return (), ()
        if any(cause["reason"] in _BLOCKING for cause in causes):
            unchecked = ErrorList()
            message = "some validation rules were not checked because the object was invalid; "
            unchecked.invalid("<nil>", None, f"{message}correct the existing errors to complete validation")
            return unchecked, ()
        # CEL is loaded for schemas with rules
        from kubeloop.devcluster.apiextensions.cel_rules import RuleTree, check_object

        if self._rules is None:
            self._rules = RuleTree(self.schema, root=True)
        rules = self._rules
        evaluation = await context.compute(lambda loop_budget: check_object(rules, obj, old, loop_budget))
        return evaluation.errors, evaluation.warnings

    @property
    def discovery_rank(self) -> tuple[str, tuple[int, int, int, str], str]:
        resource = self.served.resource
        return resource.group, version_rank(resource.version), resource.plural

    # --- reading ------------------------------------------------------------------------------------------------------

    def _column_definitions(self, described: list[JSON]) -> list[JSON]:
        """Return the columns of a table. `described` are the default columns name and age, for their descriptions."""
        name, age = described
        return [
            name,
            *(
                {
                    "name": column["name"],
                    "type": column["type"],
                    "format": column.get("format", ""),
                    "description": age["description"] if column is _AGE else _column_description(column),
                    "priority": column.get("priority", 0),
                }
                for column in self._columns
            ),
        ]

    def _cells(self, obj: JSON, now: datetime) -> list[Any]:
        """Return one table row."""
        row: list[Any] = [obj["metadata"].get("name", "")]
        for column in self._columns:
            matches = jsonpath.find(column["jsonPath"], obj)
            row.append(_cell(column["type"], matches[0], now) if matches else None)
        return row


def _unconverted(version: str) -> str:
    return f"request to convert CR from an invalid group/version: {version}"


def finalizer_warnings(obj: JSON, old: JSON | None) -> list[str]:
    """Return the warnings for a write of `obj`: those of finalizer names that may conflict."""
    added = {*(obj["metadata"].get("finalizers") or ())}
    if old is not None:
        added -= {*(old["metadata"].get("finalizers") or ())}
    warnings: list[str] = []
    for name in sorted(added):
        warnings += [f"metadata.finalizers: {quoted(name)}: {wrong}" for wrong in qualified_name(name)]
        if "/" not in name and name not in STANDARD_FINALIZERS:
            path = " including a path (/)" if "." in name else ""
            advice = f"prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other "
            warnings.append(f"metadata.finalizers: {quoted(name)}: {advice}finalizer writers")
    return warnings


def _prepare_update(obj: JSON, old: JSON, _write: Write) -> None:
    """Increase the generation if anything but metadata changed."""
    if any(obj.get(name) != old.get(name) for name in {*obj, *old} if name != "metadata"):
        obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _deprecation(definition: JSON, spec: JSON, resource: Resource[JSON]) -> str:
    """Return the deprecation warning of a version, "" if it is not deprecated."""
    if not spec.get("deprecated"):
        return ""
    default = f"{resource.api_version} {resource.kind} is deprecated"
    if better := _newer_version(definition, spec):
        default += f"; use {resource.group}/{better} {resource.kind}"
    return str(spec.get("deprecationWarning") or default)


def _newer_version(definition: JSON, spec: JSON) -> str:
    """Return the first newer version in discovery order that is served and not deprecated, "" if none is."""
    rank = version_rank(spec["name"])
    for entry in sorted(definition["spec"]["versions"], key=lambda entry: version_rank(entry["name"])):
        if entry.get("served") and not entry.get("deprecated") and version_rank(entry["name"]) < rank:
            return str(entry["name"])
    return ""


def version_rank(name: str) -> tuple[int, int, int, str]:
    """Sort key of versions in discovery order: v2, v1, v1beta2, v1beta1, v1alpha1, and others by name."""
    kinds = {"": 0, "beta": 1, "alpha": 2}
    suffix = name.removeprefix("v")
    major = suffix[: len(suffix) - len(suffix.lstrip("0123456789"))]
    stage = suffix[len(major) :].rstrip("0123456789")
    minor = suffix[len(major) + len(stage) :]
    if not name.startswith("v") or not major or stage not in kinds or (stage and not minor) or (minor and not stage):
        return 3, 0, 0, name
    return kinds[stage], -int(major), -int(minor or 0), name


def _getter(path: str) -> Callable[[JSON], str]:
    def get(obj: JSON) -> str:
        matches = jsonpath.find(path, obj)
        value = matches[0] if matches else None
        if isinstance(value, bool):
            return "true" if value else "false"
        return "" if value is None else str(value)

    return get


def _column_description(column: JSON) -> str:
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
                return human_duration(seconds_between(parse_time(value), now))
            except ValueError:
                return "<invalid>"
    return None
