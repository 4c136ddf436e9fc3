"""Acting as somebody else: the headers that a kubeconfig's `as`, `as-uid`, `as-groups` and `as-user-extra` stand for.

Source: client-go transport/round_trippers.go. May import `errors` and `kubeconfig`.
"""

from __future__ import annotations

import re
from typing import Any

from kubeloop.kube.auth.kubeconfig import KubeconfigEntry
from kubeloop.kube.errors import UserError

Headers = tuple[tuple[str, str], ...]
"""Names and values; a name may stand there more than once."""

_NOT_IN_A_NAME = re.compile(r"[^!#$&'*+\-.^_`|~0-9A-Za-z]")  # what no header's name may have, and "%", which escapes it
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def impersonation_headers(user: KubeconfigEntry) -> Headers:
    """What tells the server whom the user of a kubeconfig acts as; empty if as nobody else. Raises UserError."""
    name, uid = user.text("as"), user.text("as-uid")
    groups = _texts(user, user.values.get("as-groups"), "as-groups")
    extra = user.values.get("as-user-extra") or {}
    if not isinstance(extra, dict):
        raise UserError(f"kubeconfig {user.file}: as-user-extra is not a mapping", hint="each key has a list of texts")
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
        header = f"impersonate-extra-{_NOT_IN_A_NAME.sub(_escaped, str(key))}"
        headers += [(header, value) for value in _texts(user, values, f"as-user-extra.{key}")]
    for header, value in headers:
        if _CONTROL.search(value):
            raise UserError(
                f"kubeconfig {user.file}: {header}: {value!r} cannot be sent", hint="it is one line of text"
            )
    return tuple(headers)


def _texts(user: KubeconfigEntry, values: Any, field: str) -> list[str]:
    if not isinstance(values or [], list) or not all(isinstance(each, str) for each in values or ()):
        raise UserError(f"kubeconfig {user.file}: {field} must be a list of texts", hint="put each in quotes")
    return list(values or ())


def _escaped(character: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in character[0].encode())
