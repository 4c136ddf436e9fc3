"""Random groups of nodes, devices, claims and pods. A group's pods use its nodes and its driver only, so that one
scheduler can handle many groups, each in the order of its pods' priorities."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from support.objects.devices import (
    alternative,
    claim,
    consumes,
    counter_slice,
    device,
    device_class,
    device_slice,
    request,
)

JSON = dict[str, Any]
NAMESPACE = "devices"
PODS_PER_GROUP = 5


@dataclass
class DeviceGroup:
    """pods: in the order in which they are scheduled, with the names of their claims."""

    name: str
    nodes: list[JSON] = field(default_factory=list)
    devices: list[JSON] = field(default_factory=list)
    claims: dict[str, JSON] = field(default_factory=dict)
    pods: dict[str, list[str]] = field(default_factory=dict)


class _Generator:
    def __init__(self, number: int) -> None:
        self._random = random.Random(f"devices {number}")
        self.name = f"g{number}"
        self.driver = f"{self.name}.example.com"
        self.group = DeviceGroup(self.name)

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def generate(self) -> DeviceGroup:
        rng, group = self._random, self.group
        for index in range(rng.randint(1, 3)):
            labels = {"group": self.name, "zone": f"z{index % 2}"}
            group.nodes.append({"metadata": {"name": f"{self.name}-{index}", "labels": labels}})
        of_driver = f"device.driver == '{self.driver}'"
        config = [{"opaque": {"driver": self.driver, "parameters": {"mode": self.name}}}]
        group.devices += [
            device_class(self.name, of_driver, **({"config": config} if self._chance(0.3) else {})),
            device_class(f"{self.name}-large", of_driver, self._expression("model", "'large'")),
        ]
        for node in group.nodes:
            group.devices += self._local_slices(node["metadata"]["name"])
        if self._chance(0.3):
            group.devices += self._shared_slices()
        for index in range(PODS_PER_GROUP):
            names = [f"{self.name}-{index}-{number}" for number in range(rng.choice((1, 1, 2)))]
            group.claims |= {name: self._claim(name) for name in names}
            group.pods[f"{self.name}-{index}"] = names
        return group

    # --- devices -----------------------------------------------------------------------------------------------------

    def _device(self, name: str, **fields: Any) -> JSON:
        rng = self._random
        attributes: JSON = {"model": rng.choice(("small", "large")), "healthy": self._chance(0.9)}
        if self._chance(0.9):
            attributes["numa"] = rng.randint(0, 1)
        if self._chance(0.15):
            effect = rng.choice(("NoSchedule", "NoExecute", "None"))
            fields["taints"] = [{"key": "broken", "value": rng.choice(("yes", "maybe")), "effect": effect}]
        capacity: JSON = {"memory": rng.choice(("10Gi", "20Gi", "40Gi"))}
        if self._chance(0.25):
            fields["allowMultipleAllocations"] = True
            if self._chance(0.7):
                policy = rng.choice(
                    (
                        {"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"}},
                        {"default": "2Gi", "validRange": {"min": "2Gi"}},
                        {"default": "4Gi", "validValues": ["4Gi", "5Gi", "10Gi"]},
                    )
                )
                capacity["memory"] = {"value": capacity["memory"], "requestPolicy": policy}
        return device(name, attributes=attributes, capacity=capacity, **fields)

    def _local_slices(self, node: str) -> list[JSON]:
        rng = self._random
        fields: JSON = {"driver": self.driver}
        if self._chance(0.2):
            sizes = [(f"p{index}", rng.choice(("10Gi", "20Gi", "40Gi"))) for index in range(rng.randint(2, 6))]
            devices = [self._device(name, consumesCounters=consumes(memory=amount)) for name, amount in sizes]
            return [
                counter_slice(node, node, 2, memory="40Gi", **fields),
                device_slice(node, *devices, count=2, **fields),
            ]
        names = [f"d{index}" for index in range(rng.randint(1, 7))]
        count = 2 if len(names) > 2 and self._chance(0.3) else 1
        parts = [names[part::count] for part in range(count)]
        if self._chance(0.05):
            parts.append(["d0"])  # the name occurs twice: the pool is invalid
        complete = len(parts) + (1 if self._chance(0.05) else 0)
        return [
            device_slice(node, *(self._device(name) for name in part), name=f"{node}-{index}", count=complete, **fields)
            for index, part in enumerate(parts)
        ]

    def _shared_slices(self) -> list[JSON]:
        rng, pool = self._random, f"{self.name}-shared"
        in_group = {"key": "group", "operator": "In", "values": [self.name]}
        selector = {"nodeSelectorTerms": [{"matchExpressions": [in_group]}]}
        names = [f"s{index}" for index in range(rng.randint(1, 4))]
        match rng.randrange(3):
            case 0:
                where: JSON = {"nodeSelector": selector}
                devices = [self._device(name) for name in names]
            case 1:
                in_zone = {"key": "zone", "operator": "In", "values": ["z0"]}
                where = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [in_group, in_zone]}]}}
                devices = [self._device(name, **({"bindsToNode": True} if self._chance(0.3) else {})) for name in names]
            case _:
                where = {"perDeviceNodeSelection": True}
                on_node = {"nodeName": self.group.nodes[0]["metadata"]["name"]}
                devices = [self._device(name, **rng.choice((on_node, {"nodeSelector": selector}))) for name in names]
        return [device_slice(None, *devices, pool=pool, driver=self.driver, **where)]

    # --- claims ------------------------------------------------------------------------------------------------------

    def _expression(self, attribute: str, value: str) -> str:
        return f"device.attributes['{self.driver}'].{attribute} == {value}"

    def _fields(self) -> JSON:
        rng = self._random
        fields: JSON = {"count": rng.choice((1, 1, 1, 2, 2, 3, 4))}
        if self._chance(0.12):
            fields = {"allocationMode": "All"}
        if self._chance(0.3):
            fields["selectors"] = [
                {"cel": {"expression": expression}}
                for expression in rng.sample(
                    (
                        self._expression("healthy", "true"),
                        self._expression("model", "'small'"),
                        f"has(device.attributes['{self.driver}'].numa) && {self._expression('numa', '1')}",
                        f"device.capacity['{self.driver}'].memory.compareTo(quantity('15Gi')) > 0",
                        "!device.allowMultipleAllocations",
                        f"cel.bind(all, device.attributes['{self.driver}'], all.model != 'tiny' && all.healthy)",
                    ),
                    rng.randint(1, 2),
                )
            ]
        if self._chance(0.2):
            fields["tolerations"] = [
                rng.choice(({"operator": "Exists"}, {"key": "broken", "operator": "Equal", "value": "maybe"}))
            ]
        if self._chance(0.25):
            fields["capacity"] = {"requests": {"memory": rng.choice(("500Mi", "3Gi", "4500Mi", "9Gi", "12Gi"))}}
        return fields

    def _class(self) -> str:
        return self.name if self._chance(0.8) else f"{self.name}-large"

    def _claim(self, name: str) -> JSON:
        rng = self._random
        requests, names = [], []
        for index in range(rng.choice((1, 1, 2, 3))):
            request_name = f"r{index}"
            names.append(request_name)
            if self._chance(0.25):
                options = [alternative(f"a{number}", self._class(), **self._fields()) for number in range(2)]
                requests.append({"name": request_name, "firstAvailable": options})
                names += [f"{request_name}/a0"] if self._chance(0.5) else []
            else:
                admin = {"adminAccess": True} if self._chance(0.08) else {}
                requests.append(request(request_name, self._class(), **self._fields(), **admin))
        fields: JSON = {}
        takes_all = "'All'" in str(requests)  # violated constraints would be errors, after which the order is random
        if not takes_all and self._chance(0.5):
            kind = rng.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
            attribute = f"{self.driver}/{rng.choice(('numa', 'model'))}"
            only = {"requests": rng.sample(names, 1)} if self._chance(0.4) else {}
            fields["constraints"] = [{kind: attribute, **only}]
        if self._chance(0.2):
            opaque = {"driver": self.driver, "parameters": {"of": name}}
            fields["config"] = [{"opaque": opaque, **({"requests": names[:1]} if self._chance(0.5) else {})}]
        body = claim(name, *requests, **fields)
        return body | {"metadata": {"name": name, "namespace": NAMESPACE}}


def device_group(number: int) -> DeviceGroup:
    """Return a group; the same number, the same group."""
    return _Generator(number).generate()
