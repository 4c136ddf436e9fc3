"""The strategy of a kind: everything in which one kind differs from the others, and the registry of strategies.

A kind with behaviour has a module of its own, `kinds/GROUP/KIND.py` (kinds/scheduling/pod_group.py), with a STRATEGY. A
kind without such a module follows the rules that all kinds share. Modules below `kinds` know a kind only by its
strategy; strategy_of() imports it by name for the first request that needs it. Source: the strategies under
pkg/registry of Kubernetes v1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib import import_module
from typing import Any

import msgspec

from kubeloop.devcluster.api.custom_resources import CustomResourceVersion
from kubeloop.devcluster.api.field_access import value_at
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.validation.name_checks import dns_subdomain

Convert = Callable[[JSON], JSON]
Default = Callable[[JSON], None]
Drop = Callable[[JSON, JSON], None]
"""Drops a field from the first argument unless the second, the stored one, uses it ({} if there is none)."""
Validate = Callable[[Any, JSON], None]
"""Adds the errors of a new object to the first argument, an ErrorList."""
ValidateUpdate = Callable[[Any, JSON, JSON], None]
"""Adds the errors of an update to the first argument, an ErrorList; last argument: the stored object."""
Warn = Callable[[JSON, JSON | None], Iterable[str]]
"""Returns warnings about an object, "" for none; second argument: the stored object, None on create."""
Getter = Callable[[JSON], str]
"""Returns the value of a field as text."""
ComputedColumn = Callable[[JSON, datetime], Any]
"""Returns a cell; second argument: the time."""


class Write(msgspec.Struct, frozen=True):
    """Circumstances of a write. now: in the format of the API. user: UserInfo of the writer. gates: of the server."""

    now: Callable[[], str] = str
    user: JSON = {}
    new_uid: Callable[[], str] = str
    gates: FeatureGates = DEFAULT_FEATURE_GATES


def _accept_update(errors: Any, obj: JSON, old: JSON) -> None:
    del errors, obj, old


def _no_warnings(obj: JSON, old: JSON | None) -> Iterable[str]:
    del obj, old
    return ()


class Strategy(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The behaviour of one kind, in the order in which a write uses it.

    Functions change the request's own object in place, unless they return one; `old` is the stored object.
    """

    # --- forms

    converters: tuple[Convert, Convert] | None = None
    """To and from the stored version, for a kind with a second version."""
    default: Default | None = None
    """Sets unset fields."""
    default_times: Callable[[JSON, Callable[[], str]], None] | None = None
    """Sets unset times; second argument: returns the current time."""
    default_on_read: Default | None = None
    """Sets what kube-apiserver sets whenever it reads an object; runs after validation."""
    is_defaulted_on_read: Callable[[JSON], bool] | None = None
    """Returns True for a new object whose fields kube-apiserver defaults on each read until the next write."""

    # --- field ownership: the strategies' GetResetFields

    owns_spec: bool = True
    owns_status: bool = False
    """Fields of the status that are sent through the object itself have an owner, although they are not stored."""
    unowned: Mapping[str, JSON] = {}
    """Further fields without owner by the subresource through which they are sent, as in fieldsV1 of managedFields."""

    # --- feature gates

    template_path: tuple[str, ...] | None = None
    """Fields to the pod template, () for a pod."""
    gated_fields: Iterable[tuple[str, Drop]] = ()
    """Functions that drop fields of an object unless this feature gate is on."""
    gated_status_fields: Iterable[tuple[str, Drop]] = ()
    """The same for fields of the status."""
    gated_default: tuple[str, Default] | None = None
    """Defaults if this feature gate is on."""

    # --- fields of the server

    prepare_create: Callable[[JSON, Write], None] | None = None
    sets_initial_status: bool = False
    """prepare_create sets the status of a new object, which is otherwise that of the declaration."""
    prepare_update: Callable[[JSON, JSON, Write], None] | None = None
    generation_as_sent: bool = False
    """[] instead of null increases the generation, as with reflect.DeepEqual."""
    prepare_status: Callable[[JSON, JSON, Write], None] | None = None
    prepare_subresources: Mapping[str, Callable[[JSON, JSON, Write], JSON]] = {}
    """Functions that return the object which a write to another subresource stores."""
    status_metadata: tuple[str, ...] | None = ("labels", "annotations", "finalizers", "ownerReferences")
    """Fields of metadata, beside managedFields, that a write of the status changes. None: those that are validated,
    such as the uid, are not even compared with the stored ones."""

    # --- permissions

    authorize_write: Callable[[Any, RequestContext, JSON, JSON | None], None] | None = None
    """Raises StatusError 403 unless the user may write what the object grants; first argument: the ObjectStore."""
    check_access: Callable[[Any, RequestContext, JSON, JSON | None, list[JSON]], list[JSON]] | None = None
    """Returns the causes against a write with those of permissions that its fields need; first argument: the
    AdmissionChain; last one: the causes of validation."""

    # --- validation

    name_check: Callable[[str], Sequence[str]] = dns_subdomain
    strict_name_check: Callable[[str], Sequence[str]] | None = None
    """Instead of name_check unless RelaxedServiceNameValidation is on."""
    validate: Validate | None = None
    """None for kinds of which only metadata and required fields are checked."""
    validate_update: ValidateUpdate = _accept_update
    validate_subresources: Mapping[str, ValidateUpdate] = {}
    core_finalizers: bool = True
    """Unqualified finalizers must be standard ones, as in kinds that use core's ValidateObjectMeta."""
    strategy_metadata: bool = True
    """On create, the strategy validates metadata, too; otherwise only the store does."""
    update_steps: str = "us"
    """Steps of an update after the store's own check of metadata, in order: "u", metadata against the stored version;
    "w", the new metadata alone; "s", `validate_update`."""
    subresource_steps: str = "us"
    """The same for writes to a subresource."""
    validated_as_sent: bool = False
    """Absent and empty maps differ, which decoding does not preserve."""

    # --- warnings

    warnings_as_sent: Callable[[JSON], Iterable[str]] | None = None
    """About a new object before the server sets fields from its annotations."""
    warnings: Warn = _no_warnings
    """About a write of the object or of its scale."""
    status_warnings: Warn = _no_warnings
    deletion_warning: str = ""
    """About a deletion without a propagation policy."""

    # --- admission: the first argument is the AdmissionChain

    admit_create: Callable[[Any, RequestContext, JSON], None] | None = None
    """Runs the mutating plugins on a new object."""
    admit_update: Callable[[Any, JSON, JSON], None] | None = None
    """Runs the mutating plugins on an update of the object itself."""
    check_create: Callable[[Any, RequestContext, JSON], None] | None = None
    """Runs the validating plugins on a new, valid object. Those of pod templates run for all kinds with one."""
    check_update: Callable[[Any, RequestContext, JSON, JSON], None] | None = None
    """Runs the validating plugins on a valid update, also of a subresource."""
    is_charged: Callable[[JSON, JSON, str], bool] | None = None
    """Returns True if an update (third argument: subresource) can change the usage of quotas."""
    check_quota: Callable[[JSON, Iterable[str], JSON], None] | None = None
    """Checks the rules of a quota (first argument) for an object that it counts under these names."""
    counts_devices: bool = False
    """Quotas count the object's devices."""

    # --- deletion

    check_delete: Callable[[str], None] | None = None
    """Raises StatusError 403 for a name that may not be deleted."""
    grace_seconds: Callable[[JSON, int | None], int] | None = None
    """Returns the grace period of a deletion; second argument: the requested one."""
    mark_deleted: Callable[[JSON, list[str], str], JSON] | None = None
    """Returns the object at its first deletion, with these finalizers at this time, if steps of the kind follow."""
    is_finalizing: Callable[[JSON], bool] | None = None
    """Returns True as long as those steps are not complete."""

    # --- reading

    cells: Callable[[JSON, datetime], list[Any]] | None = None
    """Returns a row of `kubectl get`, in the order of printers/columns.json, wide columns included."""
    column_definitions: Callable[[list[JSON]], list[JSON]] | None = None
    """Returns the definitions of a custom resource's columns; argument: those of name and age."""
    row_conditions: Callable[[JSON], list[JSON]] | None = None
    selectable_fields: Mapping[str, Getter] | None = None
    """Fields of field selectors; None: name and namespace."""
    unknown_field: str = "field label not supported: {field}"


NO_BEHAVIOUR = Strategy()


class CustomResource(Resource[JSON], frozen=True, eq=False, kw_only=True):
    """A resource defined by a CustomResourceDefinition. It belongs to one server and is in no table."""

    strategy: Strategy
    rules: CustomResourceVersion


def update_as_create(
    validate: Callable[..., None], *immutable: str | tuple[str, str], with_stored: bool = False, unchanged: bool = False
) -> ValidateUpdate:
    """Return an update validator that validates a changed object like a new one.

    immutable: paths of fields that may not change, with the Go type of a struct. with_stored: `validate` takes the
    stored object, too. unchanged: validate also an object of which only metadata or the status changes.
    """
    fields = [(field, "") if isinstance(field, str) else field for field in immutable]

    def validate_update(errors: Any, obj: JSON, old: JSON) -> None:
        if unchanged or any(obj.get(name) != old.get(name) for name in {*obj, *old} - {"metadata", "status"}):
            validate(errors, obj, *((old,) if with_stored else ()))
        for path, type_name in fields:
            new_value, old_value = (value_at(version, path.split(".")) for version in (obj, old))
            errors.immutable(path, new_value, old_value, type_name)

    return validate_update


def strategy_of(resource: Resource[Any]) -> Strategy:
    """Return the strategy of a resource's kind: NO_BEHAVIOUR for a kind without its own."""
    if isinstance(resource, CustomResource):
        return resource.strategy
    return _find(resource.group, resource.kind)


@cache
def _find(group: str, kind: str) -> Strategy:
    if "." in group and not group.endswith(".k8s.io"):  # no group of Kubernetes, but a name like "apps.example.com"
        return NO_BEHAVIOUR
    package = f"{_KINDS}.{group.partition('.')[0] or 'core'}"
    module = f"{package}.{_WORD_START.sub('_', kind).lower()}"
    try:
        strategy: Strategy = import_module(module).STRATEGY
    except ModuleNotFoundError as error:
        if error.name not in (package, module):
            raise
        return NO_BEHAVIOUR
    return strategy


_KINDS = "kubeloop.devcluster.kinds"
_WORD_START = re.compile("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
