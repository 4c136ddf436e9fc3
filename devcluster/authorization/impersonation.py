"""Impersonation by request headers, as in `kubectl --as`, and the permissions that it needs.

The modes of constrained impersonation (KEP-5284) need a permission for the request itself ("impersonate-on:MODE:VERB")
and "impersonate:MODE" for each part of the user; the original mode needs "impersonate". The mode that last allowed a
request of a user is tried first. Source: apiserver pkg/endpoints/filters/impersonation of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.authorizer import (
    PRIVILEGED_GROUP,
    AccessAttributes,
    AuthorizationDecision,
    RequestAuthorizer,
    forbidden,
)
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.authorization.access_attributes import access_attributes
from kubeloop.devcluster.authorization.access_metrics import AccessMetrics
from kubeloop.devcluster.authorization.users import NODES_GROUP, account_groups, node_in, split_account
from kubeloop.devcluster.validation.common.error_list import ErrorList, validate_domain_prefixed_path
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted

_PREFIX = "impersonate-"
_EXTRA = f"{_PREFIX}extra-"
_ANONYMOUS, _UNAUTHENTICATED, _AUTHENTICATED = "system:anonymous", "system:unauthenticated", "system:authenticated"
_AUTHENTICATION = "authentication.k8s.io"
_NODE_OF_ACCOUNT = "authentication.kubernetes.io/node-name"
_MANY = 4  # values, from which on a constrained mode first checks the permission for all of them
_MAX_USERS = 10_000
_ORIGINAL = ""


class ImpersonatedUser(msgspec.Struct):
    """The user that impersonation headers name."""

    name: str
    uid: str
    groups: list[str]
    extra: dict[str, list[str]]

    @property
    def has_name_alone(self) -> bool:
        return not (self.uid or self.groups or self.extra)


def _is_associated_node(user: ImpersonatedUser, requester: JSON) -> bool:
    """Return True for the node on which the pod of the requesting ServiceAccount runs."""
    node = node_in(user.name)
    own_node = (requester.get("extra") or {}).get(_NODE_OF_ACCOUNT)
    is_account = split_account(requester["username"]) is not None
    return bool(node) and user.has_name_alone and is_account and own_node == [node]


_MODES: dict[str, Callable[[ImpersonatedUser, JSON], bool]] = {
    "associated-node": _is_associated_node,
    "arbitrary-node": lambda user, _: user.has_name_alone and bool(node_in(user.name)),
    "serviceaccount": lambda user, _: user.has_name_alone and split_account(user.name) is not None,
    "user-info": lambda user, _: not node_in(user.name) and split_account(user.name) is None,
    _ORIGINAL: lambda _user, _requester: True,
}
"""Functions that return True if a mode applies to an impersonated and a requesting user, in the order of trying."""


class Impersonation:
    """Decides which user a request counts as. constrained: try the modes of constrained impersonation, too, and count.

    metrics: of the server.
    """

    def __init__(
        self, authorizer: RequestAuthorizer, *, constrained: bool = True, metrics: AccessMetrics | None = None
    ) -> None:
        self._authorizer = authorizer
        self._metrics = (metrics or AccessMetrics()) if constrained else AccessMetrics()
        self._modes = [*_MODES] if constrained else [_ORIGINAL]
        self._last_modes: dict[str, str] = {}

    def user(self, request: ApiRequest) -> JSON:
        """Return the user of a request: `request.user`, or the one that its headers name.

        Header names are in lower case, and the values of several headers of one name are joined by ", ". Raises
        StatusError 400 for impersonated groups, uid or extra without a user name, 403 without a permission.
        """
        user = _named_user(request.headers)
        if user is None:
            return request.user
        began = perf_counter()
        try:
            mode, info = self._user(request, user)
        except errors.StatusError:
            self._metrics.impersonations.observe(("", "denied"), perf_counter() - began)
            raise
        seconds = perf_counter() - began
        self._metrics.impersonations.observe((mode or "legacy", "allowed"), seconds)
        if request.audit is not None:
            request.audit.note_latency("impersonation", seconds)
        return info

    def _user(self, request: ApiRequest, user: ImpersonatedUser) -> tuple[str, JSON]:
        """Return the mode that allows impersonation, and the UserInfo. Raises StatusError 403."""
        attributes = access_attributes(request)
        requester = attributes.user["username"]
        last = self._last_modes.get(requester)
        first_refusal: errors.StatusError | None = None
        for mode in sorted(self._modes, key=lambda mode: mode != last):
            if not _MODES[mode](user, attributes.user):
                continue
            try:
                info = self._impersonate(mode, user, attributes)
            except errors.StatusError as refusal:
                first_refusal = first_refusal or refusal
                continue
            if len(self._last_modes) >= _MAX_USERS:
                self._last_modes.clear()
            self._last_modes[requester] = mode
            if request.audit is not None:
                request.audit.impersonated_user = info
                request.audit.impersonation_constraint = f"impersonate:{mode}" if mode else ""
            return mode, info
        assert first_refusal is not None, "the original mode applies to all users"
        raise first_refusal

    def _impersonate(self, mode: str, user: ImpersonatedUser, attributes: AccessAttributes) -> JSON:
        """Return the UserInfo of an impersonated user. Raises StatusError 403."""
        if mode:
            self._require(replace(attributes, verb=f"impersonate-on:{mode}:{attributes.verb}"))
        verb = f"impersonate:{mode}" if mode else "impersonate"
        named = AccessAttributes(attributes.user, verb, _AUTHENTICATION if mode else "", "users", name=user.name)
        groups = user.groups
        if mode and (node := node_in(user.name)):
            named = replace(named, resource="nodes", name="*" if mode == "associated-node" else node)
            groups = [NODES_GROUP]
        elif account := split_account(user.name):
            named = replace(named, resource="serviceaccounts", namespace=account[0], name=account[1])
            groups = groups or account_groups(account[0])
        self._require(named)
        if user.uid:
            self._require(replace(named, group=_AUTHENTICATION, resource="uids", namespace="", name=user.uid))
        self._require_groups(replace(named, resource="groups", namespace="", name=""), user.groups, bool(mode))
        extra = replace(named, group=_AUTHENTICATION, resource="userextras", namespace="", name="")
        self._require_extra(extra, user.extra, bool(mode))
        if user.name == _ANONYMOUS:
            default_group = _UNAUTHENTICATED
        else:
            default_group = "" if _UNAUTHENTICATED in groups else _AUTHENTICATED
        if default_group and default_group not in groups:
            groups = [*groups, default_group]
        info: JSON = {"username": user.name}
        if user.uid:
            info["uid"] = user.uid
        return {**info, "groups": groups, **({"extra": user.extra} if user.extra else {})}

    def _require_groups(self, attributes: AccessAttributes, groups: list[str], constrained: bool) -> None:
        if constrained and PRIVILEGED_GROUP in groups:
            reason = "impersonating the system:masters group is not allowed"
            raise forbidden(replace(attributes, name=PRIVILEGED_GROUP), reason)
        if constrained and len(groups) >= _MANY and self._allows(replace(attributes, name="*")):
            return
        for group in groups:
            self._require(replace(attributes, name=group))

    def _require_extra(self, attributes: AccessAttributes, extra: dict[str, list[str]], constrained: bool) -> None:
        if constrained:
            if problem := _extra_problem(extra):
                raise forbidden(attributes, problem)
            many = sum(map(len, extra.values())) >= _MANY
            if many and self._allows(replace(attributes, subresource="*", name="*")):
                return
        for key, values in extra.items():
            for value in values:
                self._require(replace(attributes, subresource=key, name=value))

    def _allows(self, attributes: AccessAttributes) -> bool:
        return self._decision(attributes).allowed

    def _decision(self, attributes: AccessAttributes) -> AuthorizationDecision:
        began = perf_counter()
        decision = self._authorizer.authorize(attributes)
        mode = [*attributes.verb.split(":"), "legacy"][1]  # impersonate, impersonate:MODE, impersonate-on:MODE:VERB
        labels = (mode, "allowed" if decision.allowed else "denied")
        self._metrics.impersonation_checks.observe(labels, perf_counter() - began)
        return decision

    def _require(self, attributes: AccessAttributes) -> None:
        decision = self._decision(attributes)
        if not decision.allowed:
            raise forbidden(attributes, decision.reason)


def _named_user(headers: Mapping[str, str]) -> ImpersonatedUser | None:
    """Return the user that headers name, None without such headers. Raises StatusError 400."""
    impersonation_headers = {name: value for name, value in headers.items() if name.startswith(_PREFIX)}
    if not impersonation_headers:
        return None
    name, uid = ("".join(_values(impersonation_headers.get(f"impersonate-{part}"))[:1]) for part in ("user", "uid"))
    groups = _values(impersonation_headers.get("impersonate-group"))
    extra = {
        unquote(header.removeprefix(_EXTRA)): _values(impersonation_headers[header])
        for header in impersonation_headers
        if header.startswith(_EXTRA)
    }
    if name:
        return ImpersonatedUser(name, uid, groups, extra)
    if not (uid or groups or extra):
        return None
    go_extra = ", ".join(f"{quoted(key)}:[]string{_go_braces(values)}" for key, values in sorted(extra.items()))
    go_struct = (
        f'&user.DefaultInfo{{Name:"", UID:{quoted(uid)}, Groups:[]string{_go_braces(groups) if groups else "(nil)"}, '
        f"Extra:map[string][]string{f'{{{go_extra}}}' if extra else '(nil)'}}}"
    )
    raise errors.bad_request(f"requested {go_struct} without impersonating a user name")


def _values(joined: str | None) -> list[str]:
    return [value for value in (joined or "").split(", ") if value]


def _go_braces(texts: list[str]) -> str:
    return "{" + ", ".join(map(quoted, texts)) + "}"


def _extra_problem(extra: dict[str, list[str]]) -> str:
    """Return why a constrained mode refuses these extra values, "" if it accepts them."""
    for key, values in extra.items():
        if not key:
            return "impersonating the empty string key in extra is not allowed"
        causes = ErrorList()
        validate_domain_prefixed_path(causes, "extra.key", key)
        if causes:
            problems = [f"{cause['field']}: {cause['message']}" for cause in causes]
            text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            return f"impersonating an invalid key in extra is not allowed: {text}"
        if key != key.lower():
            return f"impersonating a non-lowercase key in extra is not allowed: {quoted(key)}"
        if not values:
            return "impersonating empty values in extra is not allowed"
    return ""
