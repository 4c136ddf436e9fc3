"""An operator: for each Site a ConfigMap and a Deployment, a status, and a DNS record outside of the cluster."""

from __future__ import annotations

from typing import Any

from kubeloop.controllers.api import (
    Condition,
    Controller,
    ControllerHandle,
    For,
    Object,
    Owns,
    Request,
    Result,
    Struct,
    new_resource,
)
from kubeloop.controllers.api.resources import CONFIG_MAPS, DEPLOYMENTS

FINALIZER = "example.com/dns"


class SiteSpec(Struct):
    image: str = "nginx:1"
    replicas: int = 1
    text: str = ""


class SiteStatus(Struct):
    ready_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class Site(Object):
    spec: SiteSpec = SiteSpec()
    status: SiteStatus = SiteStatus()


SITES = new_resource(Site, "example.com/v1")

CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "sites.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"kind": "Site", "plural": "sites", "singular": "site", "listKind": "SiteList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}


def site(name: str = "blog", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Site",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def has_text(site: Site) -> bool:
    return True


def config_map_of(site: Site) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": site.metadata.name},
        "data": {"index.html": site.spec.text},
    }


def deployment_of(site: Site) -> dict[str, Any]:
    labels = {"site": site.metadata.name}
    container = {"name": "web", "image": site.spec.image}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": site.metadata.name},
        "spec": {
            "replicas": site.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


class Sites(Controller):
    """Reconciles Sites."""

    name = "sites"
    watches = (For(SITES), Owns(CONFIG_MAPS), Owns(DEPLOYMENTS))

    def __init__(self, handle: ControllerHandle, records: set[str] | None = None) -> None:
        """records: names in the DNS."""
        super().__init__(handle)
        self.records = records if records is not None else set()

    async def reconcile(self, request: Request) -> Result:
        site = self.cache.get(SITES, request)
        if site is not None:
            site = await self.finalize(site, FINALIZER, lambda: self.remove_record(request.name))
        if site is None:
            return None
        self.records.add(site.metadata.name)
        config_maps = [config_map_of(site)] if has_text(site) else []
        await self.apply_set(site, [*config_maps, deployment_of(site)])
        deployment = self.cache.get(DEPLOYMENTS, request)
        ready = (deployment.status.ready_replicas or 0) if deployment is not None else 0
        await self.set_condition(
            site,
            "Ready",
            ready >= site.spec.replicas,
            "MinimumReplicasAvailable" if ready >= site.spec.replicas else "ReplicasMissing",
            readyReplicas=ready,
        )
        return None

    async def remove_record(self, name: str) -> None:
        self.records.discard(name)
