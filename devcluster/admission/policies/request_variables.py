"""Values of the variables `request` and `namespaceObject` of a policy's expressions.

Source: k8s.io/apiserver pkg/admission/plugin/cel/condition.go (CreateAdmissionRequest, CreateNamespaceObject).
"""

from __future__ import annotations

from kubeloop.devcluster.admission.attributes import Attributes
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.kube.json_object import JSON


def request_value(request: Attributes, matched: ServedResource) -> JSON:
    """Return the variable `request`: an AdmissionRequest without the objects, in the matched version."""
    group, version, kind = request.kind
    value: JSON = {
        "uid": "",
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": _resource(matched),
        "requestKind": {"group": group, "version": version, "kind": kind},
        "requestResource": _resource(request.served),
        "operation": request.operation,
        "userInfo": {name: field for name, field in request.user.items() if field},
        "dryRun": request.dry_run,
        "options": request.options,
    }
    if matched is not request.served and request.subresource in ("", "status"):
        resource = matched.resource
        value["kind"] = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    optional = {
        "subResource": request.subresource,
        "requestSubResource": request.subresource,
        "name": request.name,
        "namespace": request.namespace,
    }
    return value | {name: text for name, text in optional.items() if text}


def _resource(served: ServedResource) -> JSON:
    resource = served.resource
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


_HIDDEN_METADATA = ("managedFields", "ownerReferences", "selfLink")


def namespace_value(namespace: JSON | None) -> JSON | None:
    """Return the variable `namespaceObject`."""
    if namespace is None:
        return None
    metadata = {name: value for name, value in namespace["metadata"].items() if name not in _HIDDEN_METADATA}
    return {"metadata": metadata, "spec": namespace.get("spec") or {}, "status": namespace.get("status") or {}}
