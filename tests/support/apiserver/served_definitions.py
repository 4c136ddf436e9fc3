"""CustomResourceDefinitions that are served from a store, without an API server."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from kubeloop.devcluster.api.served_resources import CUSTOM_RESOURCE_DEFINITIONS, ServedResource
from kubeloop.devcluster.apiextensions.definitions import Definitions
from kubeloop.devcluster.outgoing.service_addresses import ServiceAddresses
from kubeloop.devcluster.outgoing.webhook_client import WebhookClient
from kubeloop.devcluster.storage.store import ObjectStore
from support.simulation.set_clock import SetClock

JSON = dict[str, Any]


def webhook_client(store: ObjectStore) -> WebhookClient:
    """Return a client that reaches the Services of a store."""
    return WebhookClient(ServiceAddresses(store, {}))


class ServedDefinitions:
    """A store with definitions. changed: the resources for which on_served_change was called."""

    def __init__(self) -> None:
        self.store, self.changed = ObjectStore(seconds=lambda: 0.0), list[ServedResource]()
        clock = SetClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.definitions = Definitions(self.store, clock, self.changed.append, webhook_client(self.store))

    def create(self, definition: JSON) -> JSON:
        """Store a definition with the status of a new one, serve it, and return it."""
        definition = deepcopy(definition)
        definition["metadata"]["uid"] = "u"
        names = definition["spec"]["names"]
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
        definition["status"] = {
            "conditions": [],
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": [version["name"] for version in definition["spec"]["versions"] if version["storage"]],
        }
        self.store.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        return self.settled(definition["metadata"]["name"])

    def settled(self, name: str) -> JSON:
        """Reconcile the definitions and return one of them."""
        self.definitions.settle()
        definition = self.store.get(CUSTOM_RESOURCE_DEFINITIONS, "", name)
        assert definition is not None
        return definition
