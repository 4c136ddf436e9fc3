"""The file of `--admission-control-config-file`: configuration of admission plugins.

Relative paths are those of the file's folder. Sources: apiserver pkg/admission/config.go, the plugins' configuration
types of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from kubeloop.kube.json_object import JSON
from kubeloop.kube.user_error import UserError

_OPTION = "admission-control-config-file"
_HINT = (
    f"--{_OPTION} takes an AdmissionConfiguration: https://kubernetes.io/docs/reference/config-api/apiserver-config.v1/"
)
_API_VERSIONS = ("apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1")
_LIMIT_TYPES = ("Namespace", "Server", "SourceAndObject", "User")


def read_plugin_configuration(path: Path, plugins: Collection[str]) -> dict[str, JSON]:
    """Return the configuration of these plugins by name; that of others is ignored. Raises UserError."""
    document = _document(path)
    # the form before AdmissionConfiguration
    if isinstance(document, dict) and "podNodeSelectorPluginConfig" in document:
        entries: Any = [{"name": "PodNodeSelector", "configuration": document}]
    elif not isinstance(document, dict) or document.get("kind") != "AdmissionConfiguration":
        raise UserError(f"{_OPTION}: {path} is no AdmissionConfiguration", hint=_HINT)
    elif document.get("apiVersion") not in _API_VERSIONS:
        problem = f"{_OPTION}: {path} has the apiVersion {document.get('apiVersion')!r}"
        raise UserError(problem, hint=f"use {_API_VERSIONS[0]}")
    else:
        entries = document.get("plugins") or []
    configuration: dict[str, JSON] = {}
    for entry in entries:
        name = str(entry.get("name")) if isinstance(entry, dict) else ""
        if name not in plugins or name in configuration:
            continue
        value = entry.get("configuration")
        if value is None and entry.get("path"):
            value = _document(path.parent / entry["path"])
        if value is not None:
            configuration[name] = _checked(name, value)
    return configuration


def _document(path: Path) -> Any:
    from kubeloop.kube.yaml import InvalidYaml, read_first  # most servers have no such file

    try:
        return read_first(path.read_bytes())[0]
    except OSError as error:
        problem = f"{_OPTION}: cannot read {path}: {error.strerror}"
        raise UserError(problem, hint="name a readable file") from None
    except InvalidYaml as error:
        raise UserError(f"{_OPTION}: {path} is not valid YAML: {error}", hint=_HINT) from None


def _checked(plugin: str, value: Any) -> JSON:
    """Return the configuration of a plugin. Raises UserError if it is invalid or not supported."""
    if plugin not in _CHECKS:
        problem = f"{_OPTION}: kubeloop has no configuration of the plugin {plugin}"
        raise UserError(problem, hint=f"leave it out; there are those of {', '.join(_CHECKS)}")
    kind, check = _CHECKS[plugin]
    if not isinstance(value, dict) or (kind and (value.get("apiVersion"), value.get("kind")) != kind):
        expected = f"; it must have apiVersion {kind[0]} and kind {kind[1]}" if kind else ""
        raise UserError(f"{_OPTION}: the configuration of {plugin} is invalid{expected}", hint=_HINT)
    if problems := list(check(value)):
        raise UserError(f"{_OPTION}: the configuration of {plugin} is invalid: {'; '.join(problems)}", hint=_HINT)
    return value


def _check_webhooks(value: JSON) -> Iterator[str]:
    path = value.get("kubeConfigFile")
    if path and not Path(path).is_absolute():
        yield f'kubeConfigFile: Invalid value: "{path}": must be an absolute file path'


def _check_node_selectors(value: JSON) -> Iterator[str]:
    selectors = value.get("podNodeSelectorPluginConfig")
    if selectors is not None and not _is_map_of_texts(selectors):
        yield "podNodeSelectorPluginConfig must be a map of selectors by namespace"


def _is_map_of_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _check_tolerations(value: JSON) -> Iterator[str]:
    for field in ("default", "whitelist"):
        tolerations = value.get(field) or []
        if not isinstance(tolerations, list) or not all(isinstance(entry, dict) for entry in tolerations):
            yield f"{field} must be a list of tolerations"


def _check_limits(value: JSON) -> Iterator[str]:
    limits = value.get("limits")
    if not isinstance(limits, list) or not limits:
        yield "limits: Invalid value: must not be empty"
        return
    for index, limit in enumerate(limits):
        if limit.get("type") not in _LIMIT_TYPES:
            yield f"limits[{index}].type: Unsupported value: supported values: {', '.join(_LIMIT_TYPES)}"
        for field in ("burst", "qps"):
            number = limit.get(field, 0)
            if type(number) is not int or number <= 0:
                yield f"limits[{index}].{field}: Invalid value: {number}: must be positive"
        size = limit.get("cacheSize", 0)
        if type(size) is not int or size < 0:
            yield f"limits[{index}].cacheSize: Invalid value: {size}: must not be negative"


_WEBHOOKS = ("apiserver.config.k8s.io/v1", "WebhookAdmissionConfiguration"), _check_webhooks
_CHECKS: dict[str, tuple[tuple[str, str] | None, Callable[[JSON], Iterator[str]]]] = {
    "MutatingAdmissionWebhook": _WEBHOOKS,
    "ValidatingAdmissionWebhook": _WEBHOOKS,
    "PodNodeSelector": (None, _check_node_selectors),
    "PodTolerationRestriction": (
        ("podtolerationrestriction.admission.k8s.io/v1alpha1", "Configuration"),
        _check_tolerations,
    ),
    "EventRateLimit": (("eventratelimit.admission.k8s.io/v1alpha1", "Configuration"), _check_limits),
}
"""apiVersion and kind of the configuration of each plugin, and a function that yields the problems of one."""
