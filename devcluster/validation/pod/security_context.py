"""Validation of security contexts of pods and containers, and of the fields that each operating system allows.

Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kubeloop.devcluster.validation.common.error_list import ErrorList, validate_local_path
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_subdomain

_ID_RANGE = f"must be between 0 and {0x7FFFFFFF}, inclusive"
_WINDOWS_POD = "cannot be set for a windows pod"


def every_container(path: str, spec: JSON) -> list[tuple[str, JSON]]:
    """Return the containers with their paths, in the order of VisitContainersWithPath."""
    return [
        (f"{path}.{kind}[{i}]", container)
        for kind in ("initContainers", "containers", "ephemeralContainers")
        for i, container in enumerate(spec.get(kind) or ())
    ]


def _validate_ids(errors: ErrorList, path: str, context: JSON, names: tuple[str, ...]) -> None:
    for name in names:
        value = context.get(name)
        if value is not None and not 0 <= value <= 0x7FFFFFFF:
            errors.invalid(f"{path}.{name}", value, _ID_RANGE)


def validate_container_security_context(errors: ErrorList, path: str, context: JSON, *, host_users: bool) -> None:
    """Validate a container's securityContext. host_users: the container runs in the node's user namespace."""
    _validate_ids(errors, path, context, ("runAsUser", "runAsGroup"))
    errors.one_of(f"{path}.procMount", context.get("procMount"), ("Default", "Unmasked"))
    if context.get("procMount") == "Unmasked" and host_users:
        errors.invalid(f"{path}.procMount", "Unmasked", "`hostUsers` must be false to use `Unmasked`")
    _validate_seccomp(errors, f"{path}.seccompProfile", context.get("seccompProfile"))
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            errors.invalid(path, context, detail, "core/v1.SecurityContext")
        if "CAP_SYS_ADMIN" in (context.get("capabilities", {}).get("add") or ()):
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            errors.invalid(path, context, detail, "core/v1.SecurityContext")
    _validate_windows_options(errors, f"{path}.windowsOptions", context.get("windowsOptions"))
    validate_app_armor(errors, f"{path}.appArmorProfile", context.get("appArmorProfile"))


def validate_pod_security_context(errors: ErrorList, path: str, spec: JSON) -> None:
    """Validate a pod's securityContext, with hostPID and the like, which belong to it in the internal version."""
    context = spec.get("securityContext") or {}
    _validate_ids(errors, path, context, ("fsGroup", "runAsUser", "runAsGroup"))
    for i, value in enumerate(context.get("supplementalGroups") or ()):
        if not 0 <= value <= 0x7FFFFFFF:
            errors.invalid(f"{path}.supplementalGroups[{i}]", value, _ID_RANGE)
    if spec.get("hostPID") and spec.get("shareProcessNamespace"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.invalid(f"{path}.shareProcessNamespace", True, detail)
    _validate_sysctls(errors, f"{path}.sysctls", spec, context)
    errors.one_of(f"{path}.fsGroupChangePolicy", context.get("fsGroupChangePolicy"), ("Always", "OnRootMismatch"))
    _validate_seccomp(errors, f"{path}.seccompProfile", context.get("seccompProfile"))
    _validate_windows_options(errors, f"{path}.windowsOptions", context.get("windowsOptions"))
    validate_app_armor(errors, f"{path}.appArmorProfile", context.get("appArmorProfile"))
    errors.one_of(f"{path}.supplementalGroupsPolicy", context.get("supplementalGroupsPolicy"), ("Merge", "Strict"))
    policies = ("MountOption", "Recursive") if errors.gates.enabled("SELinuxMount") else ("Recursive",)
    errors.one_of(f"{path}.seLinuxChangePolicy", context.get("seLinuxChangePolicy"), policies)


_SYSCTL_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = rf"^({_SYSCTL_SEGMENT}[\./])*{_SYSCTL_SEGMENT}$"
_IPC_SYSCTLS = ("kernel.shm", "kernel.msg", "fs.mqueue.")


def _validate_sysctls(errors: ErrorList, path: str, spec: JSON, context: JSON) -> None:
    names = set()
    for i, sysctl in enumerate(context.get("sysctls") or ()):
        where, name = f"{path}[{i}].name", sysctl.get("name", "")
        if not name:
            errors.required(where)
        elif len(name) > 253 or not re.match(_SYSCTL, name):
            errors.invalid(where, name, f"must have at most 253 characters and match regex {_SYSCTL}")
        elif name in names:
            errors.duplicate(where, name)
        dotted = name.replace("/", ".")
        if spec.get("hostNetwork") and dotted.startswith("net."):
            errors.invalid(where, name, "may not be specified when 'hostNetwork' is true")
        elif spec.get("hostIPC") and (dotted == "kernel.sem" or dotted.startswith(_IPC_SYSCTLS)):
            errors.invalid(where, name, "may not be specified when 'hostIPC' is true")
        names.add(name)


def _validate_seccomp(errors: ErrorList, path: str, profile: JSON | None) -> None:
    if profile is None:
        return
    kind, local = profile.get("type", ""), profile.get("localhostProfile")
    supported = ("Localhost", "RuntimeDefault", "Unconfined")
    errors.required_one_of(f"{path}.type", kind, supported, "type is required when seccompProfile is set")
    if kind == "Localhost":
        if local is None:
            errors.required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost")
        else:
            validate_local_path(errors, f"{path}.localhostProfile", local)
    elif local is not None:
        detail = "can only be set when seccomp type is Localhost"
        errors.invalid(f"{path}.localhostProfile", profile, detail, "core/v1.SeccompProfile")


def validate_app_armor(errors: ErrorList, path: str, profile: JSON | None) -> None:
    if profile is None:
        return
    kind, local = profile.get("type", ""), profile.get("localhostProfile")
    where, needed = f"{path}.localhostProfile", "must be set when AppArmor type is Localhost"
    if kind == "Localhost":
        if local is None:
            errors.required(where, needed)
            return
        if local.strip() != local:
            errors.invalid(where, local, "must not be padded with whitespace")
        elif not local:
            errors.required(where, needed)
        errors.at_most_bytes(where, local, 4095)
    elif kind in ("RuntimeDefault", "Unconfined"):
        if local is not None:
            errors.invalid(where, local, "can only be set when AppArmor type is Localhost")
    elif not kind:
        errors.required(f"{path}.type", "type is required when appArmorProfile is set")
    else:
        errors.not_supported(f"{path}.type", kind, ("Localhost", "RuntimeDefault", "Unconfined"))


def _validate_windows_options(errors: ErrorList, path: str, options: JSON | None) -> None:
    if not options:
        return
    name, spec = options.get("gmsaCredentialSpecName"), options.get("gmsaCredentialSpec")
    errors.check(f"{path}.gmsaCredentialSpecName", name, dns_subdomain)
    if spec == "":
        errors.invalid(f"{path}.gmsaCredentialSpec", spec, "gmsaCredentialSpec cannot be an empty string")
    elif spec is not None and len(spec.encode()) > 64 << 10:
        errors.invalid(f"{path}.gmsaCredentialSpec", spec, "gmsaCredentialSpec size must be under 64 KiB")
    errors.check(f"{path}.runAsUserName", options.get("runAsUserName"), _windows_user_problems)


_NETBIOS = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DOMAIN_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DOMAIN = re.compile(rf"{_DOMAIN_LABEL}(?:\.{_DOMAIN_LABEL})*")


def _windows_user_problems(text: str) -> Iterator[str]:
    """Yield the problems of a Windows user name, "DOMAIN\\USER" or "USER"."""
    if not text:
        yield "runAsUserName cannot be an empty string"
    elif re.search(r"[\x00-\x1f\x7f]", text):
        yield "runAsUserName cannot contain control characters"
    elif text.count("\\") > 1:
        yield "runAsUserName cannot contain more than one backslash"
    else:
        domain, backslash, user = text.rpartition("\\")
        if len(domain) >= 256:
            yield "runAsUserName's Domain length must be under 256 characters"
        if backslash and not (_NETBIOS.fullmatch(domain) or _DOMAIN.fullmatch(domain)):
            yield "runAsUserName's Domain doesn't match the NetBios nor the DNS format"
        if not user:
            yield "runAsUserName's User cannot be empty"
        elif len(user) > 104:
            yield "runAsUserName's User length must not be longer than 104 characters"
        if re.fullmatch(r"[. ]+", user):
            yield "runAsUserName's User cannot contain only periods or spaces"
        if re.search(r'["/\\:;|=,+*?<>@\[\]]', user):
            yield "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"


def _windows_options(context: JSON | None) -> JSON:
    return (context or {}).get("windowsOptions") or {}


def validate_host_processes(errors: ErrorList, path: str, spec: JSON) -> None:
    """Require HostProcess for all Windows containers of a pod or for none, and the host's network with it."""
    pod_value = _windows_options(spec.get("securityContext")).get("hostProcess")
    count = host_process_count = 0
    for where, container in every_container(path, spec):
        count += 1
        container_value = _windows_options(container.get("securityContext")).get("hostProcess")
        if pod_value is not None and container_value is not None and pod_value != container_value:
            shown_value = "true" if pod_value else "false"
            detail = f"pod hostProcess value must be identical if both are specified, was {shown_value}"
            errors.invalid(f"{where}.securityContext.windowsOptions.hostProcess", container_value, detail)
        host_process_count += bool(pod_value if container_value is None else container_value)
    if not host_process_count:
        return
    if host_process_count != count:
        detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        errors.invalid(path, "", detail)
    if not spec.get("hostNetwork"):
        detail = "hostNetwork must be true if pod contains any hostProcess containers"
        errors.invalid(f"{path}.hostNetwork", False, detail)


def validate_host_users(errors: ErrorList, path: str, spec: JSON) -> None:
    """Reject the host's other namespaces, and volume devices, for a pod with a user namespace of its own."""
    if spec.get("hostUsers") is not False:
        return
    detail = "when `hostUsers` is false"
    for name, message_field in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if name == "hostNetwork" and errors.gates.enabled("UserNamespacesHostNetworkSupport"):
            continue
        if spec.get(name):
            errors.forbidden(f"{path}.{message_field}", detail)
    for where, container in every_container(path, spec):
        if container.get("volumeDevices"):
            errors.forbidden(f"{where}.volumeDevices", detail)


_FORBIDDEN_ON_WINDOWS = (
    "securityContext.appArmorProfile", "securityContext.seLinuxOptions", "hostUsers", "hostPID", "hostIPC",
    "securityContext.seccompProfile", "securityContext.fsGroup", "securityContext.fsGroupChangePolicy",
    "securityContext.sysctls", "shareProcessNamespace", "securityContext.runAsUser", "securityContext.runAsGroup",
    "securityContext.supplementalGroups", "securityContext.supplementalGroupsPolicy",
    "securityContext.seLinuxChangePolicy",
)  # fmt: skip
_FORBIDDEN_IN_WINDOWS_CONTAINERS = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
    "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
)  # fmt: skip
_FALSE_MEANS_UNSET = ("hostPID", "hostIPC")


def validate_operating_system(errors: ErrorList, path: str, spec: JSON) -> None:
    """Validate spec.os.name, and reject the fields that the operating system does not support."""
    name = (spec.get("os") or {}).get("name", "")
    if not name:
        errors.required(f"{path}.os.name")
    elif name not in ("linux", "windows"):
        errors.not_supported(f"{path}.os", name, ("linux", "windows"))
    elif name == "linux":
        detail = "windows options cannot be set for a linux pod"
        if (spec.get("securityContext") or {}).get("windowsOptions") is not None:
            errors.forbidden(f"{path}.securityContext.windowsOptions", detail)
        for where, container in every_container(path, spec):
            if container.get("securityContext", {}).get("windowsOptions") is not None:
                errors.forbidden(f"{where}.securityContext.windowsOptions", detail)
    else:
        for field in _FORBIDDEN_ON_WINDOWS:
            holder, _, leaf = field.rpartition(".")
            value = (spec.get(holder) or {} if holder else spec).get(leaf)
            if value is not None and not (leaf in _FALSE_MEANS_UNSET and not value):
                errors.forbidden(f"{path}.{field}", _WINDOWS_POD)
        for where, container in every_container(path, spec):
            for leaf in _FORBIDDEN_IN_WINDOWS_CONTAINERS:
                if container.get("securityContext", {}).get(leaf) is not None:
                    errors.forbidden(f"{where}.securityContext.{leaf}", _WINDOWS_POD)
