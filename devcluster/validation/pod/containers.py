"""Validation of containers: names, images, ports, environment, probes, resources, security context.

Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kubeloop.devcluster.validation.common.error_list import (
    NOT_NEGATIVE,
    PROTOCOLS,
    ErrorList,
    header_name,
    validate_local_path,
    validate_port_number_or_name,
)
from kubeloop.devcluster.validation.pod.security_context import every_container, validate_container_security_context
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import (
    config_key,
    dns_label,
    dns_subdomain,
    environment_name,
    port_name,
    port_number,
    qualified_name,
)
from kubeloop.kube.values.quantities import milli_value, parse_quantity, value

Volumes = Mapping[str, JSON]
NameCheck = Callable[[ErrorList, str, str], None]

_CONTAINER_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_INTEGER_RESOURCES = frozenset(
    {"pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps", "persistentvolumeclaims",
     "services.nodeports", "services.loadbalancers"}
)  # fmt: skip
_STANDARD_RESOURCES = (
    _CONTAINER_RESOURCES
    | _INTEGER_RESOURCES
    | {f"{which}.{name}" for which in ("requests", "limits") for name in _CONTAINER_RESOURCES}
    | {"storage", "requests.storage"}
)


def is_huge_pages(name: str) -> bool:
    return name.startswith("hugepages-")


def is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    return not is_native(name) and not name.startswith("requests.") and not qualified_name(f"requests.{name}")


def may_be_overcommitted(name: str) -> bool:
    return is_native(name) and not is_huge_pages(name)


def validate_resource_quantity(errors: ErrorList, path: str, name: str, quantity: str) -> None:
    """Require a quantity that is not negative, and an integer for resources that are counted."""
    if parse_quantity(quantity).sign < 0:
        errors.invalid(path, quantity, NOT_NEGATIVE)
    if milli_value(quantity) % 1000 and (name in _INTEGER_RESOURCES or is_extended(name)):
        errors.invalid(path, quantity, "must be an integer")


def _validate_huge_pages_quantity(errors: ErrorList, path: str, name: str, quantity: str) -> None:
    if not _divides(name.removeprefix("hugepages-"), quantity):
        errors.invalid(path, quantity, f"{quantity} is not positive integer multiple of {name}")


def _divides(size: str, quantity: str) -> bool:
    try:
        milli = milli_value(size)
    except ValueError:
        return False
    return milli > 0 and milli % 1000 == 0 and value(quantity) % (milli // 1000) == 0


def validate_resource_name(errors: ErrorList, path: str, name: str) -> None:
    problems = qualified_name(name)
    errors.invalid_each(path, name, problems)
    standard = name in _STANDARD_RESOURCES or is_huge_pages(name) or name.startswith("requests.hugepages-")
    if not problems and "/" not in name and not standard:
        errors.invalid(path, name, "must be a standard resource type or fully qualified")


def validate_container_resource_name(errors: ErrorList, path: str, name: str) -> None:
    if name in _CONTAINER_RESOURCES:
        return
    validate_resource_name(errors, path, name)
    if "/" not in name:
        if not is_huge_pages(name):
            errors.invalid(path, name, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        errors.invalid(path, name, "doesn't follow extended resource name standard")


def validate_resource_requirements(
    errors: ErrorList, path: str, resources: JSON, check_name: NameCheck = validate_container_resource_name
) -> None:
    """Validate limits and requests, and their relation; check_name validates a resource name."""
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for name in sorted(limits):
        where = f"{path}.limits[{name}]"
        check_name(errors, where, name)
        validate_resource_quantity(errors, where, name, limits[name])
        if is_huge_pages(name):
            _validate_huge_pages_quantity(errors, where, name, limits[name])
    for name in sorted(requests):
        where, quantity = f"{path}.requests[{name}]", requests[name]
        check_name(errors, where, name)
        validate_resource_quantity(errors, where, name, quantity)
        if name in limits:
            same = limits[name] == quantity
            order = 0 if same else parse_quantity(quantity).compare(parse_quantity(limits[name]))
            if order != 0 and not may_be_overcommitted(name):
                errors.invalid(f"{path}.requests", quantity, f"must be equal to {name} limit of {limits[name]}")
            elif order > 0:
                errors.invalid(
                    f"{path}.requests", quantity, f"must be less than or equal to {name} limit of {limits[name]}"
                )
        elif not may_be_overcommitted(name):
            errors.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        if is_huge_pages(name):
            _validate_huge_pages_quantity(errors, where, name, quantity)
    everything = {*limits, *requests}
    if any(map(is_huge_pages, everything)) and not everything & {"cpu", "memory"}:
        errors.forbidden(path, "HugePages require cpu or memory")


def validate_container_claims(errors: ErrorList, path: str, container_claims: Sequence[JSON], spec: JSON) -> None:
    """Validate a container's references to the pod's resource claims, or to single requests of them."""
    pod_claims = [
        resource_claim["name"] for resource_claim in spec.get("resourceClaims", ()) if resource_claim.get("name")
    ]
    seen: set[str] = set()
    for i, claim in enumerate(container_claims):
        where, name, request = f"{path}[{i}]", claim.get("name", ""), claim.get("request", "")
        if not errors.require(where, name):
            continue
        key = f"{name}/{request}" if request else name
        if name in seen:
            errors.duplicate(where, name)
        else:
            errors.check(f"{where}.request", request or None, dns_label)
            if key in seen:
                errors.duplicate(where, key)
            elif not request:
                for other in seen:
                    if other.partition("/")[0] == name:
                        errors.duplicate(where, name)
            seen.add(key)
        if name not in pod_claims:
            detail = ": " + ", ".join(sorted(set(pod_claims))) if pod_claims else " which is empty"
            errors.not_found(where, name, f"must be one of the names in pod.spec.resourceClaims{detail}")


def _validate_resize_policy(errors: ErrorList, path: str, policies: Sequence[JSON], pod_policy: str) -> None:
    seen: set[str] = set()
    for i, entry in enumerate(policies):
        name, policy = entry.get("resourceName", ""), entry.get("restartPolicy", "")
        errors.unique(f"{path}[{i}]", name, seen)
        for field_value, supported in ((name, ("cpu", "memory")), (policy, ("NotRequired", "RestartContainer"))):
            errors.required_one_of(path, field_value, supported)
        if pod_policy == "Never" and policy != "NotRequired":
            errors.invalid(path, policy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")


def _validate_ports(errors: ErrorList, path: str, ports: Sequence[JSON]) -> None:
    names: set[str] = set()
    for i, port in enumerate(ports):
        where, name = f"{path}[{i}]", port.get("name", "")
        if name:
            problems = port_name(name)
            if problems:
                errors.invalid_each(f"{where}.name", name, problems)
            elif name in names:
                errors.duplicate(f"{where}.name", name)
            names.add(name)
        number = port.get("containerPort", 0)
        if number == 0:
            errors.required(f"{where}.containerPort")
        else:
            errors.check(f"{where}.containerPort", number, port_number)
        errors.check(f"{where}.hostPort", port.get("hostPort") or None, port_number)
        protocol = port.get("protocol", "")
        errors.required_one_of(f"{where}.protocol", protocol, PROTOCOLS)


def validate_host_port_conflicts(errors: ErrorList, path: str, containers: Sequence[JSON]) -> None:
    host_ports: set[str] = set()
    for i, container in enumerate(containers):
        for j, port in enumerate(container.get("ports", ())):
            if port.get("hostPort"):
                key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
                errors.unique(f"{path}[{i}].ports[{j}].hostPort", key, host_ports)


_ENV_FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
VOLUME_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_DOWNWARD_FIELDS = frozenset(
    (*_ENV_FIELDS, *VOLUME_FIELDS, "spec.restartPolicy", "spec.schedulerName", "status.phase", "spec.host")
)
_RESOURCE_FIELDS = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage",
    "requests.memory",
)  # fmt: skip
_HUGE_PAGES_FIELDS = ("limits.hugepages-", "requests.hugepages-")


def validate_field_reference(errors: ErrorList, path: str, reference: JSON, supported: Sequence[str]) -> None:
    field_path = reference.get("fieldPath", "")
    if not errors.require(f"{path}.apiVersion", reference.get("apiVersion")):
        return
    if not errors.require(f"{path}.fieldPath", field_path):
        return
    base, subscript = _subscripted(field_path)
    if reference["apiVersion"] != "v1":
        detail = f"error converting fieldPath: unsupported pod version: {reference['apiVersion']}"
        errors.invalid(f"{path}.fieldPath", field_path, detail)
    elif subscript is not None and base not in ("metadata.annotations", "metadata.labels"):
        detail = f"error converting fieldPath: field label does not support subscript: {field_path}"
        errors.invalid(f"{path}.fieldPath", field_path, detail)
    elif subscript is not None:
        key = subscript.lower() if base == "metadata.annotations" else subscript
        errors.check(path, key, qualified_name)
    elif field_path not in _DOWNWARD_FIELDS:
        errors.invalid(
            f"{path}.fieldPath", field_path, f"error converting fieldPath: field label not supported: {field_path}"
        )
    elif (field := "spec.nodeName" if field_path == "spec.host" else field_path) not in supported:
        errors.not_supported(f"{path}.fieldPath", field, supported)


def _subscripted(field_path: str) -> tuple[str, str | None]:
    """Split "metadata.labels['a']" into "metadata.labels" and "a"; the second is None without a subscript."""
    base, bracket, rest = field_path.removesuffix("']").partition("['")
    if not field_path.endswith("']") or not bracket or not base:
        return field_path, None
    return base, rest


def validate_resource_reference(errors: ErrorList, path: str, reference: JSON, *, in_volume: bool) -> None:
    name = reference.get("resource", "")
    if in_volume and not reference.get("containerName"):
        errors.required(f"{path}.containerName")
    elif not name:
        errors.required(f"{path}.resource")
    elif name not in _RESOURCE_FIELDS and not name.startswith(_HUGE_PAGES_FIELDS):
        errors.not_supported(f"{path}.resource", name, _RESOURCE_FIELDS)
    divisor = reference.get("divisor", "0")
    if parse_quantity(divisor).compare(parse_quantity("0")) == 0:
        return
    if name in ("limits.cpu", "requests.cpu"):
        if divisor not in ("1m", "1"):
            errors.invalid(
                f"{path}.divisor", name, "only divisor's values 1m and 1 are supported with the cpu resource"
            )
    elif divisor not in _DIVISORS and (name in _RESOURCE_FIELDS or name.startswith(_HUGE_PAGES_FIELDS)):
        resource_words = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}.get(
            name.partition(".")[2], "hugepages"
        )
        choices = ", ".join(_DIVISORS)
        errors.invalid(
            f"{path}.divisor", name, f"only divisor's values {choices} are supported with the {resource_words} resource"
        )


_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")


def _validate_key_reference(errors: ErrorList, path: str, reference: JSON) -> None:
    errors.check(f"{path}.name", reference.get("name", ""), dns_subdomain)
    if errors.require(f"{path}.key", reference.get("key")):
        errors.check(f"{path}.key", reference["key"], config_key)


def _validate_file_reference(errors: ErrorList, path: str, reference: JSON) -> None:
    """Validate a variable's reference to a key of a file in a volume."""
    key, volume, file = (reference.get(name, "") for name in ("key", "volumeName", "path"))
    errors.check_required(f"{path}.key", key, environment_name)
    errors.check_required(f"{path}.volumeName", volume, dns_label)
    if errors.require(f"{path}.path", file) and ".." in file.split("/"):
        errors.invalid(f"{path}.path", file, "must not contain '..'")


def validate_file_reference_volumes(errors: ErrorList, path: str, spec: JSON) -> None:
    """Require the volumes of file references to exist and to be of type emptyDir."""
    volumes = {volume.get("name", ""): volume for volume in spec.get("volumes", ())}
    for where, container in every_container(path, spec):
        for j, variable in enumerate(container.get("env", ())):
            reference = variable.get("valueFrom", {}).get("fileKeyRef")
            if reference is None:
                continue
            name, reference_path = reference.get("volumeName", ""), f"{where}.env[{j}].valueFrom.fileKeyRef.volumeName"
            if name not in volumes:
                errors.not_found(reference_path, name)
            elif "emptyDir" not in volumes[name]:
                errors.invalid(reference_path, name, "referenced volume must be of type emptyDir")


def _validate_environment(errors: ErrorList, path: str, variables: Sequence[JSON]) -> None:
    for i, variable in enumerate(variables):
        where, name = f"{path}[{i}]", variable.get("name", "")
        errors.check_required(f"{where}.name", name, environment_name)
        source = variable.get("valueFrom")
        if source is None:
            continue
        where += ".valueFrom"
        if "fieldRef" in source:
            validate_field_reference(errors, f"{where}.fieldRef", source["fieldRef"], _ENV_FIELDS)
        if "resourceFieldRef" in source:
            validate_resource_reference(
                errors, f"{where}.resourceFieldRef", source["resourceFieldRef"], in_volume=False
            )
        for kind in ("configMapKeyRef", "secretKeyRef"):
            if kind in source:
                _validate_key_reference(errors, f"{where}.{kind}", source[kind])
        if "fileKeyRef" in source:
            _validate_file_reference(errors, f"{where}.fileKeyRef", source["fileKeyRef"])
        if not source:
            kinds = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
            if errors.gates.enabled("EnvFiles"):
                kinds = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
            errors.invalid(where, "", f"must specify one of: {kinds}")
        elif variable.get("value"):
            errors.invalid(where, "", "may not be specified when `value` is not empty")
        elif len(source) > 1:
            errors.invalid(where, "", "may not have more than one field specified at a time")


def _validate_environment_sources(errors: ErrorList, path: str, sources: Sequence[JSON]) -> None:
    for i, source in enumerate(sources):
        where = f"{path}[{i}]"
        errors.check(f"{where}.prefix", source.get("prefix") or None, environment_name)
        kinds = [kind for kind in ("configMapRef", "secretRef") if kind in source]
        for kind in kinds:
            name = source[kind].get("name", "")
            if errors.require(f"{where}.{kind}.name", name):
                prefix = f"{name[:-1]}a" if len(name) > 1 and name.endswith("-") else name  # checked like generateName
                errors.invalid_each(f"{where}.{kind}.name", name, dns_subdomain(prefix))
        if not kinds:
            errors.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(kinds) > 1:
            errors.invalid(path, "", "may not have more than one field specified at a time")


def _validate_mounts(errors: ErrorList, path: str, container: JSON, volumes: Volumes) -> None:
    mounts = container.get("volumeMounts", ())
    devices = container.get("volumeDevices", ())
    device_paths = {
        device.get("name", ""): device.get("devicePath", "") for device in devices
    }  # the last device of a name counts
    paths = set()
    for i, mount in enumerate(mounts):
        where, name, mount_path = f"{path}.volumeMounts[{i}]", mount.get("name", ""), mount.get("mountPath", "")
        errors.require(f"{where}.name", name)
        if name not in volumes:
            errors.not_found(f"{where}.name", name)
        errors.require(f"{where}.mountPath", mount_path)
        if mount_path in paths:
            errors.invalid(f"{where}.mountPath", mount_path, "must be unique")
        paths.add(mount_path)
        if name in device_paths:
            errors.invalid(f"{where}.name", name, "must not already exist in volumeDevices")
        if mount_path in device_paths.values():
            errors.invalid(f"{where}.mountPath", mount_path, "must not already exist as a path in volumeDevices")
        for field in ("subPath", "subPathExpr"):
            if mount.get(field):
                if field == "subPathExpr" and mount.get("subPath"):
                    detail = "subPathExpr and subPath are mutually exclusive"
                    errors.invalid(f"{where}.subPathExpr", mount[field], detail)
                validate_local_path(errors, f"{path}.volumeMounts.{field}", mount[field])
        propagation = mount.get("mountPropagation")
        errors.one_of(
            f"{path}.volumeMounts.mountPropagation", propagation, ("Bidirectional", "HostToContainer", "None")
        )
        if propagation == "Bidirectional" and not container.get("securityContext", {}).get("privileged"):
            detail = "Bidirectional mount propagation is available only to privileged containers"
            errors.forbidden(f"{path}.volumeMounts.mountPropagation", detail)
        _validate_recursive_read_only(errors, f"{path}.volumeMounts.recursiveReadOnly", mount)
    if devices:
        _validate_devices(errors, f"{path}.volumeDevices", devices, mounts, volumes)


def _validate_recursive_read_only(errors: ErrorList, path: str, mount: JSON) -> None:
    recursive_read_only, supported = mount.get("recursiveReadOnly"), ("Disabled", "Enabled", "IfPossible")
    if recursive_read_only in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            errors.forbidden(path, "may only be specified when readOnly is true")
        if mount.get("mountPropagation", "None") != "None":
            errors.forbidden(path, "may only be specified when mountPropagation is None or not specified")
    else:
        errors.one_of(path, recursive_read_only, supported)


def _validate_devices(
    errors: ErrorList, path: str, devices: Sequence[JSON], mounts: Sequence[JSON], volumes: Volumes
) -> None:
    names, paths = set(), set()
    mount_paths = {mount.get("name", ""): mount.get("mountPath", "") for mount in mounts}
    for i, device in enumerate(devices):
        where, name, device_path = f"{path}[{i}]", device.get("name", ""), device.get("devicePath", "")
        errors.require(f"{where}.name", name)
        if name in names:
            errors.invalid(f"{where}.name", name, "must be unique")
        if name not in volumes:
            errors.not_found(f"{where}.name", name)
        elif not {"persistentVolumeClaim", "ephemeral"} & volumes[name].keys():
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            errors.invalid(f"{where}.name", name, detail)
        errors.require(f"{where}.devicePath", device_path)
        if device_path in paths:
            errors.invalid(f"{where}.devicePath", device_path, "must be unique")
        if ".." in device_path.split("/"):
            errors.invalid(f"{where}.devicePath", device_path, "can not contain backsteps ('..')")
        else:
            paths.add(device_path)
        if name in mount_paths:
            errors.invalid(f"{where}.name", name, "must not already exist in volumeMounts")
        if device_path in mount_paths.values():
            errors.invalid(f"{where}.devicePath", device_path, "must not already exist as a path in volumeMounts")
        if name:
            names.add(name)


_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")


def _validate_handler_type(errors: ErrorList, path: str, handler: JSON, grace_seconds: int | None) -> None:
    kinds = [name for name in _HANDLERS if handler.get(name) is not None]
    if not errors.require(path, kinds, "must specify a handler type"):
        return
    _validate_handler(errors, path, kinds[0], handler, grace_seconds)
    for name in kinds[1:]:
        errors.forbidden(f"{path}.{name}", "may not specify more than 1 handler type")


def _validate_handler(errors: ErrorList, path: str, kind: str, handler: JSON, grace_seconds: int | None) -> None:
    where, action = f"{path}.{kind}", handler[kind]
    if kind == "exec":
        errors.required_fields(where, action, "command")
    elif kind == "httpGet":
        errors.required_fields(where, action, "path")
        validate_port_number_or_name(errors, f"{where}.port", action.get("port", 0))
        errors.one_of(f"{where}.scheme", action.get("scheme", ""), ("HTTP", "HTTPS"))
        for header in action.get("httpHeaders", ()):
            errors.check(f"{where}.httpHeaders", header.get("name", ""), header_name)
    elif kind == "sleep":
        seconds = action.get("seconds", 0)
        if grace_seconds is not None and not 0 <= seconds <= grace_seconds:
            detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_seconds})"
            errors.invalid(where, seconds, detail)
    else:
        validate_port_number_or_name(errors, f"{where}.port", action.get("port", 0))


_PROBE_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")


def _validate_probes(errors: ErrorList, path: str, container: JSON, grace_seconds: int | None) -> None:
    for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(kind)
        if probe is None:
            continue
        where = f"{path}.{kind}"
        _validate_handler_type(errors, where, probe, grace_seconds)
        errors.not_negative_fields(where, probe, *_PROBE_NUMBERS)
        own_grace = probe.get("terminationGracePeriodSeconds")
        if own_grace is not None and own_grace <= 0:
            errors.invalid(f"{where}.terminationGracePeriodSeconds", own_grace, "must be greater than 0")
        if kind == "readinessProbe":
            if own_grace is not None:
                detail = "must not be set for readinessProbes"
                errors.invalid(f"{where}.terminationGracePeriodSeconds", own_grace, detail)
        elif probe.get("successThreshold", 0) != 1:
            errors.invalid(f"{where}.successThreshold", probe.get("successThreshold", 0), "must be 1")


def _validate_lifecycle(
    errors: ErrorList, path: str, container: JSON, grace_seconds: int | None, system: JSON | None
) -> None:
    """Validate the lifecycle of a container. system: spec.os of the pod."""
    lifecycle = container.get("lifecycle", {})
    for name in ("postStart", "preStop"):
        handler = lifecycle.get(name)
        if handler is not None:
            _validate_handler_type(errors, f"{path}.lifecycle.{name}", handler, grace_seconds)
    if (signal := lifecycle.get("stopSignal")) is not None:
        where = f"{path}.lifecycle.stopSignal"
        if system is None:
            errors.forbidden(where, "may not be set for containers with empty `spec.os.name`")
        elif (signals := _STOP_SIGNALS.get(system.get("name", ""))) is not None and signal not in signals:
            errors.not_supported(where, signal, signals)


_LINUX_SIGNALS = """
    ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT RTMAX RTMIN SEGV STKFLT STOP SYS
    TERM TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ
"""
_STOP_SIGNALS = {
    "linux": sorted(
        [
            *(f"SIG{name}" for name in _LINUX_SIGNALS.split()),
            *(f"SIGRTMIN+{number}" for number in range(1, 16)),
            *(f"SIGRTMAX-{number}" for number in range(1, 15)),
        ]
    ),
    "windows": ["SIGKILL", "SIGTERM"],
}
"""Signals by operating system. Source: validateStopSignal."""


def _validate_container(errors: ErrorList, path: str, container: JSON, spec: JSON, volumes: Volumes) -> None:
    name = container.get("name", "")
    if errors.require(f"{path}.name", name):
        problems = dns_label(name)
        if problems:
            errors.invalid_each(f"{path}.name", name, problems)
    errors.required_fields(path, container, "image")
    policy = container.get("terminationMessagePolicy", "")
    errors.one_of(f"{path}.terminationMessagePolicy", policy, ("File", "FallbackToLogsOnError"))
    if "ports" in container:
        _validate_ports(errors, f"{path}.ports", container["ports"])
    if "env" in container:
        _validate_environment(errors, f"{path}.env", container["env"])
    if "envFrom" in container:
        _validate_environment_sources(errors, f"{path}.envFrom", container["envFrom"])
    if "volumeMounts" in container or "volumeDevices" in container:
        _validate_mounts(errors, path, container, volumes)
    pull_policy = container.get("imagePullPolicy", "")
    errors.one_of(f"{path}.imagePullPolicy", pull_policy, ("Always", "IfNotPresent", "Never"))
    resources = container.get("resources")
    if resources:
        validate_resource_requirements(errors, f"{path}.resources", resources)
        if resources.get("claims"):
            validate_container_claims(errors, f"{path}.resources.claims", resources["claims"], spec)
    if container.get("resizePolicy"):
        _validate_resize_policy(
            errors, f"{path}.resizePolicy", container["resizePolicy"], spec.get("restartPolicy", "")
        )
    if "securityContext" in container:
        in_host_user_namespace = spec.get("hostUsers") is not False
        validate_container_security_context(
            errors, f"{path}.securityContext", container["securityContext"], host_users=in_host_user_namespace
        )


_MAX_RESTART_RULES, _MAX_EXIT_CODES = 20, 255


def _validate_restart_policy(errors: ErrorList, path: str, container: JSON, *, is_init_container: bool = False) -> None:
    """Validate restart policy and rules; the rules of an init container without a policy are not validated."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules", ())
    if policy is None:
        if rules:
            errors.required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used")
        if is_init_container:
            return
    elif policy not in ("Always", "Never", "OnFailure"):
        errors.not_supported(f"{path}.restartPolicy", policy, ("Always", "Never", "OnFailure"))
    restarts_all = errors.gates.enabled("RestartAllContainersOnContainerExits")
    if is_init_container and policy == "Always" and not restarts_all:
        if rules:
            detail = "restartPolicyRules are not allowed for init containers with restart policy Always"
            errors.forbidden(f"{path}.restartPolicyRules", detail)
        return
    errors.at_most(f"{path}.restartPolicyRules", rules, _MAX_RESTART_RULES)
    actions = ("Restart", "RestartAllContainers") if restarts_all else ("Restart",)
    for i, rule in enumerate(rules):
        where, codes = f"{path}.restartPolicyRules[{i}]", rule.get("exitCodes")
        errors.one_of(f"{where}.action", rule.get("action", ""), actions)
        if codes is None:
            errors.required(f"{where}.exitCodes", "must be specified")
            continue
        errors.one_of(f"{where}.exitCodes.operator", codes.get("operator", ""), ("In", "NotIn"))
        if len(codes.get("values", ())) > _MAX_EXIT_CODES:
            errors.too_many(f"{where}.exitCodes.values", len(codes["values"]), _MAX_EXIT_CODES)


def validate_containers(errors: ErrorList, path: str, spec: JSON, volumes: Volumes) -> None:
    """Validate spec.containers."""
    containers, grace_seconds = spec.get("containers"), spec.get("terminationGracePeriodSeconds")
    if not containers:
        errors.required(path)
        return
    names: set[str] = set()
    for i, container in enumerate(containers):
        where = f"{path}[{i}]"
        _validate_container(errors, where, container, spec, volumes)
        name = container.get("name", "")
        errors.unique(f"{where}.name", name, names)
        if "lifecycle" in container:
            _validate_lifecycle(errors, where, container, grace_seconds, spec.get("os"))
        _validate_probes(errors, where, container, grace_seconds)
        _validate_restart_policy(errors, where, container)
    validate_host_port_conflicts(errors, path, containers)


def validate_init_containers(errors: ErrorList, path: str, spec: JSON, volumes: Volumes) -> None:
    """Validate spec.initContainers."""
    grace_seconds = spec.get("terminationGracePeriodSeconds")
    names = {main_container.get("name", "") for main_container in spec.get("containers") or ()}
    for i, container in enumerate(spec.get("initContainers", ())):
        where = f"{path}[{i}]"
        _validate_container(errors, where, container, spec, volumes)
        policy, name = container.get("restartPolicy"), container.get("name", "")
        _validate_restart_policy(errors, where, container, is_init_container=True)
        if name in names:
            errors.duplicate(f"{where}.name", name)
        elif name:
            names.add(name)
        validate_host_port_conflicts(errors, path, [container])
        if policy == "Always":
            _validate_lifecycle(errors, where, container, grace_seconds, spec.get("os"))
            _validate_probes(errors, where, container, grace_seconds)
        else:
            for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
                if field in container:
                    detail = "may not be set for init containers without restartPolicy=Always"
                    errors.forbidden(f"{where}.{field}", detail)
            for j, main_container in enumerate(container.get("resizePolicy", ())):
                if main_container.get("restartPolicy") == "RestartContainer":
                    detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                    policy_path = f"{path}[{i}].resizePolicy[{j}].restartPolicy"
                    errors.invalid(policy_path, main_container["restartPolicy"], detail)


_FORBIDDEN_IN_EPHEMERAL = (
    "ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules", "livenessProbe", "readinessProbe",
    "startupProbe", "lifecycle",
)  # fmt: skip
IMAGE_WHITESPACE = "must not have leading or trailing whitespace"


def validate_ephemeral_containers(errors: ErrorList, path: str, spec: JSON, volumes: Volumes) -> None:
    """Validate spec.ephemeralContainers."""
    target_names = {
        target_container.get("name", "")
        for target_container in (*(spec.get("containers") or ()), *spec.get("initContainers", ()))
    }
    names = set(target_names)
    for i, container in enumerate(spec.get("ephemeralContainers", ())):
        where = f"{path}[{i}]"
        _validate_container(errors, where, container, spec, volumes)
        image, name = container.get("image", ""), container.get("name", "")
        if image != image.strip():
            errors.invalid(f"{where}.image", image, IMAGE_WHITESPACE)
        target = container.get("targetContainerName", "")
        errors.unique(f"{where}.name", name, names)
        if target and target not in target_names:
            errors.not_found(f"{where}.targetContainerName", target)
        for field in _FORBIDDEN_IN_EPHEMERAL:
            if container.get(field) or (field in container and field != "resources"):
                errors.forbidden(f"{where}.{field}", "cannot be set for an Ephemeral Container")
        for j, mount in enumerate(container.get("volumeMounts", ())):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    errors.forbidden(f"{where}.volumeMounts[{j}].{field}", "cannot be set for an Ephemeral Container")
