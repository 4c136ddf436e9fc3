"""The API for controllers: everything that the author of a controller imports. docs/controllers.md is its guide.

    controller.py     Controller, its options, and the results of a reconcile
    watches.py        what a controller watches, and the requests of events
    predicates.py     which events count
    cache.py          reads from the informers
    client.py         live reads, and writes
    patches.py        patches for Client.patch
    objects.py        requests, metadata and owner references
    conditions.py     conditions of a status
    recorder.py       Events
    permissions.py    RBAC rules
    runner.py         runs a controller; for kubeloop only

Names are those of controller-runtime and client-go where these have one. May import `kubeloop.controllers.runtime`,
`kubeloop.tracing`, `kubeloop.informers` and `kubeloop.kube`.
"""

from kubeloop.controllers.api.cache import Cache, NotWatched
from kubeloop.controllers.api.client import Client, NoKindMatchError, PartialStruct
from kubeloop.controllers.api.conditions import find_status_condition, is_status_condition_true, set_status_condition
from kubeloop.controllers.api.controller import (
    BACKOFF,
    Controller,
    ControllerFactory,
    ControllerHandle,
    ReconcileOptions,
    Result,
    TerminalError,
    WatchedCluster,
)
from kubeloop.controllers.api.objects import (
    AlreadyOwnedError,
    ApiObject,
    Request,
    get_controller_of,
    is_controlled_by,
    metadata_of,
    set_controller_reference,
    set_owner_reference,
)
from kubeloop.controllers.api.patches import Patch, json_patch, merge_from, merge_patch, strategic_merge_patch
from kubeloop.controllers.api.permissions import AccessRule
from kubeloop.controllers.api.predicates import (
    Predicate,
    and_,
    annotations_changed,
    generation_changed,
    is_deleted,
    labels_changed,
    matches,
    not_,
    or_,
    resource_version_changed,
)
from kubeloop.controllers.api.recorder import EventRecorder
from kubeloop.controllers.api.watches import For, InIndex, Owns, Watch, Watches, by_label, by_owner, to_self
from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.kube.errors import (
    AlreadyExists,
    ApiError,
    ApplyConflict,
    BadRequest,
    Conflict,
    DisruptionBudgetExceeded,
    Forbidden,
    Gone,
    InternalError,
    Invalid,
    NamespaceTerminating,
    NotFound,
    ServerTimeout,
    ServerUnreachable,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from kubeloop.kube.objects.api_types import Condition, Object, ObjectMeta, OwnerReference, Struct
from kubeloop.kube.objects.resources import Resource, json_resource, new_resource

__all__ = [
    "BACKOFF",
    "AccessRule",
    "AlreadyExists",
    "AlreadyOwnedError",
    "ApiError",
    "ApiObject",
    "ApplyConflict",
    "BadRequest",
    "Cache",
    "Client",
    "Condition",
    "Conflict",
    "Controller",
    "ControllerFactory",
    "ControllerHandle",
    "DisruptionBudgetExceeded",
    "EventRecorder",
    "For",
    "Forbidden",
    "Gone",
    "InIndex",
    "InternalError",
    "Invalid",
    "NamespaceTerminating",
    "NoKindMatchError",
    "NotFound",
    "NotWatched",
    "Object",
    "ObjectMeta",
    "OwnerReference",
    "Owns",
    "PartialStruct",
    "Patch",
    "Predicate",
    "ReconcileError",
    "ReconcileOptions",
    "Request",
    "Resource",
    "Result",
    "ServerTimeout",
    "ServerUnreachable",
    "ServiceUnavailable",
    "Struct",
    "TerminalError",
    "TooManyRequests",
    "Unauthorized",
    "Watch",
    "WatchedCluster",
    "Watches",
    "and_",
    "annotations_changed",
    "by_label",
    "by_owner",
    "find_status_condition",
    "generation_changed",
    "get_controller_of",
    "is_controlled_by",
    "is_deleted",
    "is_status_condition_true",
    "json_patch",
    "json_resource",
    "labels_changed",
    "matches",
    "merge_from",
    "merge_patch",
    "metadata_of",
    "new_resource",
    "not_",
    "or_",
    "resource_version_changed",
    "set_controller_reference",
    "set_owner_reference",
    "set_status_condition",
    "strategic_merge_patch",
    "to_self",
]
