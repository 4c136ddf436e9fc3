"""Requests on behalf of somebody else: `kubectl --as`, and its headers. Everybody may, as everybody may do everything.

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


def impersonated(user: JSON, headers: Mapping[str, str]) -> JSON:
    """Whom a request of `user` with these headers counts as: `user`, or whom they name.

    Names of headers are lower case, several headers of one name are joined by ", ". Raises StatusError 400 if groups,
    a uid or extras are asked for without a name.
    """
    asked = {name: value for name, value in headers.items() if name.startswith(_PREFIX)}
    if not asked:
        return user
    name = _all(asked.get("impersonate-user"))[:1]
    uid = _all(asked.get("impersonate-uid"))[:1]
    groups = _all(asked.get("impersonate-group"))
    extra = {unquote(each.removeprefix(_EXTRA)): _all(asked[each]) for each in asked if each.startswith(_EXTRA)}
    if not name:
        if not (uid or groups or extra):
            return user
        in_go = f"&user.DefaultInfo{{Name:{_quoted('')}, UID:{_quoted(''.join(uid))}, Groups:{_slice(groups)}, "
        told = ", ".join(f"{_quoted(key)}:[]string{_braces(values)}" for key, values in sorted(extra.items()))
        in_go += f"Extra:map[string][]string{f'{{{told}}}' if extra else '(nil)'}}}"
        raise errors.bad_request(f"requested {in_go} without impersonating a user name")
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


def _all(joined: str | None) -> list[str]:
    return [each for each in (joined or "").split(", ") if each]


def _quoted(text: str) -> str:
    return json.dumps(text)


def _braces(texts: list[str]) -> str:
    return "{" + ", ".join(map(_quoted, texts)) + "}"


def _slice(texts: list[str]) -> str:
    return f"[]string{_braces(texts)}" if texts else "[]string(nil)"
