"""Values of the variables `request` and `namespaceObject` of a policy's expressions.

Source: k8s.io/apiserver pkg/admission/plugin/cel/condition.go (CreateAdmissionRequest, CreateNamespaceObject).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

from kubeloop.devcluster.admission.attributes import Attributes
from kubeloop.devcluster.api.authorizer import AccessAttributes, AuthorizationDecision, RequestAuthorizer
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.authorization.access_attributes import field_requirements
from kubeloop.devcluster.authorization.users import account_user
from kubeloop.kube.json_object import JSON
from kubeloop.kube.policy_cel.authorizer import Authorizer


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


def authorizer_value(request: Attributes) -> Authorizer:
    """Return the variable `authorizer` of a request. Called on the event loop; expressions may run in a thread.

    A check in a thread waits for the event loop, because the store is read there only.
    """
    thread, user, authorizer = threading.get_ident(), request.user, request.authorizer
    loop = asyncio.get_running_loop()

    def decide(account: tuple[str, str] | None, checked: Mapping[str, str]) -> tuple[bool, str]:
        subject = user if account is None else account_user(*account)
        fields = {name: value for name, value in checked.items() if name not in ("fieldSelector", "labelSelector")}
        selector = field_requirements(checked.get("fieldSelector", "")) or ()
        attributes = AccessAttributes(user=subject, field_selector=selector, **fields)
        if threading.get_ident() == thread:
            decision = authorizer.authorize(attributes)
        else:
            decision = asyncio.run_coroutine_threadsafe(_decision(authorizer, attributes), loop).result()
        return decision.allowed, decision.reason

    resource = request.served.resource
    own = {
        "group": resource.group,
        "resource": resource.plural,
        "subresource": request.subresource,
        "namespace": request.namespace,
        "name": request.name,
    }
    return Authorizer(decide, own)


async def _decision(authorizer: RequestAuthorizer, attributes: AccessAttributes) -> AuthorizationDecision:
    return authorizer.authorize(attributes)


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
