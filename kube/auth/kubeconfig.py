"""Kubeconfig reader: the cluster and the user of one context, from one file or several.

Several files (KUBECONFIG) are merged: of entries with the same name, and of current-context, the first counts. Paths in
a file are relative to its folder. Source: client-go tools/clientcmd. Imports msgspec, `yaml` and `user_error`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kubeloop.kube.user_error import UserError


class KubeconfigEntry(msgspec.Struct, frozen=True):
    """One cluster, user or context; `file`: the kubeconfig that contains it."""

    values: Mapping[str, Any]
    file: Path

    def text(self, field: str) -> str:
        """Return a string field, "" if it is not set. Raises UserError."""
        value = self.values.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise UserError(f"kubeconfig {self.file}: {field} must be a string", hint="put it in quotes")
        return value

    def content(self, field: str) -> bytes:
        """Return `field`-data, decoded from base64, or the content of file `field`, or b"". Raises UserError."""
        data = self.text(f"{field}-data")
        if data:
            try:
                return base64.b64decode("".join(data.split()), validate=True)
            except ValueError:
                raise UserError(f"kubeconfig {self.file}: {field}-data is not base64", hint="check the file") from None
        path = self.text(field)
        return self.read(path, field) if path else b""

    def read(self, path: str, field: str) -> bytes:
        """Read the file that `field` names. Raises UserError."""
        try:
            return (self.file.parent / Path(path).expanduser()).read_bytes()
        except OSError as error:
            raise UserError(
                f"kubeconfig {self.file}: {field}: cannot read {path}: {error.strerror}", hint="check the path"
            ) from None


class Kubeconfig(msgspec.Struct, frozen=True):
    """Cluster and user of one context. `user` is empty if the context has none."""

    context: str
    cluster: KubeconfigEntry
    user: KubeconfigEntry


def read_kubeconfig(paths: Sequence[str], context: str | None) -> Kubeconfig:
    """Return cluster and user of `context` (default: the current one). Raises UserError, which lists the choices."""
    contents = [(Path(path), _content(path)) for path in paths]
    where = " or ".join(paths)
    contexts, clusters, users = (
        _entries(contents, plural, singular)
        for plural, singular in (("contexts", "context"), ("clusters", "cluster"), ("users", "user"))
    )
    choices = f"contexts there: {', '.join(contexts)}" if contexts else "it has no contexts"
    context_name = context or next(filter(None, (content.get("current-context") for _, content in contents)), "")
    if not context_name:
        raise UserError(f"kubeconfig {where} has no current-context", hint=choices)
    if context_name not in contexts:
        raise UserError(f"no context {context_name!r} in kubeconfig {where}", hint=choices)
    selected = contexts[context_name]
    cluster, user = selected.text("cluster"), selected.text("user")
    if cluster not in clusters:
        named = f"names the cluster {cluster!r}, which does not exist" if cluster else "names no cluster"
        raise UserError(f"kubeconfig {where}: context {context_name!r} {named}", hint=_choices("clusters", clusters))
    if user and user not in users:
        raise UserError(
            f"kubeconfig {where}: context {context_name!r} names the user {user!r}, which does not exist",
            hint=_choices("users", users),
        )
    return Kubeconfig(context_name, clusters[cluster], users[user] if user else KubeconfigEntry({}, selected.file))


def read_users(path: str) -> tuple[dict[str, KubeconfigEntry], str]:
    """Return the users of a file by name, and the name of the current context's user, "" for none. Raises UserError."""
    content = _content(path)
    users, contexts = (
        _entries([(Path(path), content)], plural, singular)
        for plural, singular in (("users", "user"), ("contexts", "context"))
    )
    current = contexts.get(str(content.get("current-context") or ""))
    return users, "" if current is None else current.text("user")


def context_names(paths: Sequence[str]) -> list[str]:
    """Return the names of the contexts. Raises UserError."""
    return [*_entries([(Path(path), _content(path)) for path in paths], "contexts", "context")]


def _choices(plural: str, entries: Mapping[str, KubeconfigEntry]) -> str:
    return f"{plural} there: {', '.join(entries)}" if entries else f"it has no {plural}"


def _content(path: str) -> dict[str, Any]:
    from kubeloop.kube import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read kubeconfig {path}: {error.strerror}", hint="check its permissions") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a kubeconfig, nor a text file", hint="it is YAML in UTF-8") from None
    try:
        content, _ = yaml.read_first(text)
    except yaml.InvalidYaml as error:
        raise UserError(f"kubeconfig {path} is not valid YAML: {error.place}", hint="check the file") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a kubeconfig", hint="it has clusters, contexts and users")
    return content


def _entries(contents: Sequence[tuple[Path, dict[str, Any]]], plural: str, singular: str) -> dict[str, KubeconfigEntry]:
    """Return the entries of a kind by name."""
    by_name: dict[str, KubeconfigEntry] = {}
    for path, content in contents:
        entries = content.get(plural) or []
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise UserError(f"{path} is not a kubeconfig", hint=f"its {plural} are a list of entries with names")
        for entry in entries:
            values = entry.get(singular) or {}
            if not isinstance(values, dict):
                raise UserError(
                    f"kubeconfig {path}: {singular} {entry.get('name')!r} is not a mapping", hint="check it"
                )
            by_name.setdefault(str(entry.get("name", "")), KubeconfigEntry(values, path))
    return by_name
