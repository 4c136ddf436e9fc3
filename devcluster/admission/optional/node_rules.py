"""NodeRestriction: nodes write only their own Node and the objects of their own pods.

The node authorizer decides by the request alone, this plugin by the object as well. Source:
plugin/pkg/admission/noderestriction of Kubernetes v1.36.
"""

from __future__ import annotations

import difflib
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from kubeloop.devcluster.admission.attributes import Attributes
from kubeloop.devcluster.admission.optional.plugin import PluginEnvironment, refusal
from kubeloop.devcluster.admission.service_account import MIRROR_ANNOTATION
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.authorizer import AccessAttributes
from kubeloop.devcluster.api.served_resources import CERTIFICATE_SIGNING_REQUESTS, storage_version_of
from kubeloop.devcluster.authorization.pod_references import config_map_names, secret_names
from kubeloop.devcluster.authorization.users import identified_node
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import Volume, convert
from kubeloop.kube.objects.in_tree_plugins import in_tree_plugin
from kubeloop.kube.objects.resources import (
    CSI_DRIVERS,
    CSI_NODES,
    LEASES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
    Resource,
)
from kubeloop.kube.objects.storage_types import PersistentVolumeSpec
from kubeloop.kube.validation.field_errors import quoted

_LEASE_NAMESPACE = "kube-node-lease"
_RESTRICTED_DOMAIN = "node-restriction.kubernetes.io"
_KUBELET_LABELS = frozenset({
    "kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type", "kubernetes.io/os", "kubernetes.io/arch",
    "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
})  # fmt: skip
"""Labels in Kubernetes' own domains that a node may set, apart from the kubelet's and the node's domain."""
_NODE_SIGNERS = ("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet")
_API_VOLUMES = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
"""Volume sources that refer to objects of the API, and these objects."""
_API_SOURCES = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}
"""The same for sources of projected volumes."""


class NodeRules:
    """The rules of NodeRestriction for the objects of one server."""

    def __init__(self, environment: PluginEnvironment) -> None:
        self._store = environment.store
        self._gates = environment.gates

    def admit(self, request: Attributes) -> None:
        """Raise StatusError 403 or 404 for a write that the node that requests it may not do."""
        node = identified_node(request.user)
        if node is None:
            return
        if not node:
            raise refusal(request, f"could not determine node from user {quoted(request.user['username'])}")
        if (admit := self._decisions.get(storage_version_of(request.served).resource)) is not None:
            admit(self, node, request)

    # --- pods ---------------------------------------------------------------------------------------------------------

    def _admit_pod(self, node: str, request: Attributes) -> None:
        match request.subresource, request.operation:
            case "", "CREATE":
                self._admit_pod_create(node, request)
            case "", "DELETE":
                if self._node_of_pod(request, request.name) != node:
                    message = f"node {quoted(node)} can only delete pods with spec.nodeName set to itself"
                    raise refusal(request, message)
            case "", operation:
                message = f"node {quoted(node)} can only create and delete mirror pods"
                raise refusal(request, f"unexpected operation {quoted(operation)}, {message}")
            case "status", "UPDATE":
                _admit_pod_status(node, request)
            case "status", operation:
                raise refusal(request, f"unexpected operation {quoted(operation)}")
            case "eviction", _:
                if self._node_of_pod(request, request.name) != node:
                    raise refusal(request, f"node {node} can only evict pods with spec.nodeName set to itself")
            case subresource, _:
                message = f"unexpected pod subresource {quoted(subresource)}, only 'status' and 'eviction' are allowed"
                raise refusal(request, message)

    def _node_of_pod(self, request: Attributes, name: str) -> str:
        node: str = self._stored(PODS, request.namespace, name)["spec"].get("nodeName", "")
        return node

    def _stored(self, resource: Resource[Any], namespace: str, name: str) -> JSON:
        """Return an object. Raises StatusError 404, which names the resource in the singular, as caches do."""
        obj = self._store.get(resource, namespace, name)
        if obj is None:
            raise errors.not_found(replace(resource, plural=resource.kind.lower()), name)
        return obj

    def _admit_pod_create(self, node: str, request: Attributes) -> None:
        pod = request.object or {}
        metadata, spec, named = pod["metadata"], pod["spec"], f"node {quoted(node)}"
        if MIRROR_ANNOTATION not in metadata.get("annotations", {}):
            message = f"pod does not have {quoted(MIRROR_ANNOTATION)} annotation, {named} can only create mirror pods"
            raise refusal(request, message)
        if spec.get("nodeName") != node:
            raise refusal(request, f"{named} can only create pods with spec.nodeName set to itself")
        owners = metadata.get("ownerReferences") or []
        if len(owners) > 1:
            raise refusal(request, f"{named} can only create pods with a single owner reference set to itself")
        owner = owners[0] if owners else {}
        if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
            raise refusal(request, f"{named} can only create pods with an owner reference set to itself")
        if not owner.get("controller"):
            raise refusal(request, f"{named} can only create pods with a controller owner reference set to itself")
        if owner.get("blockOwnerDeletion"):
            raise refusal(request, f"{named} must not set blockOwnerDeletion on an owner reference")
        uid, actual_uid = owner.get("uid", ""), self._stored(NODES, "", node)["metadata"]["uid"]
        if uid != actual_uid:
            raise refusal(request, f"node {node} UID mismatch: expected {uid} got {actual_uid}")
        if (referenced := next(_api_references(spec), None)) is not None:
            raise refusal(request, f"{named} can not create pods that reference {referenced}")

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _admit_node(self, node: str, request: Attributes) -> None:
        named = f"node {quoted(node)}"
        if request.name != node:
            raise refusal(request, f"{named} is not allowed to modify node {quoted(request.name)}")
        obj = request.object
        if obj is None:
            return
        old = request.old
        spec, old_spec = obj.get("spec") or {}, (old or {}).get("spec") or {}
        source = spec.get("configSource")
        changed_labels = _changed_labels(obj, old or {"metadata": {}})
        if old is None:
            if source is not None:
                raise refusal(request, f"{named} is not allowed to create pods with a non-nil configSource")
            if labels := ", ".join(filter(_is_forbidden_label, changed_labels)):
                raise refusal(request, f"{named} is not allowed to set the following labels: {labels}")
            return
        if source is not None and source != old_spec.get("configSource"):
            raise refusal(request, f"{named} is not allowed to update configSource to a new non-nil configSource")
        if (spec.get("taints") or []) != (old_spec.get("taints") or []):
            raise refusal(request, f"{named} is not allowed to modify taints")
        if (obj["metadata"].get("ownerReferences") or []) != (old["metadata"].get("ownerReferences") or []):
            raise refusal(request, f"{named} is not allowed to modify ownerReferences")
        if labels := ", ".join(filter(_is_forbidden_label, changed_labels)):
            raise refusal(request, f"is not allowed to modify labels: {labels}")

    def _admit_lease(self, node: str, request: Attributes) -> None:
        if request.namespace != _LEASE_NAMESPACE:
            message = f"can only access leases in the {quoted(_LEASE_NAMESPACE)} system namespace"
            raise refusal(request, message)
        if request.name != node:
            raise refusal(request, "can only access node lease with the same name as the requesting node")

    def _admit_csi_node(self, node: str, request: Attributes) -> None:
        if request.name != node:
            raise refusal(request, "can only access CSINode with the same name as the requesting node")

    def _admit_resource_slice(self, node: str, request: Attributes) -> None:
        if request.operation == "UPDATE":  # decided by the node authorizer
            return
        verb, resource_slice = ("create", request.object) if request.old is None else ("delete", request.old)
        if (resource_slice or {})["spec"].get("nodeName") != node:
            message = f"can only {verb} ResourceSlice with the same NodeName as the requesting node"
            raise refusal(request, message)

    # --- claims, tokens and certificates ------------------------------------------------------------------------------

    def _admit_claim(self, node: str, request: Attributes) -> None:
        if request.subresource != "status":
            raise refusal(request, "may only update PVC status")
        fields = ["capacity", "conditions"]
        if self._gates.enabled("RecoverVolumeExpansionFailure"):
            fields += ["allocatedResourceStatuses", "allocatedResources"]
        old, new = (_without_node_fields(claim or {}, fields) for claim in (request.old, request.object))
        if old != new:
            before, after = (
                msgspec.json.format(msgspec.json.encode(claim, order="sorted"), indent=1).decode().splitlines(True)
                for claim in (old, new)
            )
            message = "is not allowed to update fields other than status.quantity and status.conditions"
            difference = "".join(difflib.unified_diff(before, after)).removeprefix("--- \n+++ \n")
            raise refusal(request, f"node {quoted(node)} {message}: {difference}")

    def _admit_account(self, node: str, request: Attributes) -> None:
        if request.operation != "CREATE" or request.subresource != "token":
            return
        spec = (request.object or {}).get("spec", {})
        reference = spec.get("boundObjectRef") or {}
        name, uid = reference.get("name"), reference.get("uid")
        if (reference.get("apiVersion"), reference.get("kind")) != ("v1", "Pod") or not name:
            raise refusal(request, "node requested token not bound to a pod")
        if not uid:
            raise refusal(request, "node requested token with a pod binding without a uid")
        pod = self._stored(PODS, request.namespace, name)
        if uid != pod["metadata"]["uid"]:
            message = (
                f"the UID in the bound object reference ({uid}) does not match the UID in record. The object might "
                "have been deleted and then recreated"
            )
            raise refusal(request, message)
        if pod["spec"].get("nodeName") != node:
            raise refusal(request, "node requested token bound to a pod scheduled on a different node")
        if self._gates.enabled("ServiceAccountNodeAudienceRestriction"):
            self._check_audience(request, pod, spec.get("audiences") or [])

    def _check_audience(self, request: Attributes, pod: JSON, audiences: list[str]) -> None:
        """Raise StatusError 403 unless a volume of the pod needs the audience or the node may request it."""
        if len(audiences) > 1:
            raise refusal(request, "node may only request 0 or 1 audiences")
        audience = audiences[0] if audiences else ""
        missing: list[str] = []
        for volume in pod["spec"].get("volumes") or ():
            try:
                if audience in self._audiences(pod, volume):
                    return
            except errors.StatusError as error:
                missing.append(error.message)
        if missing:
            reasons = list(dict.fromkeys(missing))
            text = reasons[0] if len(reasons) == 1 else f"[{', '.join(reasons)}]"
            raise refusal(request, f"error validating audience {quoted(audience)}: {text}")
        verb, user = "request-serviceaccounts-token-audience", request.user
        access = AccessAttributes(user, verb, "", audience, "", request.namespace, request.name)
        if not request.authorizer.authorize(access).allowed:
            message = f"{user['username']} is not authorized to request tokens for this audience"
            raise refusal(request, f"audience {quoted(audience)} not found in pod spec volume, {message}")

    def _audiences(self, pod: JSON, volume: JSON) -> Iterator[str]:
        """Yield the audiences of tokens that a volume needs. Raises StatusError 404."""
        for source in (volume.get("projected") or {}).get("sources") or ():
            if (token := source.get("serviceAccountToken")) is not None:
                yield token.get("audience", "")
        driver, claim = "", ""
        if (volume.get("ephemeral") or {}).get("volumeClaimTemplate") is not None:
            claim = f"{pod['metadata']['name']}-{volume['name']}"
        elif "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
        elif "csi" in volume:
            driver = volume["csi"]["driver"]
        elif (plugin := in_tree_plugin(convert(Volume, volume))) is not None:
            driver = plugin.driver
        if claim:
            driver = self._driver_of_claim(pod["metadata"]["namespace"], claim)
        if driver:
            for token in self._stored(CSI_DRIVERS, "", driver)["spec"].get("tokenRequests") or ():
                yield token.get("audience", "")

    def _driver_of_claim(self, namespace: str, name: str) -> str:
        claim = self._stored(PERSISTENT_VOLUME_CLAIMS, namespace, name)
        spec = self._stored(PERSISTENT_VOLUMES, "", claim["spec"].get("volumeName", ""))["spec"]
        if (source := spec.get("csi")) is not None:
            return str(source["driver"])
        plugin = in_tree_plugin(convert(PersistentVolumeSpec, spec))
        return "" if plugin is None else plugin.driver

    def _admit_signing_request(self, node: str, request: Attributes) -> None:
        if request.operation != "CREATE" or self._gates.enabled("AllowInsecureKubeletCertificateSigningRequests"):
            return
        spec = (request.object or {})["spec"]
        if spec.get("signerName") not in _NODE_SIGNERS:
            return
        from cryptography import x509  # clusters without TLS start without it
        from cryptography.x509.oid import NameOID

        try:
            subject = x509.load_pem_x509_csr(b64decode(spec.get("request") or "")).subject
        except ValueError:
            message = "unable to parse csr: PEM block type must be CERTIFICATE REQUEST"
            raise refusal(request, message) from None
        names = [name.value for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        if names[-1:] != [f"system:node:{node}"]:
            raise refusal(request, f"can only create a node CSR with CN=system:node:{node}")

    _decisions: ClassVar[dict[Resource[Any], Callable[[NodeRules, str, Attributes], None]]] = {
        PODS: _admit_pod,
        NODES: _admit_node,
        PERSISTENT_VOLUME_CLAIMS: _admit_claim,
        SERVICE_ACCOUNTS: _admit_account,
        LEASES: _admit_lease,
        CSI_NODES: _admit_csi_node,
        RESOURCE_SLICES: _admit_resource_slice,
        CERTIFICATE_SIGNING_REQUESTS: _admit_signing_request,
    }


def _admit_pod_status(node: str, request: Attributes) -> None:
    old, new, named = request.old or {}, request.object or {}, f"node {quoted(node)}"
    if old["spec"].get("nodeName") != node:
        raise refusal(request, f"{named} can only update pod status for pods with spec.nodeName set to itself")
    if (old["metadata"].get("labels") or {}) != (new["metadata"].get("labels") or {}):
        raise refusal(request, f"{named} cannot update labels through pod status")
    status, old_status = new.get("status") or {}, old.get("status") or {}
    if (status.get("resourceClaimStatuses") or []) != (old_status.get("resourceClaimStatuses") or []):
        raise refusal(request, f"{named} cannot update resource claim statues")
    if status.get("extendedResourceClaimStatus") != old_status.get("extendedResourceClaimStatus"):
        raise refusal(request, f"{named} cannot update extended resource claim status")


def _api_references(spec: JSON) -> Iterator[str]:
    """Yield the kinds of API objects that the spec of a pod refers to. Source: pkg/api/pod HasAPIObjectReference."""
    if spec.get("serviceAccountName"):
        yield "serviceaccounts"
    if any(secret_names(spec)):
        yield "secrets"
    if any(config_map_names(spec)):
        yield "configmaps"
    if spec.get("resourceClaims"):
        yield "resourceclaims"
    for volume in spec.get("volumes") or ():
        yield from (text for field, text in _API_VOLUMES.items() if field in volume)
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield from (text for field, text in _API_SOURCES.items() if field in source)


def _changed_labels(obj: JSON, old: JSON) -> list[str]:
    labels, old_labels = (value["metadata"].get("labels") or {} for value in (obj, old))
    return sorted(key for key in {*labels, *old_labels} if labels.get(key) != old_labels.get(key))


def _is_forbidden_label(key: str) -> bool:
    """Return True for a label that a node may neither add, change nor remove."""
    domain, slash, _ = key.partition("/")
    if not slash:
        return False
    if _is_in(domain, _RESTRICTED_DOMAIN):
        return True
    is_kubernetes = _is_in(domain, "kubernetes.io") or _is_in(domain, "k8s.io")
    may_set = _is_in(domain, "kubelet.kubernetes.io") or _is_in(domain, "node.kubernetes.io")
    return is_kubernetes and not may_set and key not in _KUBELET_LABELS


def _is_in(domain: str, parent: str) -> bool:
    return f".{domain}".endswith(f".{parent}")


def _without_node_fields(claim: JSON, status_fields: list[str]) -> JSON:
    """Return a claim without resource version, managed fields and these fields of the status."""
    ignored = ("resourceVersion", "managedFields")
    metadata = {name: value for name, value in claim["metadata"].items() if name not in ignored and value}
    status = {name: value for name, value in (claim.get("status") or {}).items() if name not in status_fields}
    return {**claim, "metadata": metadata, "status": status}
