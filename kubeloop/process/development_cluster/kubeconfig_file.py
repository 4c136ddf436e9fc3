"""Kubeconfig files of development clusters."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import msgspec

from kubeloop.devcluster.storage.private_files import write_private_file
from kubeloop.kube.user_error import UserError

_NAME = "kubeloop"
_NEW_FILE = f"""\
apiVersion: v1
kind: Config
clusters:
- name: {_NAME}
  cluster:
    server: {{server}}
    certificate-authority-data: {{certificate}}
users:
- name: {_NAME}
  user:
    token: {{token}}
contexts:
- name: {_NAME}
  context:
    cluster: {_NAME}
    user: {_NAME}
    namespace: default
current-context: {_NAME}
"""


def write_kubeconfig(path: Path, *, server: str, token: str, certificate_pem: str) -> None:
    """Write `path`, or the file that it links to, with mode 0600, replacing the file atomically.

    Other clusters, users and contexts in the file are preserved; the current context becomes kubeloop's, as with kind.
    Raises UserError if the file is not a kubeconfig or cannot be written.
    """
    certificate = base64.b64encode(certificate_pem.encode()).decode()
    target = Path(os.path.realpath(path))
    if os.path.exists(path):
        text = _extended(path, {"server": server, "certificate-authority-data": certificate}, token)
    else:  # without the import of PyYAML, a twentieth of the start-up of `kubeloop apiserver`
        quoted_token = msgspec.json.encode(token).decode()
        text = _NEW_FILE.format(server=server, certificate=certificate, token=quoted_token)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_private_file(target, text.encode())
    except OSError as error:
        raise UserError(f"cannot write the kubeconfig {path}: {error.strerror}", hint="--kubeconfig PATH") from None


def kubeconfig_document(*, server: str, token: str, certificate: Path, namespace: str) -> dict[str, Any]:
    """Return a kubeconfig with one cluster, user and context.

    It refers to the certificate's file: from an inline certificate, many libraries create a file that they never
    delete.
    """
    config = _new()
    _put(config, "clusters", "cluster", {"server": server, "certificate-authority": str(certificate)})
    _put(config, "users", "user", {"token": token})
    _put(config, "contexts", "context", {"cluster": _NAME, "user": _NAME, "namespace": namespace})
    return config | {"current-context": _NAME}


def _new() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []}


def _extended(path: Path, cluster: dict[str, str], token: str) -> str:
    """Return the text of an existing file with our cluster, user and context."""
    from kubeloop.kube import yaml

    try:
        config, _ = yaml.read_first(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.InvalidYaml):
        config = "unreadable"
    if config is not None and not _is_kubeconfig(config):
        raise UserError(f"{path} exists and is not a kubeconfig", hint="choose another file with --kubeconfig")
    config = _new() | (config or {})
    _put(config, "clusters", "cluster", cluster)
    _put(config, "users", "user", {"token": token})
    _put(config, "contexts", "context", {"cluster": _NAME, "user": _NAME, "namespace": "default"})
    config["current-context"] = _NAME
    return yaml.write(config, sort_keys=False)


def _is_kubeconfig(content: Any) -> bool:
    if not isinstance(content, dict) or content.get("kind") != "Config":
        return False
    lists = [content.get(plural) or [] for plural in ("clusters", "users", "contexts")]
    return all(isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries) for entries in lists)


def _put(config: dict[str, Any], plural: str, singular: str, value: dict[str, Any]) -> None:
    others = [entry for entry in config[plural] or [] if entry.get("name") != _NAME]
    config[plural] = [*others, {"name": _NAME, singular: value}]
