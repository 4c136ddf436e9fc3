"""An operator of Sites, in plain Python, which starts fast: for each a DNS record, a Secret, volumes, a Deployment.

    python site_operator.py [--kubeconfig FILE] [--defect NAME] [--leader-elect]

A DNS record is a ConfigMap without an owner, in the place of something outside of the cluster. A defect replaces one
correct behavior; DEFECTS describes them.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import queue
import ssl
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

DEFECTS = {
    "secret-by-status": "knows its Secret from the status only",
    "config-in-two-writes": "fills a DNS record directly after its creation only",
    "finalizer-first": "removes the finalizer before it deletes the DNS record",
    "exists-is-fatal": "exits if an object that it creates exists",
    "stale-cache-create": "creates a Secret whenever its cache has none, and never deletes one",
    "stale-cache-delete": "deletes volumes that a cached Site does not need",
    "missed-deletion": "deletes a DNS record when it sees the Site's DELETED event, without a finalizer",
    "missed-event": "learns from MODIFIED events only how many replicas are ready",
    "conflict-ignored": "gives up after a conflict",
    "error-ignored": "gives up after an error 500",
    "retried-create": "repeats the creation of a Secret whose response was lost",
    "never-quiet": "writes the time to the status",
}
FINALIZER = "faults.example.com/dns"
SITES = "/apis/faults.example.com/v1/namespaces/default/sites"
CORE, DEPLOYMENTS = "/api/v1/namespaces/default", "/apis/apps/v1/namespaces/default/deployments"
CONFIG_MAPS, SECRETS, CLAIMS = f"{CORE}/configmaps", f"{CORE}/secrets", f"{CORE}/persistentvolumeclaims"
LEASES, LEASE_SECONDS = "/apis/coordination.k8s.io/v1/namespaces/default/leases", 10
RETRY_SECONDS, TIMEOUT_SECONDS = 0.3, 10
JSON = dict[str, Any]


class ApiError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}")
        self.status = status


class Client:
    """A client with the server and the certificate of a kubeconfig in JSON."""

    def __init__(self, kubeconfig: str) -> None:
        with open(kubeconfig) as file:
            document = json.load(file)
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile() as pem:
            for name in ("client-certificate-data", "client-key-data"):
                pem.write(base64.b64decode(user[name]))
            pem.flush()
            self._tls.load_cert_chain(pem.name)
        self._host = cluster["server"].removeprefix("https://")
        self._connection: http.client.HTTPSConnection | None = None

    def request(self, method: str, path: str, body: JSON | None = None, content: str = "application/json") -> JSON:
        """Send a request of the reconcile loop. Raises ApiError, OSError, HTTPException."""
        connection = self._connection or http.client.HTTPSConnection(
            self._host, context=self._tls, timeout=TIMEOUT_SECONDS
        )
        self._connection = None  # unless it can be used again
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": content})
        response = connection.getresponse()
        answer: JSON = json.loads(response.read())
        self._connection = connection
        if response.status >= 400:
            raise ApiError(response.status, answer.get("message", ""))
        return answer

    def list(self, path: str) -> JSON:
        connection = http.client.HTTPSConnection(self._host, context=self._tls, timeout=TIMEOUT_SECONDS)
        connection.request("GET", f"{path}?resourceVersion=0")
        return self._checked(connection.getresponse())

    def watch(self, path: str, version: str) -> Iterator[JSON]:
        connection = http.client.HTTPSConnection(self._host, context=self._tls)
        connection.request("GET", f"{path}?watch=1&resourceVersion={version}")
        response = connection.getresponse()
        if response.status >= 400:
            self._checked(response)
        while line := response.readline():
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise ApiError(event["object"]["code"], event["object"]["message"])
            yield event

    def _checked(self, response: http.client.HTTPResponse) -> JSON:
        answer: JSON = json.loads(response.read())
        if response.status >= 400:
            raise ApiError(response.status, answer.get("message", ""))
        return answer


class Informer(threading.Thread):
    """The objects of a collection: from a list at any version, then from watches."""

    def __init__(self, client: Client, path: str, changed: Callable[[str, JSON], None]) -> None:
        super().__init__(daemon=True)
        self.objects: dict[str, JSON] = {}
        self.synced = threading.Event()
        self.changed = changed
        self._client = client
        self._path = path

    def run(self) -> None:
        while True:
            try:
                self._follow()
            except (ApiError, OSError, http.client.HTTPException) as error:
                print(f"watch {self._path}: {error!r}", flush=True)
                time.sleep(RETRY_SECONDS)

    def _follow(self) -> None:
        page = self._client.list(self._path)
        before, self.objects = self.objects, {item["metadata"]["name"]: item for item in page["items"]}
        for name in before.keys() - self.objects.keys():
            self.changed("GONE", before[name])
        for item in self.objects.values():
            self.changed("LISTED", item)
        self.synced.set()
        version = page["metadata"]["resourceVersion"]
        while True:
            for event in self._client.watch(self._path, version):
                item = event["object"]
                version = item["metadata"]["resourceVersion"]
                if event["type"] == "DELETED":
                    self.objects.pop(item["metadata"]["name"], None)
                else:
                    self.objects[item["metadata"]["name"]] = item
                self.changed(event["type"], item)


class Election(threading.Thread):
    """Takes part in an election with a Lease; the process ends if it cannot renew it."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self.leads = threading.Event()
        self._client = client
        self._identity = str(uuid.uuid4())
        self._lease: JSON = {}

    def run(self) -> None:
        renewed_at = time.monotonic()
        while True:
            try:
                if self._is_acquired():
                    renewed_at = time.monotonic()
                    self.leads.set()
            except (ApiError, OSError, http.client.HTTPException) as error:
                print(f"election: {error!r}", flush=True)
                self._lease = {}
            if self.leads.is_set() and time.monotonic() > renewed_at + LEASE_SECONDS:
                os._exit(1)
            time.sleep(1 if self.leads.is_set() else RETRY_SECONDS)

    def _is_acquired(self) -> bool:
        now = datetime.now(UTC)
        path = f"{LEASES}/sites"
        self._lease = self._lease or self._read(path)
        spec = self._lease.get("spec", {})
        if spec.get("holderIdentity", self._identity) not in ("", self._identity):
            expires = datetime.fromisoformat(spec["renewTime"]) + timedelta(seconds=LEASE_SECONDS)
            if expires > now:
                self._lease = {}
                return False
        changed = {"holderIdentity": self._identity, "leaseDurationSeconds": LEASE_SECONDS}
        body = {"metadata": {"name": "sites"}, **self._lease, "spec": {**changed, "renewTime": f"{now:%FT%T.%fZ}"}}
        method, target = ("PUT", path) if self._lease else ("POST", LEASES)
        self._lease = self._client.request(method, target, body)
        return True

    def _read(self, path: str) -> JSON:
        try:
            return self._client.request("GET", path)
        except ApiError as error:
            if error.status != 404:
                raise
            return {}


class Operator:
    def __init__(self, client: Client, defect: str) -> None:
        self.client = client
        self.defect = defect
        self.queue: queue.Queue[str] = queue.Queue()
        self.sites = Informer(client, SITES, self.site_changed)
        self.secrets = Informer(client, SECRETS, self.child_changed)
        self.claims = Informer(client, CLAIMS, self.child_changed)
        self.deployments = Informer(client, DEPLOYMENTS, self.deployment_changed)
        self.created: dict[str, str] = {}  # names of Secrets by UID of the Site, until the cache shows them
        self.deployed: set[str] = set()
        self.ready: dict[str, int] = {}

    def child_changed(self, _type: str, child: JSON) -> None:
        for owner in child["metadata"].get("ownerReferences", ()):
            self.queue.put(owner["name"])

    def deployment_changed(self, type_: str, deployment: JSON) -> None:
        if self.defect != "missed-event" or type_ == "MODIFIED":
            self.ready[deployment["metadata"]["name"]] = deployment.get("status", {}).get("readyReplicas") or 0
        self.child_changed(type_, deployment)

    def site_changed(self, type_: str, site: JSON) -> None:
        if self.defect == "missed-deletion" and type_ == "DELETED":
            for host in site.get("status", {}).get("hosts", ()):
                self.delete_record(host)
        self.queue.put(site["metadata"]["name"])

    def run(self) -> None:
        informers = (self.sites, self.secrets, self.claims, self.deployments)
        for informer in informers:
            informer.start()
        for informer in informers:
            informer.synced.wait()
        while True:
            name = self.queue.get()
            site = self.sites.objects.get(name)
            if site is None:
                continue
            try:
                self.reconcile(site)
            except (ApiError, OSError, http.client.HTTPException) as error:
                print(f"reconcile {name}: {error!r}", flush=True)
                ignored = {"conflict-ignored": 409, "error-ignored": 500}
                if getattr(error, "status", 0) == ignored.get(self.defect):
                    continue
                threading.Timer(RETRY_SECONDS, self.queue.put, (name,)).start()

    # --- reconcile --------------------------------------------------------------------------------------------------

    def reconcile(self, site: JSON) -> None:
        metadata, spec = site["metadata"], site["spec"]
        hosts = site.get("status", {}).get("hosts", [])
        if metadata.get("deletionTimestamp"):
            self.finalize(site)
            return
        if self.defect != "missed-deletion" and FINALIZER not in metadata.get("finalizers", ()):
            finalizers = [*metadata.get("finalizers", ()), FINALIZER]
            self.replace({**site, "metadata": {**metadata, "finalizers": finalizers}})
            return
        if spec["host"] not in hosts:  # before the record, so that it is deleted in any case
            self.write_status(site, hosts=[*hosts, spec["host"]])
            return
        self.ensure_record(site)
        for host in hosts:
            if host != spec["host"]:
                self.delete_record(host)
        secret = self.ensure_secret(site)
        self.ensure_volumes(site)
        self.ensure_deployment(site)
        ready = self.ready.get(metadata["name"], 0)
        status = {"hosts": [spec["host"]], "secret": secret, "ready": ready, "deployed": True}
        if self.defect == "never-quiet":
            status["secret"] = str(time.time())
        self.write_status(site, **status)

    def finalize(self, site: JSON) -> None:
        finalizers = site["metadata"].get("finalizers", [])
        if FINALIZER not in finalizers:
            return
        remaining = [name for name in finalizers if name != FINALIZER]
        changed = {**site, "metadata": {**site["metadata"], "finalizers": remaining}}
        if self.defect == "finalizer-first":
            self.replace(changed)
        for host in site.get("status", {}).get("hosts", ()):
            self.delete_record(host)
        if self.defect != "finalizer-first":
            self.replace(changed)

    def is_current(self, site: JSON) -> bool:
        """Return True if the cached Site is not outdated; what cannot be undone needs that."""
        if self.defect == "stale-cache-delete":
            return True
        try:
            current = self.client.request("GET", f"{SITES}/{site['metadata']['name']}")["metadata"]
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return all(current[field] == site["metadata"][field] for field in ("uid", "generation"))

    def ensure_record(self, site: JSON) -> None:
        host = site["spec"]["host"]
        name, data = f"dns-{host}", {"target": host}
        try:
            self.client.request("GET", f"{CONFIG_MAPS}/{name}")
        except ApiError as error:
            if error.status != 404:
                raise
            if not self.is_current(site):
                raise ApiError(409, "the Site is outdated") from None
            if self.defect == "config-in-two-writes":
                self.create(CONFIG_MAPS, {"metadata": {"name": name}})
                self.client.request("PATCH", f"{CONFIG_MAPS}/{name}", {"data": data}, "application/merge-patch+json")
            else:
                self.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": data}, exists=True)

    def delete_record(self, host: str) -> None:
        self.delete(f"{CONFIG_MAPS}/dns-{host}")

    def ensure_secret(self, site: JSON) -> str:
        uid = site["metadata"]["uid"]
        if self.defect == "secret-by-status" and (secret := site.get("status", {}).get("secret")):
            return str(secret)
        owned = sorted(name for name, secret in self.secrets.objects.items() if is_owned(secret, uid))
        if self.defect == "secret-by-status":
            owned = []
        if self.created.get(uid) in owned:
            self.created.pop(uid)
        if uid in self.created and self.defect != "stale-cache-create":
            return self.created[uid]
        if not owned:
            body = {"metadata": child_metadata(site, generateName=f"{site['metadata']['name']}-tls-")}
            created = self.create_secret(body)
            self.created[uid] = created["metadata"]["name"]
            return self.created[uid]
        if self.defect not in ("stale-cache-create", "retried-create"):
            for name in owned[1:]:
                self.delete(f"{SECRETS}/{name}")
        return owned[0]

    def create_secret(self, body: JSON) -> Any:
        while True:
            try:
                return self.create(SECRETS, body)
            except (OSError, http.client.HTTPException):
                if self.defect != "retried-create":
                    raise

    def ensure_volumes(self, site: JSON) -> None:
        metadata, replicas = site["metadata"], site["spec"]["replicas"]
        names = [f"data-{metadata['name']}-{number}" for number in range(replicas)]
        for name in names:
            if name not in self.claims.objects:
                resources = {"requests": {"storage": "1Gi"}}
                body = {
                    "metadata": child_metadata(site, name=name),
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources},
                }
                self.create(CLAIMS, body, exists=True)
        surplus = [name for name, claim in self.claims.objects.items() if is_owned(claim, metadata["uid"])]
        surplus = [
            name
            for name in set(surplus) - set(names)
            if "deletionTimestamp" not in self.claims.objects[name]["metadata"]
        ]
        if surplus and not self.is_current(site):
            return
        for name in surplus:
            self.delete(f"{CLAIMS}/{name}")

    def ensure_deployment(self, site: JSON) -> None:
        name, replicas = site["metadata"]["name"], site["spec"]["replicas"]
        deployment = self.deployments.objects.get(name)
        if self.defect == "exists-is-fatal":
            if site.get("status", {}).get("deployed") or site["metadata"]["uid"] in self.deployed:
                body = {"spec": {"replicas": replicas}}
                self.client.request("PATCH", f"{DEPLOYMENTS}/{name}", body, "application/merge-patch+json")
                return
            deployment = None
        if deployment is not None and is_owned(deployment, site["metadata"]["uid"]):
            if deployment["spec"]["replicas"] != replicas:
                changed = {**deployment, "spec": {**deployment["spec"], "replicas": replicas}}
                self.client.request("PUT", f"{DEPLOYMENTS}/{name}", changed)
            return
        labels = {"site": name}
        containers = [{"name": "web", "image": "registry.example.com/web"}]
        body = {
            "metadata": child_metadata(site, name=name),
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
            },
        }
        self.create(DEPLOYMENTS, body)
        self.deployed.add(site["metadata"]["uid"])

    # --- requests ---------------------------------------------------------------------------------------------------

    def create(self, path: str, body: JSON, *, exists: bool = False) -> JSON | None:
        """Create an object. exists: one of the name may exist, then return None."""
        try:
            return self.client.request("POST", path, body)
        except ApiError as error:
            if error.status == 409 and self.defect == "exists-is-fatal":
                print(f"{body['metadata']} exists", flush=True)
                os._exit(1)
            if error.status == 409 and exists:
                return None
            raise

    def delete(self, path: str) -> None:
        try:
            self.client.request("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    def replace(self, site: JSON) -> None:
        self.client.request("PUT", f"{SITES}/{site['metadata']['name']}", site)

    def write_status(self, site: JSON, **status: Any) -> None:
        complete = {**site.get("status", {}), **status}
        if complete != site.get("status"):
            self.client.request("PUT", f"{SITES}/{site['metadata']['name']}/status", {**site, "status": complete})


def is_owned(obj: JSON, uid: str) -> bool:
    return any(owner["uid"] == uid for owner in obj["metadata"].get("ownerReferences", ()))


def child_metadata(site: JSON, **names: str) -> JSON:
    owner = {
        "apiVersion": "faults.example.com/v1",
        "kind": "Site",
        "name": site["metadata"]["name"],
        "uid": site["metadata"]["uid"],
        "controller": True,
    }
    return {**names, "ownerReferences": [owner]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", default=os.environ.get("KUBECONFIG"))
    parser.add_argument("--defect", choices=["", *sorted(DEFECTS)], default="")
    parser.add_argument("--leader-elect", action="store_true", help="take part in an election")
    arguments = parser.parse_args()
    if arguments.leader_elect:
        election = Election(Client(arguments.kubeconfig))
        election.start()
        election.leads.wait()
    Operator(Client(arguments.kubeconfig), arguments.defect).run()


if __name__ == "__main__":
    main()
