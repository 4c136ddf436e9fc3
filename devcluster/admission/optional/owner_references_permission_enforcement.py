"""OwnerReferencesPermissionEnforcement: permissions for changed owner references.

Whoever sets owner references must be allowed to delete the object, and with blockOwnerDeletion to update the finalizers
of the owner. Source: plugin/pkg/admission/gc of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.admission.attributes import Attributes, resource_of_kind
from kubeloop.devcluster.admission.optional.plugin import OptionalPlugin, refusal
from kubeloop.devcluster.api.authorizer import AccessAttributes, AuthorizationDecision
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import PODS
from kubeloop.kube.validation.field_errors import quoted


class OwnerReferencesPermissionEnforcement(OptionalPlugin):
    resource = None

    def applies_to(self, context: RequestContext) -> bool:
        # the strategy of the status of pods does not change owner references
        return context.info.served.resource is not PODS or context.info.subresource != "status"

    def check(self, request: Attributes) -> None:
        owners, old_owners = _owners(request.object), _owners(request.old)
        if owners == old_owners:
            return
        authorize, resource = request.authorizer.authorize, request.served.resource
        if request.operation != "CREATE":
            place = (resource.group, resource.plural, request.subresource, request.namespace, request.name)
            decision = authorize(AccessAttributes(request.user, "delete", *place))
            if not decision.allowed:
                message = "cannot set an ownerRef on a resource you can't delete"
                raise refusal(request, f"{message}: {_reasons(decision)}")
        blocked = {owner["uid"] for owner in old_owners if owner.get("blockOwnerDeletion")}
        blocking = [owner for owner in owners if owner.get("blockOwnerDeletion") and owner["uid"] not in blocked]
        anything = AccessAttributes(request.user, "update", "*", "*", "finalizers", name="*")
        if blocking and not authorize(anything).allowed:
            for owner in blocking:
                self._check_finalizers(request, owner)

    def _check_finalizers(self, request: Attributes, owner: JSON) -> None:
        """Raise StatusError 403 unless the user may update the finalizers of an owner."""
        api_version, kind = owner["apiVersion"], owner["kind"]
        served = resource_of_kind(self.environment.definitions, api_version, kind)
        if served is None:
            message = (
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion "
                f"{api_version} Kind {kind}: no matches for kind {quoted(kind)} in version {quoted(api_version)}"
            )
            raise refusal(request, message)
        resource = served.resource
        namespace = request.namespace if resource.namespaced else ""
        place = (resource.group, resource.plural, "finalizers", namespace, owner["name"])
        decision = request.authorizer.authorize(AccessAttributes(request.user, "update", *place))
        if not decision.allowed:
            message = (
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"
            )
            raise refusal(request, f"{message}: {_reasons(decision)}")


def _owners(obj: JSON | None) -> list[JSON]:
    return ((obj or {}).get("metadata") or {}).get("ownerReferences") or []


def _reasons(decision: AuthorizationDecision) -> str:
    return f"{decision.reason}, {decision.error or '<nil>'}"
