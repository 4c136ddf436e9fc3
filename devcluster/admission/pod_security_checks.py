"""Checks of the pod security standards baseline and restricted, by version.

Each check implements one control of https://kubernetes.io/docs/concepts/security/pod-security-standards/ and returns
the violation in Kubernetes' words. Pure functions on JSON. Source: pod-security-admission/policy of Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple

from kubeloop.devcluster.validation.pod.security_context import every_container
from kubeloop.devcluster.validation.pod.security_profile_annotations import (
    APP_ARMOR_PREFIX,
    SECCOMP_CONTAINER_PREFIX,
    SECCOMP_POD_ANNOTATION,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted


class Violation(NamedTuple):
    """A violated rule, with the offending fields."""

    reason: str
    detail: str


class _Pod:
    """A pod or a pod template; `containers` holds init, regular and ephemeral containers."""

    __slots__ = ("annotations", "containers", "context", "spec")

    def __init__(self, metadata: JSON, spec: JSON) -> None:
        self.annotations: Mapping[str, str] = metadata.get("annotations") or {}
        self.spec = spec
        self.context: JSON = spec.get("securityContext") or {}
        self.containers = [container for _, container in every_container("", spec)]

    @property
    def contexts(self) -> list[JSON]:
        """The security contexts of the pod and of its containers."""
        return [self.context, *map(_security_context, self.containers)]

    def containers_with(self, is_forbidden: Callable[[JSON], bool]) -> list[str]:
        """Names of the containers with a forbidden security context."""
        return [container["name"] for container in self.containers if is_forbidden(_security_context(container))]

    def setters(self, is_forbidden: Callable[[JSON], bool]) -> str:
        """The pod and containers with a forbidden security context, as text; "" for none."""
        return _join_setters(["pod"] if is_forbidden(self.context) else [], self.containers_with(is_forbidden))


Check = Callable[[_Pod], Violation | None]


def violations(level: str, minor: int | None, metadata: JSON, spec: JSON) -> list[Violation]:
    """Return the violations of a level at version 1.`minor` (None: the latest)."""
    pod = _Pod(metadata, spec)
    return [violation for check in _checks_of(level, minor) if (violation := check(pod)) is not None]


@cache
def _checks_of(level: str, minor: int | None) -> tuple[Check, ...]:
    if level == "privileged":
        return ()
    checks = _checks_at_version(_BASELINE, minor)
    if level == "restricted":
        restricted = _checks_at_version(_RESTRICTED, minor)
        stricter = {_REPLACED_BASELINE_CHECKS.get(name) for name in restricted}
        checks = {name: check for name, check in checks.items() if name not in stricter} | restricted
    return tuple(checks.values())


def _checks_at_version(checks: Mapping[str, Mapping[int, Check]], minor: int | None) -> dict[str, Check]:
    """Return the newest version of each check that applies at version 1.`minor`."""
    applicable = {
        name: [check for since, check in forms.items() if minor is None or since <= minor]
        for name, forms in checks.items()
    }
    return {name: forms[-1] for name, forms in applicable.items() if forms}


# --- texts ------------------------------------------------------------------------------------------------------------


def _quoted_list(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _plural(noun: str, names: Sequence[str]) -> str:
    return noun if len(names) == 1 else f"{noun}s"


def _verb_use(names: Sequence[str]) -> str:
    return "uses" if len(names) == 1 else "use"


def _container_list(names: Sequence[str]) -> str:
    return f"{_plural('container', names)} {_quoted_list(names)}"


def _join_setters(setters: list[str], containers: Sequence[str]) -> str:
    return " and ".join([*setters, _container_list(containers)] if containers else setters)


def _security_context(container: JSON) -> JSON:
    return container.get("securityContext") or {}


def _is_windows(pod: _Pod) -> bool:
    return bool((pod.spec.get("os") or {}).get("name") == "windows")


def _has_user_namespace(pod: _Pod) -> bool:
    return pod.spec.get("hostUsers") is False


def _unless(is_exempt: Callable[[_Pod], bool], check: Check) -> Check:
    return lambda pod: None if is_exempt(pod) else check(pod)


# --- baseline ---------------------------------------------------------------------------------------------------------

_ALLOWED_PROFILES = ("RuntimeDefault", "Localhost")


def _has_forbidden_profile(kind: str, context: JSON) -> bool:
    profile = context.get(kind)
    return profile is not None and profile.get("type", "") not in _ALLOWED_PROFILES


def _forbidden_profiles(pod: _Pod, kind: str) -> tuple[str, list[str]]:
    """Return the setters of forbidden profiles in field `kind` (the pod, containers) as text, and their types."""
    is_forbidden = partial(_has_forbidden_profile, kind)
    types = {context[kind].get("type", "") for context in pod.contexts if is_forbidden(context)}
    return pod.setters(is_forbidden), sorted(types)


def _app_armor_profile(pod: _Pod) -> Violation | None:
    setters, values = _forbidden_profiles(pod, "appArmorProfile")
    annotations = sorted(
        f"{key}={quoted(value)}"
        for key, value in pod.annotations.items()
        if key.startswith(APP_ARMOR_PREFIX)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    )
    if annotations:
        source = _plural("annotation", annotations)
        setters, values = f"{setters} and {source}" if setters else source, [*values, *annotations]
    if not setters:
        return None
    reason = _plural("forbidden AppArmor profile", values)
    return Violation(reason, f"{setters} must not set AppArmor profile type to {_quoted_list(values)}")


_DEFAULT_CAPABILITIES = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
})  # fmt: skip


def _forbidden_capabilities(context: JSON, allowed: frozenset[str]) -> set[str]:
    return set((context.get("capabilities") or {}).get("add") or ()) - allowed


def _added_capabilities_detail(pod: _Pod, allowed: frozenset[str]) -> str:
    """Return a detail about containers that add forbidden capabilities; "" for none."""
    names = pod.containers_with(lambda context: bool(_forbidden_capabilities(context, allowed)))
    added = set().union(
        *(_forbidden_capabilities(_security_context(container), allowed) for container in pod.containers)
    )
    detail = f"must not include {_quoted_list(sorted(added))} in securityContext.capabilities.add"
    return f"{_container_list(names)} {detail}" if names else ""


def _capabilities_baseline(pod: _Pod) -> Violation | None:
    detail = _added_capabilities_detail(pod, _DEFAULT_CAPABILITIES)
    return Violation("non-default capabilities", detail) if detail else None


def _host_namespaces(pod: _Pod) -> Violation | None:
    shared = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(name)]
    return Violation("host namespaces", ", ".join(shared)) if shared else None


def _host_path_volumes(pod: _Pod) -> Violation | None:
    names = [volume["name"] for volume in pod.spec.get("volumes") or () if volume.get("hostPath") is not None]
    return Violation("hostPath volumes", f"{_plural('volume', names)} {_quoted_list(names)}") if names else None


def _host_ports(pod: _Pod) -> Violation | None:
    ports_by_container = {
        container["name"]: {str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort")}
        for container in pod.containers
    }
    names, ports = (
        [name for name in ports_by_container if ports_by_container[name]],
        sorted(set().union(*ports_by_container.values())),
    )
    if not names:
        return None
    detail = f"{_container_list(names)} {_verb_use(names)} {_plural('hostPort', ports)} {', '.join(ports)}"
    return Violation("hostPort", detail)


def _probe_hosts(container: JSON) -> set[str]:
    lifecycle = container.get("lifecycle") or {}
    handlers = [container.get(name) for name in ("livenessProbe", "readinessProbe", "startupProbe")]
    handlers += [lifecycle.get(name) for name in ("postStart", "preStop")]
    actions = [handler.get(name) or {} for handler in handlers if handler for name in ("httpGet", "tcpSocket")]
    return {action["host"] for action in actions if action.get("host")}


def _host_probes_and_lifecycle(pod: _Pod) -> Violation | None:
    hosts_by_container = {container["name"]: _probe_hosts(container) for container in pod.containers}
    names, hosts = (
        sorted(name for name in hosts_by_container if hosts_by_container[name]),
        sorted(set().union(*hosts_by_container.values())),
    )
    if not names:
        return None
    reason = "probe or lifecycle host"
    return Violation(
        reason, f"{_container_list(names)} {_verb_use(names)} {_plural(reason, hosts)} {_quoted_list(hosts)}"
    )


def _privileged(pod: _Pod) -> Violation | None:
    names = pod.containers_with(lambda context: bool(context.get("privileged")))
    return (
        Violation("privileged", f"{_container_list(names)} must not set securityContext.privileged=true")
        if names
        else None
    )


def _has_unmasked_proc(context: JSON) -> bool:
    return context.get("procMount") not in (None, "Default")


def _proc_mount(pod: _Pod) -> Violation | None:
    names = pod.containers_with(_has_unmasked_proc)
    if not names:
        return None
    types = sorted({context["procMount"] for context in pod.contexts if _has_unmasked_proc(context)})
    return Violation(
        "procMount", f"{_container_list(names)} must not set securityContext.procMount to {_quoted_list(types)}"
    )


_SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t"})


def _selinux_options(allowed: frozenset[str], pod: _Pod) -> Violation | None:
    def is_forbidden(context: JSON) -> bool:
        options = context.get("seLinuxOptions") or {}
        return options.get("type", "") not in allowed or bool(options.get("user") or options.get("role"))

    setters = pod.setters(is_forbidden)
    if not setters:
        return None
    options_list = [context.get("seLinuxOptions") or {} for context in pod.contexts]
    types = sorted({options.get("type", "") for options in options_list} - allowed)
    parts = [f"{_plural('type', types)} {_quoted_list(types)}"] if types else []
    parts += [
        f"{name} may not be set" for name in ("user", "role") if any(options.get(name) for options in options_list)
    ]
    return Violation("seLinuxOptions", f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(parts)}")


def _seccomp_annotations(pod: _Pod) -> Violation | None:
    keys = [SECCOMP_POD_ANNOTATION, *(SECCOMP_CONTAINER_PREFIX + container["name"] for container in pod.containers)]
    profiles = {key: pod.annotations[key] for key in keys if key in pod.annotations}
    forbidden = sorted(
        f"{key}={quoted(value)}"
        for key, value in profiles.items()
        if value not in ("runtime/default", "docker/default") and not value.startswith("localhost/")
    )
    if not forbidden:
        return None
    return Violation("seccompProfile", f"forbidden {_plural('annotation', forbidden)} {', '.join(forbidden)}")


def _seccomp_fields(pod: _Pod) -> Violation | None:
    setters, types = _forbidden_profiles(pod, "seccompProfile")
    detail = f"{setters} must not set securityContext.seccompProfile.type to {_quoted_list(types)}"
    return Violation("seccompProfile", detail) if setters else None


_SYSCTLS_1_0 = frozenset({
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
})  # fmt: skip
_SYSCTLS_1_27 = _SYSCTLS_1_0 | {"net.ipv4.ip_local_reserved_ports"}
_SYSCTLS_1_29 = _SYSCTLS_1_27 | {
    f"net.ipv4.tcp_{name}" for name in ("keepalive_time", "fin_timeout", "keepalive_intvl", "keepalive_probes")
}
_SYSCTLS_1_32 = _SYSCTLS_1_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}


def _sysctls(allowed: frozenset[str], pod: _Pod) -> Violation | None:
    names = [sysctl["name"] for sysctl in pod.context.get("sysctls") or () if sysctl["name"] not in allowed]
    return Violation("forbidden sysctls", ", ".join(names)) if names else None


def _windows_host_process(pod: _Pod) -> Violation | None:
    setters = pod.setters(lambda context: bool((context.get("windowsOptions") or {}).get("hostProcess")))
    detail = f"{setters} must not set securityContext.windowsOptions.hostProcess=true"
    return Violation("hostProcess", detail) if setters else None


# --- restricted -------------------------------------------------------------------------------------------------------


def _allow_privilege_escalation(pod: _Pod) -> Violation | None:
    names = pod.containers_with(lambda context: context.get("allowPrivilegeEscalation") is not False)
    detail = f"{_container_list(names)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", detail) if names else None


def _capabilities_restricted(pod: _Pod) -> Violation | None:
    not_dropping = pod.containers_with(
        lambda context: "ALL" not in ((context.get("capabilities") or {}).get("drop") or ())
    )
    parts = (
        [f'{_container_list(not_dropping)} must set securityContext.capabilities.drop=["ALL"]'] if not_dropping else []
    )
    if added := _added_capabilities_detail(pod, frozenset({"NET_BIND_SERVICE"})):
        parts.append(added)
    return Violation("unrestricted capabilities", "; ".join(parts)) if parts else None


_ALLOWED_VOLUME_TYPES = (
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
)  # fmt: skip


def _restricted_volumes(pod: _Pod) -> Violation | None:
    forbidden = [
        volume
        for volume in pod.spec.get("volumes") or ()
        if not any(volume.get(name) is not None for name in _ALLOWED_VOLUME_TYPES)
    ]
    if not forbidden:
        return None
    names = [volume["name"] for volume in forbidden]
    types = sorted({next((name for name in volume if name != "name"), "unknown") for volume in forbidden})
    uses = f"{_verb_use(names)} {_plural('restricted volume type', types)} {_quoted_list(types)}"
    return Violation("restricted volume types", f"{_plural('volume', names)} {_quoted_list(names)} {uses}")


def _run_as_non_root(pod: _Pod) -> Violation | None:
    reason = "runAsNonRoot != true"
    if setters := pod.setters(lambda context: context.get("runAsNonRoot") is False):
        return Violation(reason, f"{setters} must not set securityContext.runAsNonRoot=false")
    names = (
        [] if pod.context.get("runAsNonRoot") else pod.containers_with(lambda context: not context.get("runAsNonRoot"))
    )
    detail = f"pod or {_container_list(names)} must set securityContext.runAsNonRoot=true"
    return Violation(reason, detail) if names else None


def _run_as_user(pod: _Pod) -> Violation | None:
    setters = pod.setters(lambda context: context.get("runAsUser") == 0)
    return Violation("runAsUser=0", f"{setters} must not set runAsUser=0") if setters else None


def _seccomp_restricted(pod: _Pod) -> Violation | None:
    if violation := _seccomp_fields(pod):
        return violation
    if pod.context.get("seccompProfile") is not None:
        return None
    names = pod.containers_with(lambda context: context.get("seccompProfile") is None)
    message = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Violation("seccompProfile", f"pod or {_container_list(names)} {message}") if names else None


# --- levels -----------------------------------------------------------------------------------------------------------

_BASELINE: Mapping[str, Mapping[int, Check]] = {
    "appArmorProfile": {0: _app_armor_profile},
    "capabilities_baseline": {0: _capabilities_baseline},
    "hostNamespaces": {0: _host_namespaces},
    "hostPathVolumes": {0: _host_path_volumes},
    "hostPorts": {0: _host_ports},
    "hostProbesAndHostLifecycle": {34: _host_probes_and_lifecycle},
    "privileged": {0: _privileged},
    "procMount": {0: _proc_mount, 35: _unless(_has_user_namespace, _proc_mount)},
    "seLinuxOptions": {
        0: partial(_selinux_options, _SELINUX_TYPES),
        31: partial(_selinux_options, _SELINUX_TYPES | {"container_engine_t"}),
    },
    "seccompProfile_baseline": {0: _seccomp_annotations, 19: _seccomp_fields},
    "sysctls": {
        0: partial(_sysctls, _SYSCTLS_1_0),
        27: partial(_sysctls, _SYSCTLS_1_27),
        29: partial(_sysctls, _SYSCTLS_1_29),
        32: partial(_sysctls, _SYSCTLS_1_32),
    },
    "windowsHostProcess": {0: _windows_host_process},
}
_RESTRICTED: Mapping[str, Mapping[int, Check]] = {
    "allowPrivilegeEscalation": {
        8: _allow_privilege_escalation,
        25: _unless(_is_windows, _allow_privilege_escalation),
    },
    "capabilities_restricted": {22: _capabilities_restricted, 25: _unless(_is_windows, _capabilities_restricted)},
    "procMount_restricted": {35: _proc_mount},
    "restrictedVolumes": {0: _restricted_volumes},
    "runAsNonRoot": {0: _run_as_non_root, 35: _unless(_has_user_namespace, _run_as_non_root)},
    "runAsUser": {23: _run_as_user, 35: _unless(_has_user_namespace, _run_as_user)},
    "seccompProfile_restricted": {19: _seccomp_restricted, 25: _unless(_is_windows, _seccomp_restricted)},
}
"""Checks in the order of their messages; each with its versions by the minor version since which they apply."""
_REPLACED_BASELINE_CHECKS = {
    "capabilities_restricted": "capabilities_baseline",
    "procMount_restricted": "procMount",
    "restrictedVolumes": "hostPathVolumes",
    "seccompProfile_restricted": "seccompProfile_baseline",
}
