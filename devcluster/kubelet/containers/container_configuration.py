"""Errors of a v1.36 kubelet while it configures a container: environment, mounts, user. Pure functions.

A container with such an error waits with the reason CreateContainerConfigError. Sources: pkg/kubelet/kubelet_pods.go
(makeEnvironmentVariables, makeMounts), pkg/kubelet/container/helpers.go (ExpandContainerVolumeMounts),
pkg/kubelet/kuberuntime/security_context_others.go (verifyRunAsNonRoot).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kubeloop.devcluster.kubelet.referenced_objects import MissingObject, ReadObject, missing_for_environment
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.values import quantities

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")
# variables of Services are not computed, and count as set
_OF_SERVICE = re.compile(r"[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_.+)?)")


class NodeFacts(NamedTuple):
    """Values of the node and the pod's network for a container. allocatable: of the node, as quantities."""

    host_ip: str
    pod_ip: str
    allocatable: Mapping[str, Any]


def configuration_error(
    pod: JSON, container: JSON, read: ReadObject, facts: Callable[[], NodeFacts]
) -> MissingObject | None:
    """Return why the container cannot be configured, None if it can. `kind` is "" unless an object is missing."""
    if "env" in container or "envFrom" in container:
        missing = missing_for_environment(container, pod["metadata"]["namespace"], read)
        if missing is not None:
            return missing
        for variable in container.get("env") or ():
            if "valueFrom" in variable and (message := _resource_field_error(pod, variable["valueFrom"])):
                return MissingObject("", "", message)
    message = _mount_error(pod, container, read, facts) or _user_error(pod, container)
    return MissingObject("", "", message) if message else None


def _resource_field_error(pod: JSON, source: JSON | None) -> str:
    name = ((source or {}).get("resourceFieldRef") or {}).get("containerName")
    return f"container {name} not found" if name and _container(pod, name) is None else ""


def _container(pod: JSON, name: str) -> JSON | None:
    containers = (container for field in ("containers", "initContainers") for container in pod["spec"].get(field) or ())
    return next((container for container in containers if container["name"] == name), None)


def _mount_error(pod: JSON, container: JSON, read: ReadObject, facts: Callable[[], NodeFacts]) -> str:
    """Return the error of the first `subPathExpr` that has no valid value, "" if there is none."""
    expressions = [mount["subPathExpr"] for mount in container.get("volumeMounts") or () if mount.get("subPathExpr")]
    if not expressions:
        return ""
    variables = _environment(pod, container, read, facts())
    for expression in expressions:
        names = [match[1] for match in _REFERENCE.finditer(expression) if match[1] is not None]
        missing = {name for name in names if not variables.get(name) and not _OF_SERVICE.fullmatch(name)}
        path = _expand(expression, lambda name: variables.get(name, ""))
        if missing:
            return f"missing value for {', '.join(sorted(missing))}"
        if path.startswith("/"):
            return f"error SubPath `{path}` must not be an absolute path"
        if ".." in path.split("/"):
            return f"unable to provision SubPath `{path}`: must not contain '..'"
    return ""


def _expand(text: str, lookup: Callable[[str], str]) -> str:
    """Replace each $(NAME); $$ is a literal $. Source: third_party/forked/golang/expansion."""
    return _REFERENCE.sub(lambda match: "$" if match[1] is None else lookup(match[1]), text)


def _environment(pod: JSON, container: JSON, read: ReadObject, facts: NodeFacts) -> dict[str, str]:
    """Return the variables of a container whose environment has no error, without those of Services."""
    variables: dict[str, str] = {}
    for entry in container.get("envFrom") or ():
        if "configMapRef" in entry:
            values = _values(read("ConfigMap", entry["configMapRef"].get("name", "")))
        else:
            values = _values(read("Secret", (entry.get("secretRef") or {}).get("name", "")))
        variables |= {f"{entry.get('prefix', '')}{key}": value for key, value in values.items()}
    for variable in container.get("env") or ():
        value: str | None = variable.get("value") or ""
        if value:
            value = _expand(value, lambda name: variables.get(name, f"$({name})"))
        elif source := variable.get("valueFrom"):
            value = _value_from(source, pod, container, read, facts)
        if value is not None:
            variables[variable["name"]] = value
    return variables


def _values(obj: JSON | None) -> dict[str, str]:
    data = (obj or {}).get("data") or {}
    if obj is None or obj["kind"] == "ConfigMap":
        return dict(data)
    return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}


def _value_from(source: JSON, pod: JSON, container: JSON, read: ReadObject, facts: NodeFacts) -> str | None:
    """Return the value of a variable, None if an optional one is not set."""
    if field := source.get("fieldRef"):
        return _field(pod, field["fieldPath"], facts)
    if resource := source.get("resourceFieldRef"):
        return _resource(pod, container, resource, facts)
    if reference := source.get("configMapKeyRef"):
        return _values(read("ConfigMap", reference.get("name", ""))).get(reference["key"])
    if reference := source.get("secretKeyRef"):
        return _values(read("Secret", reference.get("name", ""))).get(reference["key"])
    return ""


def _field(pod: JSON, path: str, facts: NodeFacts) -> str:
    metadata, spec = pod["metadata"], pod["spec"]
    if match := _SUBSCRIPT.fullmatch(path):
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    match path:
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            return str(metadata.get(path.removeprefix("metadata."), ""))
        case "metadata.labels" | "metadata.annotations":
            values = metadata.get(path.removeprefix("metadata.")) or {}
            return "\n".join(f"{key}={quoted(value)}" for key, value in sorted(values.items()))
        case "spec.nodeName" | "spec.serviceAccountName":
            return str(spec.get(path.removeprefix("spec."), ""))
        case "status.hostIP" | "status.hostIPs":
            return facts.host_ip
        case "status.podIP" | "status.podIPs":
            return facts.pod_ip
    return ""


def _resource(pod: JSON, container: JSON, selector: JSON, facts: NodeFacts) -> str:
    """Return the amount in units of the divisor, rounded up; a missing limit is what the node has."""
    part, _, name = selector["resource"].partition(".")
    named = _container(pod, selector["containerName"]) if selector.get("containerName") else container
    amount = (((named or {}).get("resources") or {}).get(part) or {}).get(name)
    if amount is None:
        amount = facts.allocatable.get(name, "0") if part == "limits" else "0"
    divisor = str(selector.get("divisor") or "1")
    read = quantities.milli_value if name == "cpu" else quantities.value
    return str(-(-read(amount) // max(1, read("1" if divisor == "0" else divisor))))


def _user_error(pod: JSON, container: JSON) -> str:
    """Return why the user of the container is refused, "" if it is not. The user of an image is not known."""
    own, of_pod = container.get("securityContext"), pod["spec"].get("securityContext")
    if not own and not of_pod:
        return ""
    context = {**(of_pod or {}), **{name: value for name, value in (own or {}).items() if value is not None}}
    if not context.get("runAsNonRoot") or context.get("runAsUser") != 0:
        return ""
    metadata = pod["metadata"]
    key = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
    return f"container's runAsUser breaks non-root policy (pod: {quoted(key)}, container: {container['name']})"
