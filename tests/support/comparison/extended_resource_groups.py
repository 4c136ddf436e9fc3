"""Random groups of nodes, devices and pods that request extended resources, which device plugins or devices provide.

A group's pods use its nodes only. Its resources are those of CLASSES, which all groups share.
"""

from __future__ import annotations

import random
from typing import Any

from support.comparison.device_replay import NAMESPACE, ReplayGroup
from support.objects.devices import claim, device, device_class, device_slice, request

JSON = dict[str, Any]
PODS_PER_GROUP = 6
PREFIX = "deviceclass.resource.kubernetes.io/"
GPU, LARGE = "example.com/gpu", "example.com/large"
CLASSES = (
    device_class("gpu", extendedResourceName=GPU),
    device_class("large", "device.attributes['example.com'].model == 'large'", extendedResourceName=LARGE),
    device_class("plain", config=[{"opaque": {"driver": "example.com", "parameters": {"mode": "plain"}}}]),
)
RESOURCES = (GPU, GPU, GPU, LARGE, f"{PREFIX}plain", f"{PREFIX}gpu")


class _Generator:
    def __init__(self, number: int) -> None:
        self._random = random.Random(f"extended resources {number}")
        self.group = ReplayGroup(f"e{number}")

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def generate(self) -> ReplayGroup:
        rng, group = self._random, self.group
        group.plugins = self._chance(0.5)
        for index in range(rng.randint(1, 3)):
            group.nodes.append(self._node(f"{group.name}-{index}"))
        for node in group.nodes:
            name = node["metadata"]["name"]
            if self._chance(0.85):
                devices = [self._device(f"d{number}") for number in range(rng.randint(1, 6))]
                group.slices.append(device_slice(name, *devices, driver=f"{group.name}.example.com"))
        for _ in range(PODS_PER_GROUP):
            self._pod()
        return group

    def _node(self, name: str) -> JSON:
        allocatable = {"cpu": "8", "memory": "8Gi", "pods": "100"}
        if self.group.plugins:
            for resource in (GPU, LARGE):
                if self._chance(0.4):
                    allocatable[resource] = str(self._random.choice((0, 1, 2, 4)))
        labels = {"group": self.group.name}
        return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}

    def _device(self, name: str) -> JSON:
        fields: JSON = {}
        if self._chance(0.1):
            fields["taints"] = [{"key": "broken", "effect": self._random.choice(("NoSchedule", "None"))}]
        if self._chance(0.1):
            fields["allowMultipleAllocations"] = True
        attributes = {"example.com/model": self._random.choice(("small", "large"))}
        return device(name, attributes=attributes, capacity={"memory": "10Gi"}, **fields)

    def _container(self, name: str, requests: int, **fields: Any) -> JSON:
        resources = {"cpu": "10m"}
        for _ in range(requests):
            resources[self._random.choice(RESOURCES)] = str(self._random.choice((0, 1, 1, 1, 2, 2, 3)))
        return {"name": name, "image": "i", "resources": {"requests": resources, "limits": resources}, **fields}

    def _pod(self) -> None:
        rng, name = self._random, f"{self.group.name}-{len(self.group.pods)}"
        starting = [
            self._container(f"i{number}", rng.choice((0, 1, 1)), **rng.choice(({}, {}, {"restartPolicy": "Always"})))
            for number in range(rng.choice((0, 0, 0, 1, 2, 3)))
        ]
        containers = [self._container(f"c{number}", rng.choice((0, 1, 1, 2))) for number in range(rng.choice((1, 2)))]
        spec: JSON = {"initContainers": starting, "containers": containers}
        # A pod with a claim is never bound where a device plugin provides all of its resources: see docs/decisions.md.
        if not self.group.plugins and self._chance(0.25):
            body = claim(name, request(count=rng.choice((1, 2))))
            self.group.claims[name] = body | {"metadata": {"name": name, "namespace": NAMESPACE}}
            spec["resourceClaims"] = [{"name": "claim", "resourceClaimName": name}]
        self.group.add_pod(spec)


def extended_group(number: int) -> ReplayGroup:
    """Return a group; the same number, the same group."""
    return _Generator(number).generate()
