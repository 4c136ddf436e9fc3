"""Deletion of namespaces: `controller` sees them through, `deletion` empties them, `conditions` tells how far it is."""

from kubeloop.controllers.namespace.controller import NamespaceController

__all__ = ["NamespaceController"]
