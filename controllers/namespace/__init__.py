"""The namespace controller: empties namespaces that are being deleted, and then removes their finalizer.

`namespace_controller` runs the deletion, `namespaced_resources_deleter` deletes the content, and `deletion_conditions`
computes the conditions that report its progress.
"""

from kubeloop.controllers.namespace.namespace_controller import NamespaceController

__all__ = ["NamespaceController"]
