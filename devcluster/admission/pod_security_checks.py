"""What the levels of PodSecurity, baseline and restricted, forbid in a pod, by version.

A check looks at one rule of https://kubernetes.io/docs/concepts/security/pod-security-standards/ and says what breaks
it, in Kubernetes' words. Pure functions on JSON. Source: pod-security-admission/policy of Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple

from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.validation.pod.security_context import every_container
from kubeloop.devcluster.validation.pod.security_profile_annotations import (
    APP_ARMOR_PREFIX,
    SECCOMP_CONTAINER_PREFIX,
    SECCOMP_POD_ANNOTATION,
)
from kubeloop.kube.json_object import JSON


class Violation(NamedTuple):
    """A rule that is broken, and by what."""

    reason: str
    detail: str


class _Pod:
    """A pod, or the template of one, as checks see it: its containers are those of all three kinds."""

    __slots__ = ("annotations", "containers", "context", "spec")

    def __init__(self, metadata: JSON, spec: JSON) -> None:
        self.annotations: Mapping[str, str] = metadata.get("annotations") or {}
        self.spec = spec
        self.context: JSON = spec.get("securityContext") or {}
        self.containers = [container for _, container in every_container("", spec)]

    @property
    def contexts(self) -> list[JSON]:
        """The security contexts of the pod and of its containers."""
        return [self.context, *map(_context, self.containers)]

    def containers_with(self, is_wrong: Callable[[JSON], bool]) -> list[str]:
        """The names of the containers whose security contexts are wrong."""
        return [each["name"] for each in self.containers if is_wrong(_context(each))]

    def setters(self, is_wrong: Callable[[JSON], bool]) -> str:
        """Who has a wrong security context, pod and containers; "" for nobody."""
        return _together(["pod"] if is_wrong(self.context) else [], self.containers_with(is_wrong))


Check = Callable[[_Pod], Violation | None]


def violations(level: str, minor: int | None, metadata: JSON, spec: JSON) -> list[Violation]:
    """What is against a pod at version 1.`minor` (None: the latest) of a level."""
    pod = _Pod(metadata, spec)
    return [found for check in _checks_of(level, minor) if (found := check(pod)) is not None]


@cache
def _checks_of(level: str, minor: int | None) -> tuple[Check, ...]:
    if level == "privileged":
        return ()
    checks = _at(_BASELINE, minor)
    if level == "restricted":
        restricted = _at(_RESTRICTED, minor)
        stricter = {_INSTEAD_OF.get(name) for name in restricted}
        checks = {name: check for name, check in checks.items() if name not in stricter} | restricted
    return tuple(checks.values())


def _at(checks: Mapping[str, Mapping[int, Check]], minor: int | None) -> dict[str, Check]:
    """The newest form of each check that there was at a version."""
    known = {
        name: [check for since, check in forms.items() if minor is None or since <= minor]
        for name, forms in checks.items()
    }
    return {name: forms[-1] for name, forms in known.items() if forms}


# --- texts ------------------------------------------------------------------------------------------------------------


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _plural(noun: str, names: Sequence[str]) -> str:
    return noun if len(names) == 1 else f"{noun}s"


def _use(names: Sequence[str]) -> str:
    return "uses" if len(names) == 1 else "use"


def _containers(names: Sequence[str]) -> str:
    return f"{_plural('container', names)} {_listed(names)}"


def _together(setters: list[str], containers: Sequence[str]) -> str:
    return " and ".join([*setters, _containers(containers)] if containers else setters)


def _context(container: JSON) -> JSON:
    return container.get("securityContext") or {}


def _is_windows(pod: _Pod) -> bool:
    return bool((pod.spec.get("os") or {}).get("name") == "windows")


def _has_own_users(pod: _Pod) -> bool:
    return pod.spec.get("hostUsers") is False


def _unless(is_spared: Callable[[_Pod], bool], check: Check) -> Check:
    return lambda pod: None if is_spared(pod) else check(pod)


# --- baseline ---------------------------------------------------------------------------------------------------------

_PROFILES = ("RuntimeDefault", "Localhost")


def _has_other_profile(kind: str, context: JSON) -> bool:
    profile = context.get(kind)
    return profile is not None and profile.get("type", "") not in _PROFILES


def _other_profiles(pod: _Pod, kind: str) -> tuple[str, list[str]]:
    """Who sets profiles (`kind`: the field) that are not allowed, and their types."""
    is_wrong = partial(_has_other_profile, kind)
    types = {context[kind].get("type", "") for context in pod.contexts if is_wrong(context)}
    return pod.setters(is_wrong), sorted(types)


def _app_armor_profile(pod: _Pod) -> Violation | None:
    setters, values = _other_profiles(pod, "appArmorProfile")
    annotations = sorted(
        f"{key}={quoted(value)}"
        for key, value in pod.annotations.items()
        if key.startswith(APP_ARMOR_PREFIX)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    )
    if annotations:
        who = _plural("annotation", annotations)
        setters, values = f"{setters} and {who}" if setters else who, [*values, *annotations]
    if not setters:
        return None
    reason = _plural("forbidden AppArmor profile", values)
    return Violation(reason, f"{setters} must not set AppArmor profile type to {_listed(values)}")


_DEFAULT_CAPABILITIES = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
})  # fmt: skip


def _added(context: JSON, allowed: frozenset[str]) -> set[str]:
    return set((context.get("capabilities") or {}).get("add") or ()) - allowed


def _adding(pod: _Pod, allowed: frozenset[str]) -> str:
    """Who adds which capabilities that are not allowed, "" for nobody."""
    names = pod.containers_with(lambda context: bool(_added(context, allowed)))
    added = set().union(*(_added(_context(each), allowed) for each in pod.containers))
    told = f"must not include {_listed(sorted(added))} in securityContext.capabilities.add"
    return f"{_containers(names)} {told}" if names else ""


def _capabilities_baseline(pod: _Pod) -> Violation | None:
    told = _adding(pod, _DEFAULT_CAPABILITIES)
    return Violation("non-default capabilities", told) if told else None


def _host_namespaces(pod: _Pod) -> Violation | None:
    shared = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(name)]
    return Violation("host namespaces", ", ".join(shared)) if shared else None


def _host_path_volumes(pod: _Pod) -> Violation | None:
    names = [each["name"] for each in pod.spec.get("volumes") or () if each.get("hostPath") is not None]
    return Violation("hostPath volumes", f"{_plural('volume', names)} {_listed(names)}") if names else None


def _host_ports(pod: _Pod) -> Violation | None:
    found = {
        each["name"]: {str(port["hostPort"]) for port in each.get("ports") or () if port.get("hostPort")}
        for each in pod.containers
    }
    names, ports = [name for name in found if found[name]], sorted(set().union(*found.values()))
    if not names:
        return None
    told = f"{_containers(names)} {_use(names)} {_plural('hostPort', ports)} {', '.join(ports)}"
    return Violation("hostPort", told)


def _hosts_asked(container: JSON) -> set[str]:
    lifecycle = container.get("lifecycle") or {}
    asking = [container.get(name) for name in ("livenessProbe", "readinessProbe", "startupProbe")]
    asking += [lifecycle.get(name) for name in ("postStart", "preStop")]
    actions = [each.get(name) or {} for each in asking if each for name in ("httpGet", "tcpSocket")]
    return {action["host"] for action in actions if action.get("host")}


def _host_probes_and_lifecycle(pod: _Pod) -> Violation | None:
    found = {each["name"]: _hosts_asked(each) for each in pod.containers}
    names, hosts = sorted(name for name in found if found[name]), sorted(set().union(*found.values()))
    if not names:
        return None
    reason = "probe or lifecycle host"
    return Violation(reason, f"{_containers(names)} {_use(names)} {_plural(reason, hosts)} {_listed(hosts)}")


def _privileged(pod: _Pod) -> Violation | None:
    names = pod.containers_with(lambda context: bool(context.get("privileged")))
    return (
        Violation("privileged", f"{_containers(names)} must not set securityContext.privileged=true") if names else None
    )


def _masks_less(context: JSON) -> bool:
    return context.get("procMount") not in (None, "Default")


def _proc_mount(pod: _Pod) -> Violation | None:
    names = pod.containers_with(_masks_less)
    if not names:
        return None
    types = sorted({context["procMount"] for context in pod.contexts if _masks_less(context)})
    return Violation("procMount", f"{_containers(names)} must not set securityContext.procMount to {_listed(types)}")


_SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t"})


def _selinux_options(allowed: frozenset[str], pod: _Pod) -> Violation | None:
    def is_wrong(context: JSON) -> bool:
        options = context.get("seLinuxOptions") or {}
        return options.get("type", "") not in allowed or bool(options.get("user") or options.get("role"))

    setters = pod.setters(is_wrong)
    if not setters:
        return None
    every = [context.get("seLinuxOptions") or {} for context in pod.contexts]
    types = sorted({options.get("type", "") for options in every} - allowed)
    told = [f"{_plural('type', types)} {_listed(types)}"] if types else []
    told += [f"{name} may not be set" for name in ("user", "role") if any(options.get(name) for options in every)]
    return Violation("seLinuxOptions", f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(told)}")


def _seccomp_annotations(pod: _Pod) -> Violation | None:
    keys = [SECCOMP_POD_ANNOTATION, *(SECCOMP_CONTAINER_PREFIX + each["name"] for each in pod.containers)]
    given = {key: pod.annotations[key] for key in keys if key in pod.annotations}
    wrong = sorted(
        f"{key}={quoted(value)}"
        for key, value in given.items()
        if value not in ("runtime/default", "docker/default") and not value.startswith("localhost/")
    )
    if not wrong:
        return None
    return Violation("seccompProfile", f"forbidden {_plural('annotation', wrong)} {', '.join(wrong)}")


def _seccomp_fields(pod: _Pod) -> Violation | None:
    setters, types = _other_profiles(pod, "seccompProfile")
    told = f"{setters} must not set securityContext.seccompProfile.type to {_listed(types)}"
    return Violation("seccompProfile", told) if setters else None


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
    names = [each["name"] for each in pod.context.get("sysctls") or () if each["name"] not in allowed]
    return Violation("forbidden sysctls", ", ".join(names)) if names else None


def _windows_host_process(pod: _Pod) -> Violation | None:
    setters = pod.setters(lambda context: bool((context.get("windowsOptions") or {}).get("hostProcess")))
    told = f"{setters} must not set securityContext.windowsOptions.hostProcess=true"
    return Violation("hostProcess", told) if setters else None


# --- restricted -------------------------------------------------------------------------------------------------------


def _allow_privilege_escalation(pod: _Pod) -> Violation | None:
    names = pod.containers_with(lambda context: context.get("allowPrivilegeEscalation") is not False)
    told = f"{_containers(names)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", told) if names else None


def _capabilities_restricted(pod: _Pod) -> Violation | None:
    keeping = pod.containers_with(lambda context: "ALL" not in ((context.get("capabilities") or {}).get("drop") or ()))
    told = [f'{_containers(keeping)} must set securityContext.capabilities.drop=["ALL"]'] if keeping else []
    if adding := _adding(pod, frozenset({"NET_BIND_SERVICE"})):
        told.append(adding)
    return Violation("unrestricted capabilities", "; ".join(told)) if told else None


_VOLUMES = (
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
)  # fmt: skip


def _restricted_volumes(pod: _Pod) -> Violation | None:
    wrong = [each for each in pod.spec.get("volumes") or () if not any(each.get(name) is not None for name in _VOLUMES)]
    if not wrong:
        return None
    names = [each["name"] for each in wrong]
    types = sorted({next((name for name in each if name != "name"), "unknown") for each in wrong})
    told = f"{_plural('volume', names)} {_listed(names)} {_use(names)} {_plural('restricted volume type', types)}"
    return Violation("restricted volume types", f"{told} {_listed(types)}")


def _run_as_non_root(pod: _Pod) -> Violation | None:
    reason = "runAsNonRoot != true"
    if setters := pod.setters(lambda context: context.get("runAsNonRoot") is False):
        return Violation(reason, f"{setters} must not set securityContext.runAsNonRoot=false")
    names = [] if pod.context.get("runAsNonRoot") else pod.containers_with(lambda each: not each.get("runAsNonRoot"))
    told = f"pod or {_containers(names)} must set securityContext.runAsNonRoot=true"
    return Violation(reason, told) if names else None


def _run_as_user(pod: _Pod) -> Violation | None:
    setters = pod.setters(lambda context: context.get("runAsUser") == 0)
    return Violation("runAsUser=0", f"{setters} must not set runAsUser=0") if setters else None


def _seccomp_restricted(pod: _Pod) -> Violation | None:
    if wrong := _seccomp_fields(pod):
        return wrong
    if pod.context.get("seccompProfile") is not None:
        return None
    names = pod.containers_with(lambda context: context.get("seccompProfile") is None)
    told = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Violation("seccompProfile", f"pod or {_containers(names)} {told}") if names else None


# --- the levels -------------------------------------------------------------------------------------------------------

_BASELINE: Mapping[str, Mapping[int, Check]] = {
    "appArmorProfile": {0: _app_armor_profile},
    "capabilities_baseline": {0: _capabilities_baseline},
    "hostNamespaces": {0: _host_namespaces},
    "hostPathVolumes": {0: _host_path_volumes},
    "hostPorts": {0: _host_ports},
    "hostProbesAndHostLifecycle": {34: _host_probes_and_lifecycle},
    "privileged": {0: _privileged},
    "procMount": {0: _proc_mount, 35: _unless(_has_own_users, _proc_mount)},
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
    "runAsNonRoot": {0: _run_as_non_root, 35: _unless(_has_own_users, _run_as_non_root)},
    "runAsUser": {23: _run_as_user, 35: _unless(_has_own_users, _run_as_user)},
    "seccompProfile_restricted": {19: _seccomp_restricted, 25: _unless(_is_windows, _seccomp_restricted)},
}
"""Checks in the order in which they speak, each with its forms by the minor version since which they hold."""
_INSTEAD_OF = {
    "capabilities_restricted": "capabilities_baseline",
    "procMount_restricted": "procMount",
    "restrictedVolumes": "hostPathVolumes",
    "seccompProfile_restricted": "seccompProfile_baseline",
}
