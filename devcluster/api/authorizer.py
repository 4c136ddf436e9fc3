"""Authorization: what an authorizer decides about, its decision, and the 403 of a request that it does not allow.

Sources: apiserver pkg/authorization/authorizer, pkg/endpoints/handlers/responsewriters/errors.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted

PRIVILEGED_GROUP = "system:masters"


class FieldRequirement(NamedTuple):
    """One requirement of a field selector. operator: "=" or "!="."""

    field: str
    operator: str
    value: str


class AccessAttributes(msgspec.Struct, frozen=True):
    """A request as authorizers see it. user: UserInfo. path: of a request for no resource, else None.

    field_selector: requirements of a list, watch or deletecollection.
    """

    user: JSON
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str | None = None
    field_selector: Sequence[FieldRequirement] = ()

    @property
    def combined_resource(self) -> str:
        """Return the resource as rules name it, such as "pods/status"."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class AuthorizationDecision(NamedTuple):
    """A decision; allowed is False if no authorizer allows the request. error: of the evaluation, "" for none."""

    allowed: bool
    reason: str = ""
    error: str = ""


class RequestAuthorizer(Protocol):
    """Decides requests by the objects that are stored at the time of the call."""

    def authorize(self, attributes: AccessAttributes) -> AuthorizationDecision: ...


def is_privileged(user: JSON) -> bool:
    """Return True for a member of system:masters, who is allowed every request."""
    return PRIVILEGED_GROUP in user.get("groups", ())


def forbidden(attributes: AccessAttributes, reason: str) -> StatusError:
    """Return the 403 of a request that is not allowed. reason: of the decision."""
    user, verb = quoted(attributes.user["username"]), attributes.verb
    if attributes.path is not None:
        message = f"User {user} cannot {verb} path {quoted(attributes.path)}"
    else:
        scope = f"in the namespace {quoted(attributes.namespace)}" if attributes.namespace else "at the cluster scope"
        resource, group = quoted(attributes.combined_resource), quoted(attributes.group)
        message = f"User {user} cannot {verb} resource {resource} in API group {group} {scope}"
    message = message.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    details = {"name": attributes.name, "group": attributes.group, "kind": attributes.resource}
    subject = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    if subject:
        subject += f" {quoted(attributes.name)} is " if attributes.name else " is "
    return StatusError(
        403,
        "Forbidden",
        f"{subject}forbidden: {message}{': ' if reason else ''}{reason}",
        details={name: text for name, text in details.items() if text},
        headers=[("X-Content-Type-Options", "nosniff")],
    )
