"""The strategy of a kind: everything in which one kind differs from the others, and the registry of strategies.

A kind with behaviour has a module of its own, `kinds/GROUP/KIND.py` (kinds/scheduling/pod_group.py), with a STRATEGY. A
kind without such a module follows the rules that all kinds share. Modules below `kinds` know a kind only by its
strategy; strategy_of() imports it by name for the first request that needs it. Source: the strategies under
pkg/registry of Kubernetes v1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import import_module
from typing import Any

import msgspec

from kubeloop.devcluster.api.custom_resources import CustomResourceVersion
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.json_object import JSON
from kubeloop.kube.name_checks import dns_subdomain
from kubeloop.kube.objects.resources import Resource

Convert = Callable[[JSON], JSON]
Default = Callable[[JSON], None]
Validate = Callable[[Any, JSON], None]
"""Adds the errors of a new object to the first argument, an ErrorList."""
ValidateUpdate = Callable[[Any, JSON, JSON], None]
"""Adds the errors of an update to the first argument, an ErrorList; last argument: the stored object."""
Warn = Callable[[JSON, JSON | None], Iterable[str]]
"""Returns warnings about an object, "" for none; second argument: the stored object, None on create."""


Getter = Callable[[JSON], str]
"""Returns the value of a field as text."""
ComputedColumn = Callable[[JSON, datetime], Any]


Drop = Callable[[JSON, JSON], None]
"""Drops a field from the first argument unless the second, the stored one, uses it ({} if there is none)."""


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
    """The behaviour of one kind. Functions change objects in place: they belong to the request.

    default: set unset fields. default_times: set unset times; second argument: returns the current time.
    default_on_read: what kube-apiserver sets when it reads an object, after the object is validated.
    is_defaulted_on_read: True for a new object whose fields kube-apiserver defaults on each read until the next write.

    template_path: fields to the pod template, () for a pod. gated_fields: functions that drop a field unless this
    feature gate is on; gated_status_fields: the same for the status; gated_default: default if this gate is on.

    prepare_create, prepare_update, prepare_status: set the fields of the server before a write; second argument of an
    update: the stored object. sets_initial_status: prepare_create sets the status of a new object, which is otherwise
    that of the declaration. generation_as_sent: [] instead of null increases the generation, as with
    reflect.DeepEqual. prepare_subresources: functions that return the object which a write to a subresource stores.
    status_metadata: what a write of the status changes in metadata.

    owns_spec, owns_status, owns_status_metadata: whether the fields sent in the spec, in the status through the object
    itself, and in metadata with the status have owners; unowned_in_status: metadata without an owner in writes of the
    status. Source: the strategies' GetResetFields.

    validated_as_sent: absent and empty maps differ, which decoding does not preserve.

    validate: None for kinds of which only metadata and required fields are checked. core_finalizers: unqualified
    finalizers must be standard ones, as in kinds that use core's ValidateObjectMeta. strategy_metadata: on create, the
    strategy validates metadata, too; otherwise only the store does. update_steps: steps of an update after the store's
    own check of metadata, in order: "u", metadata against the stored version; "w", the new metadata alone; "s",
    `validate_update`. subresource_steps: the same for writes to a subresource.

    admit_create, admit_update: the mutating admission plugins; check_create, check_update: the validating ones, on a
    valid object. First argument: the AdmissionChain; last one of an update: the stored object. Updates of subresources
    are only checked. is_charged: True if an update (third argument: subresource) can change the usage of quotas;
    check_quota: rules for an object that a quota (first argument) counts under these names; counts_devices: quotas
    count its devices.

    check_delete: raises StatusError 403 for a name that may not be deleted. grace_seconds: grace period of a deletion;
    second argument: the requested one. mark_deleted: returns the object at its first deletion, with these finalizers,
    at this time, if the kind's own steps follow; is_finalizing: True as long as it waits for them. deletion_warning:
    about deletions without a propagation policy.

    warnings: about a write of the object or its scale; status_warnings: about a write of its status; warnings_as_sent:
    about a new object before the server sets fields from its annotations.

    cells: a row of `kubectl get` at this time, in the order of printers/columns.json, wide columns included; the object
    is decoded and defaulted as the server stores it. computed_columns: functions of the columns that the declaration
    names without a path. selectable_fields: of field selectors, None for name and namespace only; unknown_field: error
    for others. fill_empty_object: set fields of an empty object that Go encodes even if unset. row_conditions:
    conditions of the row in a Table.
    """

    converters: tuple[Convert, Convert] | None = None
    default: Default | None = None
    default_times: Callable[[JSON, Callable[[], str]], None] | None = None

    name_check: Callable[[str], Sequence[str]] = dns_subdomain
    strict_name_check: Callable[[str], Sequence[str]] | None = None
    validate: Validate | None = None
    validate_update: ValidateUpdate = _accept_update
    validate_subresources: Mapping[str, ValidateUpdate] = {}
    core_finalizers: bool = True
    strategy_metadata: bool = True
    update_steps: str = "us"
    subresource_steps: str = "us"

    default_on_read: Default | None = None
    is_defaulted_on_read: Callable[[JSON], bool] | None = None

    template_path: tuple[str, ...] | None = None
    gated_fields: Iterable[tuple[str, Drop]] = ()
    gated_status_fields: Iterable[tuple[str, Drop]] = ()
    gated_default: tuple[str, Default] | None = None

    prepare_create: Callable[[JSON, Write], None] | None = None
    sets_initial_status: bool = False
    prepare_update: Callable[[JSON, JSON, Write], None] | None = None
    generation_as_sent: bool = False
    prepare_status: Callable[[JSON, JSON, Write], None] | None = None
    prepare_subresources: Mapping[str, Callable[[JSON, JSON, Write], JSON]] = {}
    status_metadata: tuple[str, ...] = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields")

    owns_spec: bool = True
    owns_status: bool = False
    owns_status_metadata: bool = True
    unowned_in_status: tuple[str, ...] = ()

    validated_as_sent: bool = False

    admit_create: Callable[[Any, RequestContext, JSON], None] | None = None
    admit_update: Callable[[Any, JSON, JSON], None] | None = None
    check_create: Callable[[Any, RequestContext, JSON], None] | None = None
    check_update: Callable[[Any, RequestContext, JSON, JSON], None] | None = None
    is_charged: Callable[[JSON, JSON, str], bool] | None = None
    check_quota: Callable[[JSON, Iterable[str], JSON], None] | None = None
    counts_devices: bool = False

    check_delete: Callable[[str], None] | None = None
    grace_seconds: Callable[[JSON, int | None], int] | None = None
    mark_deleted: Callable[[JSON, list[str], str], JSON] | None = None
    is_finalizing: Callable[[JSON], bool] | None = None
    deletion_warning: str = ""

    warnings_as_sent: Callable[[JSON], Iterable[str]] | None = None
    warnings: Warn = _no_warnings
    status_warnings: Warn = _no_warnings

    cells: Callable[[JSON, datetime], list[Any]] | None = None
    selectable_fields: Mapping[str, Getter] | None = None
    unknown_field: str = "field label not supported: {field}"
    fill_empty_object: Default | None = None
    column_definitions: Callable[[list[JSON]], list[JSON]] | None = None
    computed_columns: Mapping[str, ComputedColumn] = {}
    row_conditions: Callable[[JSON], list[JSON]] | None = None


NO_BEHAVIOUR = Strategy()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CustomResource(Resource[JSON]):
    """A resource defined by a CustomResourceDefinition. It belongs to one server and is in no table."""

    strategy: Strategy
    rules: CustomResourceVersion


def update_as_create(validate: Validate) -> ValidateUpdate:
    """Return an update validator that validates a changed object like a new one."""

    def validate_update(errors: Any, obj: JSON, old: JSON) -> None:
        if any(obj.get(name) != old.get(name) for name in {*obj, *old} - {"metadata", "status"}):
            validate(errors, obj)

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
