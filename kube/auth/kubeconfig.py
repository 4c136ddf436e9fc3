"""Reading a kubeconfig: the cluster and the user of one context, out of one file or several.

Several files (KUBECONFIG) count as one: of entries with the same name, and of current-context, the first is taken.
Paths in a file are relative to its folder. Source: client-go tools/clientcmd. May import `yaml_text` and `errors`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kubeloop.kube.errors import UserError


class KubeconfigEntry(msgspec.Struct, frozen=True):
    """One cluster, user or context; `file`: the kubeconfig it stands in."""

    values: Mapping[str, Any]
    file: Path

    def text(self, field: str) -> str:
        """A field that is text, "" if it is not set. Raises UserError."""
        value = self.values.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise UserError(f"kubeconfig {self.file}: {field} must be text", hint="put it in quotes")
        return value

    def content(self, field: str) -> bytes:
        """What `field`-data holds in base64, or else the file that `field` names; b"" for neither. Raises UserError."""
        data = self.text(f"{field}-data")
        if data:
            try:
                return base64.b64decode("".join(data.split()), validate=True)
            except ValueError:
                raise UserError(f"kubeconfig {self.file}: {field}-data is not base64", hint="check the file") from None
        path = self.text(field)
        return self.read(path, field) if path else b""

    def read(self, path: str, field: str) -> bytes:
        """A file that `field` names. Raises UserError."""
        try:
            return (self.file.parent / Path(path).expanduser()).read_bytes()
        except OSError as error:
            raise UserError(
                f"kubeconfig {self.file}: {field}: cannot read {path}: {error.strerror}", hint="check the path"
            ) from None


class Kubeconfig(msgspec.Struct, frozen=True):
    """What one context of a kubeconfig says. `user` is empty where it names none."""

    context: str
    cluster: KubeconfigEntry
    user: KubeconfigEntry


def read_kubeconfig(paths: Sequence[str], context: str | None) -> Kubeconfig:
    """Cluster and user of `context` (default: the current one). Raises UserError, in one line, with what there is."""
    contents = [(Path(path), _content(path)) for path in paths]
    where = " or ".join(paths)
    contexts, clusters, users = (
        _entries(contents, plural, singular)
        for plural, singular in (("contexts", "context"), ("clusters", "cluster"), ("users", "user"))
    )
    choices = f"contexts there: {', '.join(contexts)}" if contexts else "it has no contexts"
    wanted = context or next(filter(None, (content.get("current-context") for _, content in contents)), "")
    if not wanted:
        raise UserError(f"kubeconfig {where} has no current-context", hint=choices)
    if wanted not in contexts:
        raise UserError(f"no context {wanted!r} in kubeconfig {where}", hint=choices)
    chosen = contexts[wanted]
    cluster, user = chosen.text("cluster"), chosen.text("user")
    if cluster not in clusters:
        named = f"names the cluster {cluster!r}, which is not there" if cluster else "names no cluster"
        raise UserError(f"kubeconfig {where}: context {wanted!r} {named}", hint=_choices("clusters", clusters))
    if user and user not in users:
        raise UserError(
            f"kubeconfig {where}: context {wanted!r} names the user {user!r}, who is not there",
            hint=_choices("users", users),
        )
    return Kubeconfig(wanted, clusters[cluster], users[user] if user else KubeconfigEntry({}, chosen.file))


def _choices(plural: str, entries: Mapping[str, KubeconfigEntry]) -> str:
    return f"{plural} there: {', '.join(entries)}" if entries else f"it has no {plural}"


def _content(path: str) -> dict[str, Any]:
    from kubeloop.kube import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read kubeconfig {path}: {error.strerror}", hint="check its permissions") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a kubeconfig, nor any text", hint="it is YAML in UTF-8") from None
    try:
        content, _ = yaml.read_first(text)
    except yaml.InvalidYaml as error:
        raise UserError(f"kubeconfig {path} is not valid YAML: {error.place}", hint="check the file") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a kubeconfig", hint="it has clusters, contexts and users")
    return content


def _entries(contents: Sequence[tuple[Path, dict[str, Any]]], plural: str, singular: str) -> dict[str, KubeconfigEntry]:
    """By name."""
    found: dict[str, KubeconfigEntry] = {}
    for path, content in contents:
        entries = content.get(plural) or []
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise UserError(f"{path} is not a kubeconfig", hint=f"its {plural} are a list of entries with names")
        for each in entries:
            values = each.get(singular) or {}
            if not isinstance(values, dict):
                raise UserError(f"kubeconfig {path}: {singular} {each.get('name')!r} is not a mapping", hint="check it")
            found.setdefault(str(each.get("name", "")), KubeconfigEntry(values, path))
    return found
