"""Impersonation: headers for a kubeconfig's `as`, `as-uid`, `as-groups` and `as-user-extra`.

Source: client-go transport/round_trippers.go. Imports `user_error` and `kubeconfig`.
"""

from __future__ import annotations

import re
from typing import Any

from kubeloop.kube.auth.kubeconfig import KubeconfigEntry
from kubeloop.kube.user_error import UserError

Headers = tuple[tuple[str, str], ...]
"""Names and values; a name may occur more than once."""

_ESCAPED_CHARACTER = re.compile(r"[^!#$&'*+\-.^_`|~0-9A-Za-z]")  # not allowed in a header name, and "%" itself
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def impersonation_headers(user: KubeconfigEntry) -> Headers:
    """Return the impersonation headers of a kubeconfig user; empty without impersonation. Raises UserError."""
    name, uid = user.text("as"), user.text("as-uid")
    groups = _strings(user, user.values.get("as-groups"), "as-groups")
    extra = user.values.get("as-user-extra") or {}
    if not isinstance(extra, dict):
        raise UserError(
            f"kubeconfig {user.file}: as-user-extra is not a mapping", hint="each key has a list of strings"
        )
    if not name:
        if uid or groups or extra:
            raise UserError(
                f"kubeconfig {user.file}: as-uid, as-groups and as-user-extra need a user", hint="set users[].user.as"
            )
        return ()
    headers = [("impersonate-user", name)]
    headers += [("impersonate-uid", uid)] if uid else []
    headers += [("impersonate-group", group) for group in groups]
    for key, values in extra.items():
        header = f"impersonate-extra-{_ESCAPED_CHARACTER.sub(_escaped, str(key))}"
        headers += [(header, value) for value in _strings(user, values, f"as-user-extra.{key}")]
    for header, value in headers:
        if _CONTROL.search(value):
            raise UserError(f"kubeconfig {user.file}: {header}: {value!r} cannot be sent", hint="use one line of text")
    return tuple(headers)


def _strings(user: KubeconfigEntry, values: Any, field: str) -> list[str]:
    if not isinstance(values or [], list) or not all(isinstance(value, str) for value in values or ()):
        raise UserError(f"kubeconfig {user.file}: {field} must be a list of strings", hint="put each in quotes")
    return list(values or ())


def _escaped(character: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in character[0].encode())
