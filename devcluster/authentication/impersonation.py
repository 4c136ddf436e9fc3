"""Impersonation by request headers, as in `kubectl --as`. Every user may impersonate every other.

Source: apiserver pkg/endpoints/filters/impersonation of v1.36.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from urllib.parse import unquote

from kubeloop.devcluster.api import errors
from kubeloop.kube.json_object import JSON

_PREFIX = "impersonate-"
_EXTRA = f"{_PREFIX}extra-"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_ACCOUNT = re.compile(rf"system:serviceaccount:({_LABEL}):({_LABEL}(\.{_LABEL})*)")
_ANONYMOUS, _UNAUTHENTICATED, _AUTHENTICATED = "system:anonymous", "system:unauthenticated", "system:authenticated"


def impersonated_user(user: JSON, headers: Mapping[str, str]) -> JSON:
    """Return the user that a request counts as: `user`, or the one that impersonation headers name.

    Header names are in lower case, and the values of several headers of one name are joined by ", ". Raises StatusError
    400 for impersonated groups, uid or extra without a user name.
    """
    impersonation_headers = {name: value for name, value in headers.items() if name.startswith(_PREFIX)}
    if not impersonation_headers:
        return user
    name = _header_values(impersonation_headers.get("impersonate-user"))[:1]
    uid = _header_values(impersonation_headers.get("impersonate-uid"))[:1]
    groups = _header_values(impersonation_headers.get("impersonate-group"))
    extra = {
        unquote(header.removeprefix(_EXTRA)): _header_values(impersonation_headers[header])
        for header in impersonation_headers
        if header.startswith(_EXTRA)
    }
    if not name:
        if not (uid or groups or extra):
            return user
        go_struct = (
            f"&user.DefaultInfo{{Name:{_quoted('')}, UID:{_quoted(''.join(uid))}, Groups:{_go_string_slice(groups)}, "
        )
        go_extra = ", ".join(f"{_quoted(key)}:[]string{_go_braces(values)}" for key, values in sorted(extra.items()))
        go_struct += f"Extra:map[string][]string{f'{{{go_extra}}}' if extra else '(nil)'}}}"
        raise errors.bad_request(f"requested {go_struct} without impersonating a user name")
    if not groups and (account := _ACCOUNT.fullmatch(name[0])):
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{account[1]}"]
    if name[0] == _ANONYMOUS:
        if _UNAUTHENTICATED not in groups:
            groups = [*groups, _UNAUTHENTICATED]
    elif _AUTHENTICATED not in groups and _UNAUTHENTICATED not in groups:
        groups = [*groups, _AUTHENTICATED]
    result: JSON = {"username": name[0]}
    if uid:
        result["uid"] = uid[0]
    return {**result, "groups": groups, **({"extra": extra} if extra else {})}


def _header_values(joined: str | None) -> list[str]:
    return [value for value in (joined or "").split(", ") if value]


def _quoted(text: str) -> str:
    return json.dumps(text)


def _go_braces(texts: list[str]) -> str:
    return "{" + ", ".join(map(_quoted, texts)) + "}"


def _go_string_slice(texts: list[str]) -> str:
    return f"[]string{_go_braces(texts)}" if texts else "[]string(nil)"
