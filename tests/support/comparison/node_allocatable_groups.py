"""Random groups of nodes, devices that stand for resources of their node, claims and pods."""

from __future__ import annotations

import random
from typing import Any

from support.comparison.device_replay import NAMESPACE, ReplayGroup
from support.objects.devices import claim, device, device_class, device_slice, request

JSON = dict[str, Any]
PODS_PER_GROUP = 6
CLASSES = (device_class("gpu", extendedResourceName="example.com/gpu"),)
GATES = {"DRANodeAllocatableResources": True, "DRAListTypeAttributes": True}


class _Generator:
    def __init__(self, number: int) -> None:
        self._random = random.Random(f"node allocatable {number}")
        self.group = ReplayGroup(f"n{number}")

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def generate(self) -> ReplayGroup:
        rng, group = self._random, self.group
        for index in range(rng.randint(1, 3)):
            name = f"{group.name}-{index}"
            allocatable = {"cpu": rng.choice(("2", "4")), "memory": rng.choice(("2Gi", "4Gi")), "pods": "100"}
            if self._chance(0.3):
                allocatable["hugepages-2Mi"] = rng.choice(("4Mi", "64Mi"))
            labels = {"group": group.name}
            group.nodes.append({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}})
            devices = [self._device(f"d{number}") for number in range(rng.randint(1, 5))]
            group.slices.append(device_slice(name, *devices, driver=f"{group.name}.example.com"))
        for _ in range(PODS_PER_GROUP):
            self._pod()
        return group

    def _device(self, name: str) -> JSON:
        rng = self._random
        attributes = {"example.com/models": rng.choice((["a"], ["a", "b"], ["c"], "a"))}
        fields: JSON = {}
        mappings: JSON = {}
        if self._chance(0.7):
            mappings["cpu"] = {"allocationMultiplier": rng.choice(("250m", "1", "2"))}
        if self._chance(0.2):
            mappings["hugepages-2Mi"] = {"allocationMultiplier": "2Mi"}
        if self._chance(0.4):
            fields["allowMultipleAllocations"] = True
            multiplier = rng.choice(({}, {"allocationMultiplier": "2"}, {"allocationMultiplier": "500m"}))
            mappings["memory"] = {"capacityKey": "memory", **multiplier}
        if mappings:
            fields["nodeAllocatableResourceMappings"] = mappings
        return device(name, attributes=attributes, capacity={"memory": "3Gi"}, **fields)

    def _claim(self, name: str) -> None:
        rng = self._random
        fields: JSON = {"count": rng.choice((1, 1, 1, 2))}
        if self._chance(0.6):
            fields["capacity"] = {"requests": {"memory": rng.choice(("256Mi", "1Gi", "1500Mi"))}}
        expressions = []
        if self._chance(0.4):
            models = "device.attributes['example.com'].models"
            expressions.append(rng.choice((f"{models}.includes('a')", f"!{models}.includes('b')")))
        body = claim(name, request("r", "gpu", *expressions, **fields))
        self.group.claims[name] = body | {"metadata": {"name": name, "namespace": NAMESPACE}}

    def _pod(self) -> None:
        rng, name = self._random, f"{self.group.name}-{len(self.group.pods)}"
        claims = [f"{name}-{number}" for number in range(rng.choice((0, 1, 1, 2)))]
        for entry in claims:
            self._claim(entry)
        if self.group.claims and self._chance(0.15):
            shared = rng.choice([*self.group.claims])
            claims = [*dict.fromkeys([*claims, shared])]
            self.group.retried |= {shared.rsplit("-", 1)[0]} - {name}
        entries = [{"name": f"c{number}", "resourceClaimName": entry} for number, entry in enumerate(claims)]
        containers = [self._container(f"c{number}", entries) for number in range(rng.choice((1, 2)))]
        spec: JSON = {"containers": containers}
        if self._chance(0.3):
            spec["initContainers"] = [self._container("i", entries)]
        if entries:
            spec["resourceClaims"] = entries
        if self._chance(0.2):
            spec["resources"] = {"requests": {"cpu": rng.choice(("1500m", "3"))}}
        self.group.add_pod(spec)

    def _container(self, name: str, entries: list[JSON]) -> JSON:
        requests = {"cpu": self._random.choice(("100m", "500m")), "memory": self._random.choice(("64Mi", "512Mi"))}
        used = [{"name": entry["name"]} for entry in entries if self._chance(0.8)]
        return {"name": name, "image": "i", "resources": {"requests": requests, **({"claims": used} if used else {})}}


def node_allocatable_group(number: int) -> ReplayGroup:
    """Return a group; the same number, the same group."""
    return _Generator(number).generate()
