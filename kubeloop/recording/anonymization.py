"""Names, label values and images replaced by a key: the same key gives the same names in every recording.

Each part of a name between "-", ".", "/", "_", ":" and "@" is replaced by itself, so that names that are built from
others (pods of a StatefulSet, claims of a pod) still are, and a number at the end stays. Names to which Kubernetes
gives a meaning stay as well, and so do names of resources, devices, device classes, drivers and metrics.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Any, Final

from kubeloop.kube.json_object import JSON
from kubeloop.recording.projection import LAST_APPLIED

_PART = re.compile(r"[^-./_:@]+")
_PART_LENGTH: Final = 7  # 35 bits
_MAX_NAME_LENGTH: Final = 63
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
_RESERVED: Final = frozenset(
    {
        "", "default", "kube-system", "kube-public", "kube-node-lease", "kubernetes", "system-cluster-critical",
        "system-node-critical", "true", "false",
    }
)  # fmt: skip
_NAMES: Final = frozenset(
    {
        "name", "generateName", "namespace", "nodeName", "nominatedNodeName", "hostname", "subdomain", "claimName",
        "volumeName", "storageClassName", "volumeAttributesClassName", "currentVolumeAttributesClassName",
        "priorityClassName", "serviceAccountName", "serviceAccount", "serviceName", "currentRevision",
        "updateRevision", "podGroupName", "resourceClaimName", "resourceClaimTemplateName", "image", "volumeHandle",
        "pool", "nodeID", "persistentVolumeName", "externalName", "targetPortal", "iqn", "diskURI", "diskName",
        "pdName", "volumeID", "url", "secretName", "path",
    }
)  # fmt: skip
_LISTS_OF_NAMES: Final = frozenset({"namespaces", "names"})
_MAPS_OF_LABELS: Final = frozenset({"labels", "matchLabels", "nodeSelector", "selector"})
_ADDRESSES: Final = frozenset({"podIP", "hostIP", "ip", "clusterIP", "loadBalancerIP", "host", "server"})
_LISTS_OF_ADDRESSES: Final = frozenset({"clusterIPs", "externalIPs", "loadBalancerSourceRanges"})
_DROPPED: Final = frozenset({"parameters", "description", "volumeAttributes"})
_UNCHANGED: Final = frozenset(
    {
        "conditions", "capacity", "allocatable", "resource", "containerResource", "attributes", "ports",
        "readinessGates", "schedulingGates", "features", "nodeInfo", "overhead", "rules", "matchConditions", "limits",
        "env", "requests", "volumeClaimUpdateStrategy", "nodeAllocatableResourceClaimStatuses",
    }
)  # fmt: skip
_STORAGE_CLASS_QUOTA: Final = ".storageclass.storage.k8s.io/"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"


class Anonymizer:
    """Replaces names by a key. key_id: identifies the key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._parts: dict[str, str] = {}
        self.key_id = self._hash("key_id")

    def name(self, name: str) -> str:
        """Return the replacement of a name, a label's value or an image."""
        if name in _RESERVED or name.isdigit():
            return name
        begin, separator, last = name.rpartition("-")
        replaced = f"{self._replaced(begin)}{separator}{last if last.isdigit() else self._replaced(last)}"
        return replaced if len(replaced) <= _MAX_NAME_LENGTH or "/" in name else self._hash(name)

    def object(self, kind: str, obj: JSON) -> JSON:
        """Return a projected object with replaced names."""
        replaced = self._map(obj)
        if kind in ("DeviceClass", "CSIDriver"):
            replaced["metadata"]["name"] = obj["metadata"]["name"]
        if drivers := (obj.get("spec") or {}).get("drivers") if kind == "CSINode" else None:
            for driver, original in zip(replaced["spec"]["drivers"], drivers, strict=True):
                driver["name"] = original["name"]
        return replaced

    # --- values ----------------------------------------------------------------------------------------------------

    def _map(self, value: JSON) -> JSON:
        return {key: self._value(key, item) for key, item in value.items() if key not in _DROPPED}

    def _value(self, key: str, value: Any) -> Any:
        if key in _UNCHANGED:
            return value
        if isinstance(value, str):
            return self._text(key, value)
        if isinstance(value, dict):
            return self._dictionary(key, value)
        if isinstance(value, list):
            return self._list(key, value)
        return value

    def _text(self, key: str, text: str) -> str:
        if key in _NAMES:
            return self.name(text)
        return self.address(text) if key in _ADDRESSES else text

    def _dictionary(self, key: str, value: JSON) -> JSON:
        if key in _MAPS_OF_LABELS and all(isinstance(item, str) for item in value.values()):
            return {label: self.name(item) for label, item in value.items()}
        if key == "annotations":
            return {
                name: self.name(text) if name == _SELECTED_NODE else text
                for name, text in value.items()
                if name != LAST_APPLIED
            }
        if key in ("hard", "used"):
            return {self._quota(name): amount for name, amount in value.items()}
        if key == "devices":  # of a claim: only pools have names of nodes
            return {name: self._value(name, item) if name == "results" else item for name, item in value.items()}
        if key == "metric":  # of an autoscaler
            return {**self._map(value), "name": value.get("name", "")}
        if key == "resources":
            claims = value.get("claims")
            return {**value, "claims": self._list("claims", claims)} if claims else value
        return self._map(value)

    def _list(self, key: str, values: list[Any]) -> list[Any]:
        if key in _LISTS_OF_NAMES:
            return [self.name(item) for item in values]
        if key in _LISTS_OF_ADDRESSES:
            return [self.address(item) for item in values]
        if key == "devices":  # of a ResourceSlice
            return values
        if key in ("matchExpressions", "matchFields", "matchLabelExpressions"):
            return [self._expression(item) for item in values]
        if key in ("taints", "tolerations"):
            return [{**item, "value": self.name(item["value"])} if item.get("value") else item for item in values]
        return [self._map(item) if isinstance(item, dict) else item for item in values]

    def _expression(self, expression: JSON) -> JSON:
        values = expression.get("values")
        if not values or expression.get("operator") in ("Gt", "Lt"):
            return expression
        return {**expression, "values": [self.name(value) for value in values]}

    def _quota(self, name: str) -> str:
        """Return the name of a limit: that of a storage class is replaced."""
        storage_class, infix, rest = name.partition(_STORAGE_CLASS_QUOTA)
        return f"{self.name(storage_class)}{infix}{rest}" if infix else name

    def address(self, text: str) -> str:
        """Return the replacement of an address."""
        if not text or text == "None":
            return text
        first, second, third = hmac.digest(self._key, text.encode(), "sha256")[:3]
        return f"10.{first}.{second}.{third}"

    # --- parts -----------------------------------------------------------------------------------------------------

    def _replaced(self, name: str) -> str:
        return _PART.sub(self._part, name)

    def _part(self, match: re.Match[str]) -> str:
        part = match[0]
        replacement = self._parts.get(part)
        if replacement is None:
            replacement = self._parts[part] = self._hash(part)
        return replacement

    def _hash(self, part: str) -> str:
        """Return letters and digits that begin with a letter."""
        number = int.from_bytes(hmac.digest(self._key, part.encode(), hashlib.sha256)[:8], "big")
        letters = [_ALPHABET[number % 26]]
        number //= 26
        for _ in range(_PART_LENGTH - 1):
            letters.append(_ALPHABET[number % 32])
            number //= 32
        return "".join(letters)
