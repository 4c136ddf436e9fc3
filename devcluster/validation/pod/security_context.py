"""Security contexts of pods and containers, and what they may hold on each operating system.

Source: pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kubeloop.devcluster.api.name_checks import dns_subdomain
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.field_checks import validate_local_path
from kubeloop.kube.json_object import JSON

_ID_RANGE = f"must be between 0 and {0x7FFFFFFF}, inclusive"
_WINDOWS_POD = "cannot be set for a windows pod"


def every_container(path: str, spec: JSON) -> Iterator[tuple[str, JSON]]:
    """Each container with its path, in the order in which Kubernetes visits them."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for i, container in enumerate(spec.get(kind) or ()):
            yield f"{path}.{kind}[{i}]", container


def _validate_ids(errors: ErrorList, path: str, context: JSON, names: tuple[str, ...]) -> None:
    for name in names:
        value = context.get(name)
        if value is not None and not 0 <= value <= 0x7FFFFFFF:
            errors.invalid(f"{path}.{name}", value, _ID_RANGE)


def _validate_one_of(errors: ErrorList, path: str, context: JSON, name: str, supported: tuple[str, ...]) -> None:
    if context.get(name) is not None and context[name] not in supported:
        errors.not_supported(f"{path}.{name}", context[name], supported)


def validate_container_security_context(errors: ErrorList, path: str, context: JSON, *, host_users: bool) -> None:
    """securityContext of a container. host_users: it shares the users of its node."""
    _validate_ids(errors, path, context, ("runAsUser", "runAsGroup"))
    _validate_one_of(errors, path, context, "procMount", ("Default", "Unmasked"))
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


def validate_pod_security_context(errors: ErrorList, path: str, spec: JSON, *, any_policy: bool = False) -> None:
    """securityContext of a pod; hostPID and its like, which stand beside it, belong to it inside Kubernetes.

    any_policy: seLinuxChangePolicy may be MountOption, which else needs a feature that is off.
    """
    context = spec.get("securityContext") or {}
    _validate_ids(errors, path, context, ("fsGroup", "runAsUser", "runAsGroup"))
    for i, value in enumerate(context.get("supplementalGroups") or ()):
        if not 0 <= value <= 0x7FFFFFFF:
            errors.invalid(f"{path}.supplementalGroups[{i}]", value, _ID_RANGE)
    if spec.get("hostPID") and spec.get("shareProcessNamespace"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.invalid(f"{path}.shareProcessNamespace", True, detail)
    _validate_sysctls(errors, f"{path}.sysctls", spec, context)
    _validate_one_of(errors, path, context, "fsGroupChangePolicy", ("Always", "OnRootMismatch"))
    _validate_seccomp(errors, f"{path}.seccompProfile", context.get("seccompProfile"))
    _validate_windows_options(errors, f"{path}.windowsOptions", context.get("windowsOptions"))
    validate_app_armor(errors, f"{path}.appArmorProfile", context.get("appArmorProfile"))
    _validate_one_of(errors, path, context, "supplementalGroupsPolicy", ("Merge", "Strict"))
    policies = ("MountOption", "Recursive") if any_policy else ("Recursive",)
    _validate_one_of(errors, path, context, "seLinuxChangePolicy", policies)


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
    if not kind:
        errors.required(f"{path}.type", "type is required when seccompProfile is set")
    elif kind not in supported:
        errors.not_supported(f"{path}.type", kind, supported)
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
        if len(local.encode()) > 4095:
            errors.too_long(where, 4095)
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
    if name is not None:
        errors.invalid_each(f"{path}.gmsaCredentialSpecName", name, dns_subdomain(name))
    if spec == "":
        errors.invalid(f"{path}.gmsaCredentialSpec", spec, "gmsaCredentialSpec cannot be an empty string")
    elif spec is not None and len(spec.encode()) > 64 << 10:
        errors.invalid(f"{path}.gmsaCredentialSpec", spec, "gmsaCredentialSpec size must be under 64 KiB")
    if options.get("runAsUserName") is not None:
        errors.invalid_each(f"{path}.runAsUserName", options["runAsUserName"], _user_name(options["runAsUserName"]))


_NETBIOS = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DOMAIN_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DOMAIN = re.compile(rf"{_DOMAIN_LABEL}(?:\.{_DOMAIN_LABEL})*")


def _user_name(text: str) -> Iterator[str]:
    """What is wrong with a Windows user, "DOMAIN\\USER" or "USER"."""
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


def _windows_options_of(context: JSON | None) -> JSON:
    return (context or {}).get("windowsOptions") or {}


def validate_host_processes(errors: ErrorList, path: str, spec: JSON) -> None:
    """Windows' hostProcess containers: all of a pod or none, and on the host's network."""
    of_pod = _windows_options_of(spec.get("securityContext")).get("hostProcess")
    count = privileged = 0
    for where, container in every_container(path, spec):
        count += 1
        own = _windows_options_of(container.get("securityContext")).get("hostProcess")
        if of_pod is not None and own is not None and of_pod != own:
            told = "true" if of_pod else "false"
            detail = f"pod hostProcess value must be identical if both are specified, was {told}"
            errors.invalid(f"{where}.securityContext.windowsOptions.hostProcess", own, detail)
        privileged += bool(of_pod if own is None else own)
    if not privileged:
        return
    if privileged != count:
        detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        errors.invalid(path, "", detail)
    if not spec.get("hostNetwork"):
        detail = "hostNetwork must be true if pod contains any hostProcess containers"
        errors.invalid(f"{path}.hostNetwork", False, detail)


def validate_host_users(errors: ErrorList, path: str, spec: JSON) -> None:
    """A pod with users of its own takes no other namespace of its node."""
    if spec.get("hostUsers") is not False:
        return
    detail = "when `hostUsers` is false"
    for name, told in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if spec.get(name):
            errors.forbidden(f"{path}.{told}", detail)
    for where, container in every_container(path, spec):
        if container.get("volumeDevices"):
            errors.forbidden(f"{where}.volumeDevices", detail)


_NOT_ON_WINDOWS = (
    "securityContext.appArmorProfile", "securityContext.seLinuxOptions", "hostUsers", "hostPID", "hostIPC",
    "securityContext.seccompProfile", "securityContext.fsGroup", "securityContext.fsGroupChangePolicy",
    "securityContext.sysctls", "shareProcessNamespace", "securityContext.runAsUser", "securityContext.runAsGroup",
    "securityContext.supplementalGroups", "securityContext.supplementalGroupsPolicy",
    "securityContext.seLinuxChangePolicy",
)  # fmt: skip
_NOT_IN_WINDOWS_CONTAINERS = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
    "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
)  # fmt: skip
_SET_TO_FALSE_IS_UNSET = ("hostPID", "hostIPC")


def validate_operating_system(errors: ErrorList, path: str, spec: JSON) -> None:
    """spec.os, and what a pod of that system may not ask for."""
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
        for field in _NOT_ON_WINDOWS:
            holder, _, leaf = field.rpartition(".")
            value = (spec.get(holder) or {} if holder else spec).get(leaf)
            if value is not None and not (leaf in _SET_TO_FALSE_IS_UNSET and not value):
                errors.forbidden(f"{path}.{field}", _WINDOWS_POD)
        for where, container in every_container(path, spec):
            for leaf in _NOT_IN_WINDOWS_CONTAINERS:
                if container.get("securityContext", {}).get(leaf) is not None:
                    errors.forbidden(f"{where}.securityContext.{leaf}", _WINDOWS_POD)
