"""NamespaceExists: refuses writes in a namespace that does not exist.

NamespaceLifecycle, which always runs, does not check deletions. Source: plugin/pkg/admission/namespace/exists of
Kubernetes v1.36.
"""

from __future__ import annotations

from typing import ClassVar

from kubeloop.devcluster.admission.attributes import Attributes, Operation
from kubeloop.devcluster.admission.optional.plugin import OptionalPlugin
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.resources import NAMESPACES


class NamespaceExists(OptionalPlugin):
    operations: ClassVar[frozenset[Operation]] = frozenset({"CREATE", "UPDATE", "DELETE"})
    resource = None

    def check(self, request: Attributes) -> None:
        namespace = request.namespace
        if namespace and not request.is_of_namespace and self.store.get(NAMESPACES, "", namespace) is None:
            raise errors.not_found(NAMESPACES, namespace)
