"""What a row of `kubectl get` says about an object of each kind.

One function per kind takes the object and the time and returns its cells in the order of columns.json, wide columns
included. An object is as the server stores it: decoded and defaulted. Source: kubernetes/pkg/printers/internalversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from kubeloop.kube.selectors import Requirement, Selector

JSON = dict[str, Any]
Cells = list[Any]
Print = Callable[[JSON, datetime], Cells]

NONE, UNSET, UNKNOWN = "<none>", "<unset>", "<unknown>"


# --- ages -------------------------------------------------------------------------------------------------------------


def human_duration(elapsed: timedelta) -> str:
    """Two units at most, and the second only while it matters: "45s", "5m30s", "3d4h". Source: HumanDuration."""
    total = elapsed.total_seconds()
    seconds = int(total)
    if seconds < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def since(time: str | None, now: datetime) -> str:
    """The age of a timestamp as the API writes it; "<unknown>" where there is none."""
    return human_duration(now - datetime.fromisoformat(time)) if time else UNKNOWN


# --- parts ------------------------------------------------------------------------------------------------------------


def _name(obj: JSON) -> str:
    return str(obj["metadata"].get("name", ""))


def _age(obj: JSON, now: datetime) -> str:
    return since(obj["metadata"].get("creationTimestamp"), now)


def _spec(obj: JSON) -> JSON:
    return obj.get("spec") or {}


def _status(obj: JSON) -> JSON:
    return obj.get("status") or {}


def _deleted(obj: JSON) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def _labels(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) if labels else NONE


_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def _selector_text(selector: JSON | None) -> str:
    if selector is None:
        return ""
    requirements = [Requirement(key, "=", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        operator: Any = _OPERATORS.get(each["operator"])
        if operator is None:
            return "<invalid>"
        requirements.append(Requirement(each["key"], operator, tuple(each.get("values") or ())))
    return str(Selector(requirements))


def _selector(selector: JSON | None) -> str:
    return _selector_text(selector) or NONE


def _containers(template: JSON | None) -> list[str]:
    """Names and images of a pod template."""
    containers = _spec(template or {}).get("containers") or ()
    return [",".join(each["name"] for each in containers), ",".join(each.get("image", "") for each in containers)]


def _condition(obj: JSON, type_: str) -> JSON | None:
    return next((each for each in _status(obj).get("conditions") or () if each.get("type") == type_), None)


def _is_true(obj: JSON, type_: str) -> bool:
    condition = _condition(obj, type_)
    return condition is not None and condition.get("status") == "True"


def _at_most(entries: Sequence[str], limit: int, empty: str) -> str:
    text = ",".join(entries[:limit]) or empty
    return f"{text} + {len(entries) - limit} more..." if len(entries) > limit else text


# --- pods -------------------------------------------------------------------------------------------------------------


def _terminated_reason(terminated: JSON) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _last_finish(status: JSON) -> str:
    finished = ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
    return finished or ""


def _init_reason(status: JSON, index: int, count: int) -> str:
    state = status.get("state") or {}
    waiting = (state.get("waiting") or {}).get("reason", "")
    if terminated := state.get("terminated"):
        return f"Init:{_terminated_reason(terminated)}"
    if waiting and waiting != "PodInitializing":
        return f"Init:{waiting}"
    return f"Init:{index}/{count}"


def _pod(pod: JSON, now: datetime) -> Cells:
    spec, status = _spec(pod), _status(pod)
    phase = status.get("phase", "")
    reason = status.get("reason") or phase
    scheduled = _condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"

    init_containers = spec.get("initContainers") or ()
    sidecars = {each["name"] for each in init_containers if each.get("restartPolicy") == "Always"}
    total = len(spec.get("containers") or ()) + len(sidecars)
    ready = restarts = sidecar_restarts = 0
    last_restart = last_sidecar_restart = ""
    initializing = False
    for index, each in enumerate(status.get("initContainerStatuses") or ()):
        count, finished = each.get("restartCount", 0), _last_finish(each)
        restarts += count
        last_restart = max(last_restart, finished)
        sidecar = each["name"] in sidecars
        if sidecar:
            sidecar_restarts += count
            last_sidecar_restart = max(last_sidecar_restart, finished)
        terminated = (each.get("state") or {}).get("terminated")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if sidecar and each.get("started"):
            ready += bool(each.get("ready"))
            continue
        reason = _init_reason(each, index, len(init_containers))
        initializing = True
        break

    if not initializing or _is_true(pod, "Initialized"):
        restarts, last_restart = sidecar_restarts, last_sidecar_restart
        running = False
        for each in reversed(status.get("containerStatuses") or ()):
            restarts += each.get("restartCount", 0)
            last_restart = max(last_restart, _last_finish(each))
            state = each.get("state") or {}
            if waiting := (state.get("waiting") or {}).get("reason"):
                reason = waiting
            elif (terminated := state.get("terminated")) is not None:
                reason = _terminated_reason(terminated)
            elif each.get("ready") and state.get("running") is not None:
                running = True
                ready += 1
        if reason == "Completed" and running:  # some containers go on
            reason = "Running" if _is_true(pod, "Ready") else "NotReady"

    if _deleted(pod) and status.get("reason") == "NodeLost":
        reason = "Unknown"
    elif _deleted(pod) and phase not in ("Succeeded", "Failed"):
        reason = "Terminating"

    gates = spec.get("readinessGates") or ()
    passed = sum(_is_true(pod, gate["conditionType"]) for gate in gates)
    pod_ips = status.get("podIPs") or ()
    return [
        _name(pod),
        f"{ready}/{total}",
        reason,
        f"{restarts} ({since(last_restart, now)} ago)" if restarts and last_restart else str(restarts),
        _age(pod, now),
        (pod_ips[0].get("ip") if pod_ips else "") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


def _pod_template(obj: JSON, _now: datetime) -> Cells:
    template = obj.get("template") or {}
    return [_name(obj), *_containers(template), _labels((template.get("metadata") or {}).get("labels"))]


# --- workloads --------------------------------------------------------------------------------------------------------


def _deployment(obj: JSON, now: datetime) -> Cells:
    spec, status = _spec(obj), _status(obj)
    return [
        _name(obj),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _age(obj, now),
        *_containers(spec.get("template")),
        _selector_text(spec.get("selector")),
    ]


def _replicas(obj: JSON, now: datetime) -> Cells:
    spec, status = _spec(obj), _status(obj)
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [_name(obj), *counts, _age(obj, now), *_containers(spec.get("template"))]


def _replica_set(obj: JSON, now: datetime) -> Cells:
    return [*_replicas(obj, now), _selector(_spec(obj).get("selector"))]


def _replication_controller(obj: JSON, now: datetime) -> Cells:
    return [*_replicas(obj, now), _labels(_spec(obj).get("selector"))]


def _stateful_set(obj: JSON, now: datetime) -> Cells:
    spec = _spec(obj)
    ready = f"{_status(obj).get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [_name(obj), ready, _age(obj, now), *_containers(spec.get("template"))]


def _daemon_set(obj: JSON, now: datetime) -> Cells:
    spec, status = _spec(obj), _status(obj)
    template = spec.get("template") or {}
    return [
        _name(obj),
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        _labels(_spec(template).get("nodeSelector")),
        _age(obj, now),
        *_containers(template),
        _selector(spec.get("selector")),
    ]


def _job_status(job: JSON) -> str:
    for condition, text in (("Complete", "Complete"), ("Failed", "Failed")):
        if _is_true(job, condition):
            return text
    if _deleted(job):
        return "Terminating"
    return next((each for each in ("Suspended", "FailureTarget") if _is_true(job, each)), "Running")


def _job(job: JSON, now: datetime) -> Cells:
    spec, status = _spec(job), _status(job)
    succeeded, parallelism = status.get("succeeded", 0), spec.get("parallelism") or 0
    completions = f"{succeeded}/1"
    if spec.get("completions") is not None:
        completions = f"{succeeded}/{spec['completions']}"
    elif parallelism > 1:
        completions = f"{succeeded}/1 of {parallelism}"
    duration = ""
    if started := status.get("startTime"):
        ended = status.get("completionTime")
        until = datetime.fromisoformat(ended) if ended else now
        duration = human_duration(until - datetime.fromisoformat(started))
    return [
        _name(job),
        _job_status(job),
        completions,
        duration,
        _age(job, now),
        *_containers(spec.get("template")),
        _selector(spec.get("selector")),
    ]


def _cron_job(obj: JSON, now: datetime) -> Cells:
    spec, status = _spec(obj), _status(obj)
    job = _spec(spec.get("jobTemplate") or {})
    last = status.get("lastScheduleTime")
    suspend = spec.get("suspend")
    return [
        _name(obj),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        UNSET if suspend is None else str(bool(suspend)),
        len(status.get("active") or ()),
        since(last, now) if last else NONE,
        _age(obj, now),
        *_containers(job.get("template")),
        _selector(job.get("selector")),
    ]


def _controller_revision(obj: JSON, now: datetime) -> Cells:
    owners = obj["metadata"].get("ownerReferences") or ()
    controller = NONE
    if owner := next((each for each in owners if each.get("controller")), None):
        group = owner["apiVersion"].rpartition("/")[0]
        kind = f"{owner['kind']}.{group}" if group else owner["kind"]
        controller = f"{kind.lower()}/{owner['name']}"
    return [_name(obj), controller, obj.get("revision", 0), _age(obj, now)]


def _scale(obj: JSON, now: datetime) -> Cells:
    return [_name(obj), _spec(obj).get("replicas", 0), _status(obj).get("replicas", 0), _age(obj, now)]


def _disruption_budget(obj: JSON, now: datetime) -> Cells:
    spec = _spec(obj)
    limits = [str(spec[name]) if spec.get(name) is not None else "N/A" for name in ("minAvailable", "maxUnavailable")]
    return [_name(obj), *limits, _status(obj).get("disruptionsAllowed", 0), _age(obj, now)]


def _autoscaler_value(metric: JSON, which: str, field: str) -> Any:
    return (metric.get(which) or {}).get(field)


def _autoscaler_target(spec: JSON, status: JSON | None) -> str:
    source = spec.get("type", "")
    key = source[:1].lower() + source[1:]
    target = spec.get(key)
    if target is None:
        return "<unknown type>"
    current = (status or {}).get(key)

    def now_at(field: str) -> str:
        value = _autoscaler_value(current, "current", field) if current else None
        return UNKNOWN if value is None else f"{value}%" if field == "averageUtilization" else str(value)

    average = _autoscaler_value(target, "target", "averageValue")
    if source in ("Resource", "ContainerResource"):
        if average is not None:
            return f"{target.get('name', '')}: {now_at('averageValue')}/{average}"
        utilization = _autoscaler_value(target, "target", "averageUtilization")
        wanted = "<auto>" if utilization is None else f"{utilization}%"
        return f"{target.get('name', '')}: {now_at('averageUtilization')}/{wanted}"
    if source == "Pods":
        return f"{now_at('averageValue')}/{average}"
    if average is not None:
        return f"{now_at('averageValue')}/{average} (avg)"
    return f"{now_at('value')}/{_autoscaler_value(target, 'target', 'value')}"


def _autoscaler(obj: JSON, now: datetime) -> Cells:
    spec, status = _spec(obj), _status(obj)
    reference = spec.get("scaleTargetRef") or {}
    current = status.get("currentMetrics") or ()
    targets = [
        _autoscaler_target(each, current[index] if index < len(current) else None)
        for index, each in enumerate(spec.get("metrics") or ())
    ]
    shown = ", ".join(targets[:2]) or NONE
    return [
        _name(obj),
        f"{reference.get('kind', '')}/{reference.get('name', '')}",
        f"{shown} + {len(targets) - 2} more..." if len(targets) > 2 else shown,
        UNSET if spec.get("minReplicas") is None else str(spec["minReplicas"]),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        _age(obj, now),
    ]


# --- network ----------------------------------------------------------------------------------------------------------


def _balancer_addresses(obj: JSON) -> str:
    ingress = (_status(obj).get("loadBalancer") or {}).get("ingress") or ()
    return ",".join(sorted({each.get("ip") or each.get("hostname", "") for each in ingress} - {""}))


def _external_ip(service: JSON) -> str:
    spec = _spec(service)
    external = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external) or NONE
        case "LoadBalancer":
            balancer = _balancer_addresses(service)
            return ",".join([balancer, *external] if balancer else external) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
    return UNKNOWN


def _service_port(port: JSON) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node_port}/{port.get('protocol', '')}"


def _service(obj: JSON, now: datetime) -> Cells:
    spec = _spec(obj)
    addresses = spec.get("clusterIPs") or ()
    return [
        _name(obj),
        spec.get("type", ""),
        addresses[0] if addresses else NONE,
        _external_ip(obj),
        ",".join(_service_port(port) for port in spec.get("ports") or ()) or NONE,
        _age(obj, now),
        _labels(spec.get("selector")),
    ]


def _endpoint_addresses(subsets: Iterable[JSON]) -> list[str]:
    found: list[str] = []
    for subset in subsets:
        addresses = [each["ip"] for each in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        if not ports:
            found += addresses
        for port in ports:
            found += [f"[{ip}]:{port['port']}" if ":" in ip else f"{ip}:{port['port']}" for ip in addresses]
    return found


def _endpoints(obj: JSON, now: datetime) -> Cells:
    subsets = obj.get("subsets") or ()
    shown = _at_most(_endpoint_addresses(subsets), 3, "") if subsets else NONE
    return [_name(obj), shown, _age(obj, now)]


def _endpoint_slice(obj: JSON, now: datetime) -> Cells:
    ports = [
        str(each["port"]) if each.get("port") is not None else "*" if each.get("name") is None else each["name"]
        for each in obj.get("ports") or ()
    ]
    addresses = [address for each in obj.get("endpoints") or () for address in each.get("addresses") or ()]
    kind = obj.get("addressType", "")
    return [_name(obj), kind, _at_most(ports, 3, UNSET), _at_most(addresses, 3, UNSET), _age(obj, now)]


def _ingress(obj: JSON, now: datetime) -> Cells:
    spec = _spec(obj)
    rules = spec.get("rules") or ()
    hosts = [rule["host"] for rule in rules if rule.get("host")]
    shown = ",".join(hosts[:3]) or "*"
    if len(hosts) >= 3 and len(rules) > 3:
        shown += f" + {len(rules) - 3} more..."
    return [
        _name(obj),
        spec.get("ingressClassName") or NONE,
        shown,
        _balancer_addresses(obj),
        "80, 443" if spec.get("tls") else "80",
        _age(obj, now),
    ]


def _ingress_class(obj: JSON, now: datetime) -> Cells:
    spec = _spec(obj)
    shown = NONE
    if parameters := spec.get("parameters"):
        group = parameters.get("apiGroup")
        shown = f"{parameters['kind']}{'.' + group if group is not None else ''}/{parameters['name']}"
    return [_name(obj), spec.get("controller", ""), shown, _age(obj, now)]


def _network_policy(obj: JSON, now: datetime) -> Cells:
    return [_name(obj), _selector(_spec(obj).get("podSelector") or {}), _age(obj, now)]


# --- nodes and storage ------------------------------------------------------------------------------------------------


def _node_roles(node: JSON) -> str:
    roles: set[str] = set()
    for key, value in (node["metadata"].get("labels") or {}).items():
        if key.startswith("node-role.kubernetes.io/"):
            roles.add(key.removeprefix("node-role.kubernetes.io/"))
        elif key == "kubernetes.io/role":
            roles.add(value)
    return ",".join(sorted(roles - {""})) or NONE


def _node(obj: JSON, now: datetime) -> Cells:
    status = _status(obj)
    info = status.get("nodeInfo") or {}
    ready = _condition(obj, "Ready")
    shown = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    if _spec(obj).get("unschedulable"):
        shown += ",SchedulingDisabled"
    addresses = status.get("addresses") or ()

    def address(kind: str) -> str:
        return next((each["address"] for each in addresses if each.get("type") == kind), NONE)

    return [
        _name(obj),
        shown,
        _node_roles(obj),
        _age(obj, now),
        info.get("kubeletVersion", ""),
        address("InternalIP"),
        address("ExternalIP"),
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


_ACCESS_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _access_modes(modes: Iterable[str] | None) -> str:
    given = set(modes or ())
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in given)


def _storage_class_name(obj: JSON) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    return str(annotations.get("volume.beta.kubernetes.io/storage-class") or _spec(obj).get("storageClassName") or "")


def _phase(obj: JSON) -> str:
    return "Terminating" if _deleted(obj) else str(_status(obj).get("phase", ""))


def _volume(obj: JSON, now: datetime) -> Cells:
    spec = _spec(obj)
    claim = spec.get("claimRef")
    return [
        _name(obj),
        (spec.get("capacity") or {}).get("storage", "0"),
        _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _storage_class_name(obj),
        spec.get("volumeAttributesClassName") or UNSET,
        _status(obj).get("reason", ""),
        _age(obj, now),
        spec.get("volumeMode") or UNSET,
    ]


def _volume_claim(obj: JSON, now: datetime) -> Cells:
    spec, status = _spec(obj), _status(obj)
    volume = spec.get("volumeName", "")
    return [
        _name(obj),
        _phase(obj),
        volume,
        (status.get("capacity") or {}).get("storage", "0") if volume else "",
        _access_modes(status.get("accessModes")) if volume else "",
        _storage_class_name(obj),
        spec.get("volumeAttributesClassName") or UNSET,
        _age(obj, now),
        spec.get("volumeMode") or UNSET,
    ]


def _storage_class(obj: JSON, now: datetime) -> Cells:
    annotations = obj["metadata"].get("annotations") or {}
    marks = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
    default = any(annotations.get(mark) == "true" for mark in marks)
    return [
        _name(obj) + (" (default)" if default else ""),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        _age(obj, now),
    ]


def _volume_attachment(obj: JSON, now: datetime) -> Cells:
    spec = _spec(obj)
    volume = (spec.get("source") or {}).get("persistentVolumeName") or ""
    attached = bool(_status(obj).get("attached"))
    return [_name(obj), spec.get("attacher", ""), volume, spec.get("nodeName", ""), attached, _age(obj, now)]


def _csi_node(obj: JSON, now: datetime) -> Cells:
    return [_name(obj), len(_spec(obj).get("drivers") or ()), _age(obj, now)]


def _csi_driver(obj: JSON, now: datetime) -> Cells:
    spec = _spec(obj)
    requests = spec.get("tokenRequests")
    return [
        _name(obj),
        spec.get("attachRequired") is not False,
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        UNSET if requests is None else ",".join(each.get("audience", "") for each in requests),
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        _age(obj, now),
    ]


def _csi_storage_capacity(obj: JSON, _now: datetime) -> Cells:
    return [_name(obj), obj.get("storageClassName", ""), obj.get("capacity") or UNSET]


# --- the rest ---------------------------------------------------------------------------------------------------------


def _event(obj: JSON, now: datetime) -> Cells:
    """An event of either group: events.k8s.io names the same fields differently."""
    involved = obj.get("involvedObject") or obj.get("regarding") or {}
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    first = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    last = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp") or first
    count = obj.get("count") or obj.get("deprecatedCount") or 1
    if series := obj.get("series"):
        last, count = series.get("lastObservedTime"), series.get("count", 0)
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    host = source.get("host") or obj.get("reportingInstance")
    kind = involved.get("kind", "").lower()
    return [
        since(last, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{involved['name']}" if involved.get("name") else kind,
        involved.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        (obj.get("message") or obj.get("note") or "").strip(),
        since(first, now),
        count,
        _name(obj),
    ]


def _namespace(obj: JSON, now: datetime) -> Cells:
    return [_name(obj), _status(obj).get("phase", ""), _age(obj, now)]


def _config_map(obj: JSON, now: datetime) -> Cells:
    return [_name(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), _age(obj, now)]


def _secret(obj: JSON, now: datetime) -> Cells:
    return [_name(obj), obj.get("type", ""), len(obj.get("data") or ()), _age(obj, now)]


def _service_account(obj: JSON, now: datetime) -> Cells:
    return [_name(obj), len(obj.get("secrets") or ()), _age(obj, now)]


def _lease(obj: JSON, now: datetime) -> Cells:
    return [_name(obj), _spec(obj).get("holderIdentity") or "", _age(obj, now)]


def _resource_quota(obj: JSON, now: datetime) -> Cells:
    hard, used = _status(obj).get("hard") or {}, _status(obj).get("used") or {}
    shown = {name: f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)}
    requests = ", ".join(text for name, text in shown.items() if not name.startswith("limits."))
    limits = ", ".join(text for name, text in shown.items() if name.startswith("limits."))
    return [_name(obj), requests, limits, _age(obj, now)]


def _priority_class(obj: JSON, now: datetime) -> Cells:
    default = bool(obj.get("globalDefault"))
    return [_name(obj), obj.get("value", 0), default, _age(obj, now), obj.get("preemptionPolicy") or ""]


def _runtime_class(obj: JSON, now: datetime) -> Cells:
    return [_name(obj), obj.get("handler", ""), _age(obj, now)]


def _role_binding(obj: JSON, now: datetime) -> Cells:
    role = obj.get("roleRef") or {}
    subjects = obj.get("subjects") or ()

    def named(kind: str) -> str:
        return ", ".join(each["name"] for each in subjects if each.get("kind") == kind)

    accounts = [
        f"{each.get('namespace', '')}/{each['name']}" for each in subjects if each.get("kind") == "ServiceAccount"
    ]
    reference = f"{role.get('kind', '')}/{role.get('name', '')}"
    return [_name(obj), reference, _age(obj, now), named("User"), named("Group"), ", ".join(accounts)]


def _any_object(obj: JSON, _now: datetime) -> Cells:
    return [_name(obj), obj["metadata"].get("creationTimestamp", "")]


PRINTERS: dict[str, Print] = {
    "": _any_object,
    "scale": _scale,
    "configmaps": _config_map,
    "controllerrevisions.apps": _controller_revision,
    "cronjobs.batch": _cron_job,
    "csidrivers.storage.k8s.io": _csi_driver,
    "csinodes.storage.k8s.io": _csi_node,
    "csistoragecapacities.storage.k8s.io": _csi_storage_capacity,
    "clusterrolebindings.rbac.authorization.k8s.io": _role_binding,
    "daemonsets.apps": _daemon_set,
    "deployments.apps": _deployment,
    "endpoints": _endpoints,
    "endpointslices.discovery.k8s.io": _endpoint_slice,
    "events": _event,
    "horizontalpodautoscalers.autoscaling": _autoscaler,
    "ingressclasses.networking.k8s.io": _ingress_class,
    "ingresses.networking.k8s.io": _ingress,
    "jobs.batch": _job,
    "leases.coordination.k8s.io": _lease,
    "namespaces": _namespace,
    "networkpolicies.networking.k8s.io": _network_policy,
    "nodes": _node,
    "persistentvolumeclaims": _volume_claim,
    "persistentvolumes": _volume,
    "poddisruptionbudgets.policy": _disruption_budget,
    "pods": _pod,
    "podtemplates": _pod_template,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "replicasets.apps": _replica_set,
    "replicationcontrollers": _replication_controller,
    "resourcequotas": _resource_quota,
    "rolebindings.rbac.authorization.k8s.io": _role_binding,
    "runtimeclasses.node.k8s.io": _runtime_class,
    "secrets": _secret,
    "serviceaccounts": _service_account,
    "services": _service,
    "statefulsets.apps": _stateful_set,
    "storageclasses.storage.k8s.io": _storage_class,
    "volumeattachments.storage.k8s.io": _volume_attachment,
}
"""By group resource; "scale" for the subresource of that name, "" for kinds that nobody wrote a printer for."""
