"""The node authorizer: what a kubelet may do, by the pods that are bound to its node.

Where kube-apiserver maintains a graph of nodes, pods and the objects that pods name, this searches the stored objects.
Source: plugin/pkg/auth/authorizer/node of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from kubeloop.devcluster.api.authorizer import AccessAttributes, AuthorizationDecision
from kubeloop.devcluster.authorization.pod_references import SECRET_REFERENCES, config_map_names, secret_names
from kubeloop.devcluster.authorization.rbac import rule_allows
from kubeloop.devcluster.authorization.users import identified_node
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    RESOURCE_SLICES,
    VOLUME_ATTACHMENTS,
)
from kubeloop.kube.validation.field_errors import quoted

_MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_READ = ("get", "list", "watch")
_LEASE_VERBS = ("get", "create", "update", "patch", "delete")
_ALLOWED, _NO_OPINION = AuthorizationDecision(True), AuthorizationDecision(False)


_Decide = Callable[["NodeAuthorizer", str, AccessAttributes], AuthorizationDecision]


def _refused(reason: str) -> AuthorizationDecision:
    return AuthorizationDecision(False, reason)


class NodeAuthorizer:
    """Decides requests of nodes. rules: returns those of the ClusterRole system:node."""

    def __init__(self, store: ObjectStore, rules: Callable[[], Sequence[JSON]]) -> None:
        self._store = store
        self._rules = rules

    def authorize(self, attributes: AccessAttributes) -> AuthorizationDecision:
        node = identified_node(attributes.user)
        if node is None:
            return _NO_OPINION
        if not node:
            return _refused(f"unknown node for user {quoted(attributes.user['username'])}")
        if attributes.path is None:
            decide = self._decisions.get((attributes.group, attributes.resource))
            if decide is not None:
                return decide(self, node, attributes)
        return AuthorizationDecision(any(rule_allows(rule, attributes) for rule in self._rules()))

    # --- decisions by resource ----------------------------------------------------------------------------------------

    def _read_named(self, node: str, attributes: AccessAttributes) -> AuthorizationDecision:
        """Decide reads of Secrets, ConfigMaps and ServiceAccounts that a pod of the node names."""
        if attributes.verb not in _READ:
            return _refused("can only read resources of this type")
        if attributes.subresource:
            return _refused("cannot read subresource")
        if not attributes.namespace:
            return _refused("can only read namespaced object of this type")
        return self._related(node, attributes)

    def _get_named(self, node: str, attributes: AccessAttributes) -> AuthorizationDecision:
        if attributes.verb != "get":
            return _refused("can only get individual resources of this type")
        if attributes.subresource:
            return _refused("cannot get subresource")
        return self._related(node, attributes)

    def _claim(self, node: str, attributes: AccessAttributes) -> AuthorizationDecision:
        if attributes.subresource != "status":
            return self._get_named(node, attributes)
        if attributes.verb not in ("update", "patch"):
            return _refused("can only get/update/patch this type")
        return self._related(node, attributes)

    def _service_account(self, node: str, attributes: AccessAttributes) -> AuthorizationDecision:
        if attributes.verb == "get" and not attributes.subresource:
            return self._read_named(node, attributes)
        if attributes.verb != "create" or not attributes.name:
            return _refused("can only create tokens for individual service accounts")
        if attributes.subresource != "token":
            return _refused("can only create token subresource of serviceaccount")
        return self._related(node, attributes)

    def _lease(self, node: str, attributes: AccessAttributes) -> AuthorizationDecision:
        if attributes.verb not in _LEASE_VERBS:
            return _refused("can only get, create, update, patch, or delete a node lease")
        if attributes.namespace != "kube-node-lease":
            return _refused('can only access leases in the "kube-node-lease" system namespace')
        if attributes.verb != "create" and attributes.name != node:
            return _refused("can only access node lease with the same name as the requesting node")
        return _ALLOWED

    def _csi_node(self, node: str, attributes: AccessAttributes) -> AuthorizationDecision:
        if attributes.verb not in _LEASE_VERBS:
            return _refused("can only get, create, update, patch, or delete a CSINode")
        if attributes.subresource:
            return _refused("cannot authorize CSINode subresources")
        if attributes.verb != "create" and attributes.name != node:
            return _refused("can only access CSINode with the same name as the requesting node")
        return _ALLOWED

    def _resource_slice(self, node: str, attributes: AccessAttributes) -> AuthorizationDecision:
        if attributes.subresource:
            return _refused("cannot authorize ResourceSlice subresources")
        if attributes.verb == "create":
            return _ALLOWED
        if attributes.verb in ("get", "update", "patch", "delete"):
            return self._related(node, attributes)
        if attributes.verb in ("list", "watch", "deletecollection"):
            if _selects(attributes, "spec.nodeName", node):
                return _ALLOWED
            return _refused("can only list/watch/deletecollection resourceslices with nodeName field selector")
        return _refused(
            "only the following verbs are allowed for a ResourceSlice:"
            " get, watch, list, create, update, patch, delete, deletecollection"
        )

    def _node(self, node: str, attributes: AccessAttributes) -> AuthorizationDecision:
        writes = ("update", "patch") if attributes.subresource else ("create", "update", "patch")
        if attributes.subresource in ("", "status") and attributes.verb in writes:
            return _ALLOWED
        if attributes.subresource or attributes.verb not in _READ:
            return _NO_OPINION
        if attributes.name == node:
            return _ALLOWED
        what = f"'{attributes.name}'" if attributes.name else "all nodes"
        return _refused(f"node '{node}' cannot read {what}, only its own Node object")

    def _pod(self, node: str, attributes: AccessAttributes) -> AuthorizationDecision:
        match attributes.subresource, attributes.verb:
            case "", "get":
                return self._get_named(node, attributes)
            case "", "list" | "watch":
                if _selects(attributes, "spec.nodeName", node):
                    return _ALLOWED
                if attributes.name:
                    return self._related(node, attributes)
                return _refused("can only list/watch pods with spec.nodeName field selector")
            case ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create"):
                return _ALLOWED
        return _NO_OPINION

    # --- relations ----------------------------------------------------------------------------------------------------

    def _related(self, node: str, attributes: AccessAttributes) -> AuthorizationDecision:
        """Allow requests for the objects that belong to a node or are named by its pods."""
        if not attributes.name:
            return _refused("No Object name found")
        if attributes.name in self._related_names(node, attributes.resource, attributes.namespace):
            return _ALLOWED
        return _refused(f"no relationship found between node '{node}' and this object")

    def _related_names(self, node: str, resource: str, namespace: str) -> Iterable[str]:
        match resource:
            case "pods":
                return (pod["metadata"]["name"] for pod in self._pods(node, namespace))
            case "serviceaccounts":
                return (pod["spec"].get("serviceAccountName", "") for pod in self._own_pods(node, namespace))
            case "configmaps":
                return (name for pod in self._own_pods(node, namespace) for name in config_map_names(pod["spec"]))
            case "secrets":
                return self._secrets(node, namespace)
            case "persistentvolumeclaims":
                return self._claims(node, namespace)
            case "persistentvolumes":
                return (volume["metadata"]["name"] for volume in self._volumes(node))
            case "resourceclaims":
                return (name for pod in self._own_pods(node, namespace) for name in _resource_claims(pod))
        table = VOLUME_ATTACHMENTS if resource == "volumeattachments" else RESOURCE_SLICES
        objects = self._store.list(table, "")
        return (obj["metadata"]["name"] for obj in objects if obj["spec"].get("nodeName") == node)

    def _pods(self, node: str, namespace: str) -> Iterator[JSON]:
        return (pod for pod in self._store.list(PODS, namespace) if pod["spec"].get("nodeName") == node)

    def _own_pods(self, node: str, namespace: str) -> Iterator[JSON]:
        """Yield the node's pods without mirror pods, which a node creates itself."""
        for pod in self._pods(node, namespace):
            if _MIRROR_ANNOTATION not in (pod["metadata"].get("annotations") or ()):
                yield pod

    def _claims(self, node: str, namespace: str) -> Iterator[str]:
        for pod in self._own_pods(node, namespace):
            for volume in pod["spec"].get("volumes") or ():
                if claim := volume.get("persistentVolumeClaim"):
                    yield claim["claimName"]
                elif "ephemeral" in volume:
                    yield f"{pod['metadata']['name']}-{volume['name']}"

    def _volumes(self, node: str) -> Iterator[JSON]:
        """Yield the PersistentVolumes of the claims of the node's pods."""
        for volume in self._store.list(PERSISTENT_VOLUMES, ""):
            claim = volume["spec"].get("claimRef")
            if claim and claim["name"] in self._claims(node, claim["namespace"]):
                yield volume

    def _secrets(self, node: str, namespace: str) -> Iterator[str]:
        for pod in self._own_pods(node, namespace):
            yield from secret_names(pod["spec"])
        for volume in self._volumes(node):
            for secret_namespace, name in _volume_secrets(volume["spec"]):
                if secret_namespace == namespace:
                    yield name

    _decisions: ClassVar[
        dict[tuple[str, str], Callable[[NodeAuthorizer, str, AccessAttributes], AuthorizationDecision]]
    ] = {
        ("", "secrets"): _read_named,
        ("", "configmaps"): _read_named,
        ("", PERSISTENT_VOLUME_CLAIMS.plural): _claim,
        ("", PERSISTENT_VOLUMES.plural): _get_named,
        ("resource.k8s.io", "resourceclaims"): _get_named,
        ("storage.k8s.io", "volumeattachments"): _get_named,
        ("", "serviceaccounts"): _service_account,
        ("coordination.k8s.io", "leases"): _lease,
        ("storage.k8s.io", "csinodes"): _csi_node,
        ("resource.k8s.io", "resourceslices"): _resource_slice,
        ("", NODES.plural): _node,
        ("", PODS.plural): _pod,
        ("certificates.k8s.io", "podcertificaterequests"): lambda *_: _NO_OPINION,
    }


def _selects(attributes: AccessAttributes, field: str, value: str) -> bool:
    return (field, "=", value) in attributes.field_selector


def _resource_claims(pod: JSON) -> Iterator[str]:
    status = pod.get("status") or {}
    for claim in pod["spec"].get("resourceClaims") or ():
        yield claim.get("resourceClaimName") or ""
    for entry in (*(status.get("resourceClaimStatuses") or ()), status.get("extendedResourceClaimStatus") or {}):
        yield entry.get("resourceClaimName") or ""


def _volume_secrets(spec: JSON) -> Iterator[tuple[str, str]]:
    """Yield (namespace, name) of the secrets that a kubelet needs for a PersistentVolume."""
    claim_namespace = spec["claimRef"].get("namespace", "")
    if source := spec.get("azureFile"):
        yield source.get("secretNamespace") or claim_namespace, source.get("secretName", "")
    fields = [(kind, field) for kind, field in SECRET_REFERENCES.items() if kind in spec]
    if "csi" in spec:
        fields += [("csi", "nodeStageSecretRef"), ("csi", "nodeExpandSecretRef")]
    for kind, field in fields:
        if reference := spec[kind].get(field):
            yield reference.get("namespace") or claim_namespace, reference.get("name", "")
