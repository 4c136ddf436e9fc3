"""Credentials of the API server for webhooks: the users of a kubeconfig, which are named after hosts.

Source: apiserver pkg/util/webhook/authentication.go of v1.36.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Iterator

from kubeloop.kube.auth.credentials import load_certificate
from kubeloop.kube.auth.kubeconfig import KubeconfigEntry, read_users
from kubeloop.kube.user_error import UserError


class WebhookUser:
    """The credentials of one user. Files are read for each request or connection."""

    def __init__(self, name: str, entry: KubeconfigEntry) -> None:
        self.name = name
        self._entry = entry

    def headers(self) -> dict[str, str]:
        """Return the headers of a request. Raises UserError if a file cannot be read."""
        entry = self._entry
        token = entry.text("token")
        if not token and (path := entry.text("tokenFile")):
            token = entry.read(path, "tokenFile").decode("latin-1").strip()
        if token:
            return {"authorization": f"Bearer {token}"}
        if (name := entry.text("username")) or entry.text("password"):
            both = f"{name}:{entry.text('password')}"
            return {"authorization": f"Basic {b64encode(both.encode()).decode()}"}
        return {}

    def load_certificate(self, tls: ssl.SSLContext) -> None:
        """Load the client certificate, if there is one. Raises UserError."""
        if certificate := self._entry.content("client-certificate"):
            load_certificate(tls, certificate, self._entry.content("client-key"), f"kubeconfig {self._entry.file}")


class WebhookCredentials:
    """The users of a kubeconfig. Raises UserError for a file that cannot be read, or with credentials of a plugin."""

    def __init__(self, path: str) -> None:
        users, self._current = read_users(path)
        for name, entry in users.items():
            for field in ("exec", "auth-provider"):
                if field in entry.values:
                    problem = f"kubeconfig {path}: user {name!r} has {field}, which is not supported for webhooks"
                    raise UserError(problem, hint="use a token or a client certificate")
        self._users = {name: WebhookUser(name, entry) for name, entry in users.items()}

    def user(self, host: str, port: int) -> WebhookUser | None:
        """Return the user of a webhook, None for requests without credentials."""
        return next(filter(None, (self._users.get(name) for name in self._names(host, port))), None)

    def _names(self, host: str, port: int) -> Iterator[str]:
        """Yield the names by which a user is found, the most specific one first."""
        targets = [f"{host}:{port}", *([host] if port == 443 else [])]
        for target in targets:
            yield target
            parts = target.split(".")
            yield from (f"*.{'.'.join(parts[index:])}" for index in range(1, len(parts)))
        yield "*"
        yield self._current
