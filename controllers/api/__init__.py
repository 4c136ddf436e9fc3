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
from kubeloop.controllers.api.client import Client, NoKindMatch, PartialStruct
from kubeloop.controllers.api.conditions import find_condition, is_condition_true, set_condition
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
    AlreadyOwned,
    ApiObject,
    Request,
    controller_owner,
    is_controlled_by,
    metadata_of,
    set_controller_reference,
    set_owner_reference,
)
from kubeloop.controllers.api.patches import Patch, json_patch, merge_from, merge_patch, strategic_merge_patch
from kubeloop.controllers.api.permissions import AccessRule
from kubeloop.controllers.api.predicates import (
    Predicate,
    all_of,
    annotations_changed,
    any_of,
    generation_changed,
    is_deleted,
    labels_changed,
    matches,
    not_,
    resource_version_changed,
)
from kubeloop.controllers.api.recorder import Recorder
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
    "AlreadyOwned",
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
    "For",
    "Forbidden",
    "Gone",
    "InIndex",
    "InternalError",
    "Invalid",
    "NamespaceTerminating",
    "NoKindMatch",
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
    "Recorder",
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
    "all_of",
    "annotations_changed",
    "any_of",
    "by_label",
    "by_owner",
    "controller_owner",
    "find_condition",
    "generation_changed",
    "is_condition_true",
    "is_controlled_by",
    "is_deleted",
    "json_patch",
    "json_resource",
    "labels_changed",
    "matches",
    "merge_from",
    "merge_patch",
    "metadata_of",
    "new_resource",
    "not_",
    "resource_version_changed",
    "set_condition",
    "set_controller_reference",
    "set_owner_reference",
    "strategic_merge_patch",
    "to_self",
]
