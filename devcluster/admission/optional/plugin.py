"""Base class of the optional admission plugins, and the objects that they read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from kubeloop.devcluster.admission.attributes import Attributes, CustomResources, Operation
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES, PODS, Resource

WRITES: frozenset[Operation] = frozenset({"CREATE", "UPDATE"})


class PluginEnvironment(msgspec.Struct, frozen=True):
    """Objects, custom resources and feature gates of the server, and the configuration of each plugin."""

    store: ObjectStore
    definitions: CustomResources
    gates: FeatureGates = DEFAULT_FEATURE_GATES
    configuration: Mapping[str, JSON] = {}


class OptionalPlugin:
    """An admission plugin. For these operations and requests, admit() runs, which may change the object, then check().

    Both raise StatusError to refuse a request. This one admits every write of `resource` (None: of every resource).
    """

    operations: ClassVar[frozenset[Operation]] = WRITES
    resource: ClassVar[Resource[Any] | None] = PODS

    def __init__(self, environment: PluginEnvironment) -> None:
        self.environment = environment
        self.store = environment.store

    def applies_to(self, context: RequestContext) -> bool:
        """Return True if the plugin may have to run on a request, whatever its object is."""
        info = context.info
        return self.resource is None or (info.served.resource is self.resource and not info.subresource)

    def admit(self, request: Attributes) -> None:
        """Run in the phase that may change `request.object`, in place."""

    def check(self, request: Attributes) -> None:
        """Run in the validating phase."""

    def namespace_annotations(self, request: Attributes) -> JSON:
        """Return the annotations of the request's namespace."""
        namespace = self.store.get(NAMESPACES, "", request.namespace)
        annotations: JSON = {} if namespace is None else namespace["metadata"].get("annotations") or {}
        return annotations


def refusal(request: Attributes, reason: str) -> StatusError:
    """Return the 403 of a plugin. Source: admission.NewForbidden."""
    return errors.forbidden(request.served.resource, request.name_in_message, reason)
