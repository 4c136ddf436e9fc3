"""Initial objects by kind, as kube-apiserver v1.36 creates them (authorization: AlwaysAllow, then RBAC).

Sources: pkg/controlplane, pkg/registry/{rbac,flowcontrol,scheduling}/rest, kube-aggregator; what those kinds hold is in
`rbac.json` and `flow_control.json`, by name ("namespace/name").
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from ipaddress import IPv4Network

import msgspec

from kubeloop.devcluster.admission.priority import SYSTEM_PRIORITY_CLASSES
from kubeloop.devcluster.api.served_resources import all_api_gates, api_gates, group_versions
from kubeloop.devcluster.registry.server_objects import ServerObject, namespace_object, with_applied_rules
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.json_object import JSON

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
AUTOMANAGED = "kube-aggregator.kubernetes.io/automanaged"


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a server. host: the machine's name; address, port: where other machines would reach it."""

    host: str = "kubeloop"
    address: str = "192.0.2.1"
    port: int = 6443

    @property
    def name(self) -> str:
        """Return the name of the server's lease. Source: apiserver pkg/server/config.go."""
        parts = (part.encode() for part in (self.host, "kube-apiserver"))
        digest = sha256(b"".join(len(part).to_bytes(2) + part for part in parts)).digest()[:16]
        return f"apiserver-{b32encode(digest).decode().rstrip('=').lower()}"


# --- the same in all servers ------------------------------------------------------------------------------------------


def namespaces() -> Iterator[ServerObject]:
    for name in SYSTEM_NAMESPACES:
        yield namespace_object(name)


_CRITICAL = {
    "system-cluster-critical": "must run in the cluster, but can be moved to another node if necessary.",
    "system-node-critical": "must not be moved from their current node.",
}


def priority_classes() -> Iterator[ServerObject]:
    for name, value in SYSTEM_PRIORITY_CLASSES.items():
        description = f"Used for system critical pods that {_CRITICAL[name]}"
        content = {"value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority"}
        yield ServerObject(name, content=content)


_PRODUCER, CONSUMER = (f"api-priority-and-fairness-config-{role}-v1" for role in ("producer", "consumer"))
AUTOUPDATED = "apf.kubernetes.io/autoupdate-spec"
_UPDATED = {AUTOUPDATED: "true"}


def priority_levels() -> Iterator[ServerObject]:
    for name, spec in _read("flow_control.json")["prioritylevelconfigurations"].items():
        strategy_fields: JSON = {"status": {}}
        yield ServerObject(
            name, annotations=_UPDATED, content={"spec": spec}, strategy_fields=strategy_fields, manager=_PRODUCER
        )


def flow_schemas() -> Iterator[ServerObject]:
    for name, spec in _read("flow_control.json")["flowschemas"].items():
        status = {"conditions": [dangling(spec["priorityLevelConfiguration"]["name"], exists=True)]}
        yield ServerObject(
            name,
            annotations=_UPDATED,
            content={"spec": spec},
            status=status,
            status_applier=CONSUMER,
            manager=_PRODUCER,
        )


def dangling(level: str, *, exists: bool) -> JSON:
    """Return the Dangling condition of a FlowSchema with this priority level, without times."""
    message = f'This FlowSchema references the PriorityLevelConfiguration object named "{level}" '
    if exists:
        return {"type": "Dangling", "status": "False", "reason": "Found", "message": f"{message}and it exists"}
    return {
        "type": "Dangling",
        "status": "True",
        "reason": "NotFound",
        "message": f"{message}but there is no such object",
    }


def role_objects(plural: str) -> Iterator[ServerObject]:
    """Return the objects of one kind of rbac.authorization.k8s.io."""
    for key, content in _read("rbac.json")[plural].items():
        namespace, _, name = key.rpartition("/")
        labels = content.get("labels", {})
        yield ServerObject(
            name,
            namespace,
            labels={"kubernetes.io/bootstrapping": "rbac-defaults", **labels},
            annotations={"rbac.authorization.kubernetes.io/autoupdate": "true"},
            content={name: value for name, value in content.items() if name != "labels"},
        )


_SCHEDULER, _CLAIM_CONTROLLER = "system:kube-scheduler", "system:controller:resource-claim-controller"
_JOB_CONTROLLER = "system:controller:job-controller"
_VIEW, _EDIT = "system:aggregate-to-view", "system:aggregate-to-edit"
_READ, _WRITE = ("get", "list", "watch"), ("create", "delete", "deletecollection", "patch", "update")
_TAINT_CONTROLLER = "system:controller:device-taint-eviction-controller"
_CLAIMS, _CLAIM_BINDING = ("create", "delete", "resourceclaims"), ("patch", "update", "resourceclaims/binding")
_GROUP_STATUS = ("patch", "update", "podgroups/status")
_GATES_OF_RULES = {
    (_SCHEDULER, *_CLAIMS): "DRAExtendedResource",
    (_SCHEDULER, *_READ, "devicetaintrules"): "DRADeviceTaintRules",
    (_TAINT_CONTROLLER, *_READ, "devicetaintrules"): "DRADeviceTaintRules",
    (_TAINT_CONTROLLER, "patch", "update", "devicetaintrules/status"): "DRADeviceTaintRules",
    (_SCHEDULER, *_CLAIM_BINDING): "DRAResourceClaimGranularStatusAuthorization",
    (_CLAIM_CONTROLLER, *_CLAIM_BINDING): "DRAResourceClaimGranularStatusAuthorization",
    (_CLAIM_CONTROLLER, *_READ, "podgroups"): "DRAWorkloadResourceClaims",
    (_CLAIM_CONTROLLER, *_GROUP_STATUS): "DRAWorkloadResourceClaims",
    (_SCHEDULER, *_READ, "podgroups"): "GenericWorkload",
    (_SCHEDULER, *_GROUP_STATUS): "GenericWorkload",
    (_VIEW, *_READ, "podgroups", "podgroups/status", "workloads"): "GenericWorkload",
    (_EDIT, *_WRITE, "podgroups", "workloads"): "GenericWorkload",
    (_JOB_CONTROLLER, "create", *_READ, "podgroups", "workloads"): "WorkloadWithJob",
}
"""Feature gate by role, verbs and resources of a rule."""
_GATES_OF_ROLES = {
    _TAINT_CONTROLLER: "DRADeviceTaints",
    "system:controller:podgroup-protection-controller": "GenericWorkload",
}
"""Feature gate by role and binding."""
_GATES_OF_URLS = {"/flagz": "ComponentFlagz", "/statusz": "ComponentStatusz"}


def roles_with_gates(roles: Iterable[JSON], gates: FeatureGates) -> list[JSON]:
    """Return the roles and bindings of a server with these feature gates."""
    result = []
    for role in roles:
        name = role["metadata"]["name"]
        if name in _GATES_OF_ROLES and not gates.enabled(_GATES_OF_ROLES[name]):
            continue
        rules = role.get("rules")
        if rules:
            rules = [_with_urls(rule, gates) for rule in rules if _applies(name, rule, gates)]
        result.append({**role, "rules": rules} if rules else role)
    return result


def node_rules(gates: FeatureGates) -> list[JSON]:
    """Return the rules of the ClusterRole system:node."""
    rules: list[JSON] = _read("rbac.json")["clusterroles"]["system:node"]["rules"]
    return [rule for rule in rules if _applies("system:node", rule, gates)]


def aggregated_roles(roles: Sequence[JSON]) -> list[JSON]:
    """Return ClusterRoles with the rules that the controller clusterrole-aggregation would apply to them."""
    by_name = {role["metadata"]["name"]: role for role in sorted(roles, key=lambda role: str(role["metadata"]["name"]))}

    def rules_of(name: str) -> list[JSON]:
        role = by_name[name]
        if "aggregationRule" not in role:
            return role["rules"] or []
        rules: list[JSON] = []
        for selector in role["aggregationRule"]["clusterRoleSelectors"]:
            for other, selected in by_name.items():
                if selector["matchLabels"].items() <= selected["metadata"]["labels"].items():
                    rules += [rule for rule in rules_of(other) if rule not in rules]
        return rules

    return [
        with_applied_rules(role, rules_of(role["metadata"]["name"]), "clusterrole-aggregation-controller")
        if "aggregationRule" in role
        else role
        for role in roles
    ]


def _applies(role: str, rule: JSON, gates: FeatureGates) -> bool:
    gate = _GATES_OF_RULES.get((role, *rule["verbs"], *rule.get("resources", ())))
    return gate is None or gates.enabled(gate)


def _with_urls(rule: JSON, gates: FeatureGates) -> JSON:
    disabled = {url for url, gate in _GATES_OF_URLS.items() if not gates.enabled(gate)}
    if not disabled.intersection(rule.get("nonResourceURLs", ())):
        return rule
    return {**rule, "nonResourceURLs": [url for url in rule["nonResourceURLs"] if url not in disabled]}


_PRIORITIES = {
    "": 18000,
    "admissionregistration.k8s.io": 16700,
    "apiextensions.k8s.io": 16700,
    "apps": 17800,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "autoscaling": 17500,
    "batch": 17400,
    "certificates.k8s.io": 17300,
    "coordination.k8s.io": 16500,
    "discovery.k8s.io": 16200,
    "events.k8s.io": 17750,
    "flowcontrol.apiserver.k8s.io": 16100,
    "networking.k8s.io": 17200,
    "node.k8s.io": 16300,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "resource.k8s.io": 16200,
    "scheduling.k8s.io": 16600,
    "storage.k8s.io": 16800,
}
_VERSION_PRIORITIES = {
    ("", "v1"): 1,
    ("autoscaling", "v2"): 30,
    ("flowcontrol.apiserver.k8s.io", "v1"): 21,
    ("resource.k8s.io", "v1"): 21,
    ("resource.k8s.io", "v1beta2"): 15,
    ("scheduling.k8s.io", "v1alpha2"): 2,
}


_CUSTOM_RESOURCE_PRIORITY = 1000


def api_services() -> Iterator[ServerObject]:
    """Return the APIServices of all group versions; see services_with_gates()."""
    for group, version in group_versions(all_api_gates()):
        if group != "apiregistration.k8s.io":  # served by the aggregator itself
            minimum = _PRIORITIES.get(group, _CUSTOM_RESOURCE_PRIORITY)
            yield api_service(group, version, minimum, _VERSION_PRIORITIES.get((group, version), 15), "onstart")


def services_with_gates(services: Iterable[JSON], gates: FeatureGates) -> list[JSON]:
    """Return the APIServices of a server with these feature gates."""
    served = group_versions(api_gates(gates))
    return [service for service in services if (service["spec"].get("group", ""), service["spec"]["version"]) in served]


def api_service(
    group: str, version: str, minimum: int = _CUSTOM_RESOURCE_PRIORITY, priority: int = 100, managed: str = "true"
) -> ServerObject:
    """Return the APIService of a group version that this server serves; defaults are those of custom resources."""
    named: JSON = {"group": group} if group else {}
    spec = {**named, "version": version, "groupPriorityMinimum": minimum, "versionPriority": priority}
    message = "Local APIServices are always available"
    condition = {"type": "Available", "status": "True", "reason": "Local", "message": message}
    labels = {AUTOMANAGED: managed}
    return ServerObject(f"{version}.{group}", labels=labels, content={"spec": spec}, status={"conditions": [condition]})


# --- specific to a server ---------------------------------------------------------------------------------------------


def service(address: str, port: int) -> ServerObject:
    """Return the API server's own Service. address: its cluster IP; port: where the server listens."""
    spec = {
        "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
        "clusterIP": address,
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster",
    }
    labels = {"component": "apiserver", "provider": "kubernetes"}
    strategy_fields = {"spec": {"clusterIPs": [address], "ipFamilies": ["IPv4"]}, "status": {"loadBalancer": {}}}
    return ServerObject("kubernetes", "default", labels=labels, content={"spec": spec}, strategy_fields=strategy_fields)


def endpoints(identity: Identity) -> ServerObject:
    ports = [{"name": "https", "port": identity.port, "protocol": "TCP"}]
    content = {"subsets": [{"addresses": [{"ip": identity.address}], "ports": ports}]}
    return ServerObject(
        "kubernetes", "default", labels={"endpointslice.kubernetes.io/skip-mirror": "true"}, content=content
    )


def endpoint_slice(identity: Identity) -> ServerObject:
    content = {
        "addressType": "IPv4",
        "endpoints": [{"addresses": [identity.address], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "protocol": "TCP", "port": identity.port}],
    }
    return ServerObject("kubernetes", "default", labels={"kubernetes.io/service-name": "kubernetes"}, content=content)


def service_cidr(network: IPv4Network) -> ServerObject:
    message = "Kubernetes default Service CIDR is ready"
    return ServerObject(
        "kubernetes",
        content={"spec": {"cidrs": [str(network)]}},
        status={"conditions": [{"type": "Ready", "status": "True", "message": message}]},
        status_applier="kubernetes-service-cidr-controller",
    )


def identity_lease(identity: Identity, holder: str, renewed: str) -> ServerObject:
    """Return the server's lease. holder: of this process; renewed: a MicroTime."""
    return ServerObject(
        identity.name,
        "kube-system",
        labels={"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": identity.host},
        annotations={"kubernetes.io/peer-advertise-address": f"{identity.address}:{identity.port}"},
        content={"spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": renewed}},
    )


def token_tracking(day: str) -> ServerObject:
    """Return the ConfigMap with the day since which legacy Secret tokens are tracked."""
    name = "kube-apiserver-legacy-service-account-token-tracking"
    return ServerObject(name, "kube-system", content={"data": {"since": day}})


EXTENSION_AUTHENTICATION = "extension-apiserver-authentication"


def extension_authentication(data: dict[str, str]) -> ServerObject:
    """Return the ConfigMap by which extension API servers authenticate requests as this server does."""
    return ServerObject(EXTENSION_AUTHENTICATION, "kube-system", content={"data": data})


@cache
def _read(file: str) -> dict[str, dict[str, JSON]]:
    text = (files("kubeloop.devcluster.server.bootstrap") / file).read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, JSON]])
