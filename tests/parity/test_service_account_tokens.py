"""Tokens of Secrets beside kube-controller-manager and kube-apiserver: Secrets and the status of TokenReviews."""

from __future__ import annotations

import json
import time
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from support.apiserver.http_api import HttpApi
from support.comparison.controller_runs import kubeloop_up
from support.comparison.real_apiserver import needs_binaries, real_apiserver
from support.processes.cli_processes import Kubeloop, wait_until

JSON = dict[str, Any]
CONTROLLER = "serviceaccount-token-controller"
NS = "/api/v1/namespaces/default"
NAME, UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
MERGE = "application/merge-patch+json"


class Server:
    """User of a cluster."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api = HttpApi.from_kubeconfig(kubeconfig)

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        response = self._api.request(method, path, body, content_type)
        assert response.status < 300, response.content
        return response.content

    def close(self) -> None:
        self._api.close()


def create_secret(server: Server, name: str, account: str, **annotations: str) -> None:
    metadata = {"name": name, "annotations": {NAME: account, **annotations}}
    body = {"metadata": metadata, "type": "kubernetes.io/service-account-token"}
    server.request("POST", f"{NS}/secrets", body)


def secrets(server: Server) -> dict[str, JSON]:
    return {item["metadata"]["name"]: item for item in server.request("GET", f"{NS}/secrets")["items"]}


def has_token(server: Server, *names: str) -> bool:
    stored = secrets(server)
    return all("token" in stored[name].get("data", {}) for name in names)


def token(server: Server, name: str) -> str:
    return b64decode(secrets(server)[name]["data"]["token"]).decode()


def claims(encoded: str) -> JSON:
    payload = encoded.split(".")[1]
    decoded: JSON = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return decoded


def review(server: Server, encoded: str, *audiences: str) -> JSON:
    spec = {"token": encoded, "audiences": list(audiences)}
    reviewed: JSON = server.request("POST", REVIEWS, {"spec": spec})["status"]
    return reviewed


def run(server: Server) -> JSON:
    """Create, change and delete accounts and Secrets; return the observations, without UIDs and times."""
    uids = {}
    for name in ("robot", "other", "leaving", "again"):
        account = {"metadata": {"name": name}, "secrets": [{"name": "listed"}, {"name": "deleted"}]}
        uids[server.request("POST", f"{NS}/serviceaccounts", account)["metadata"]["uid"]] = f"UID of {name}"
    names = ("plain", "listed", "deleted", "changed", "marked", "bound-elsewhere")
    for name in names:
        create_secret(server, name, "robot")
    for name in ("leaving", "again"):
        create_secret(server, f"of-{name}", name)
    create_secret(server, "of-nobody", "nobody")
    create_secret(server, "of-another-uid", "robot", **{UID: "another"})
    wait_until(lambda: has_token(server, *names, "of-leaving", "of-again"), "tokens")
    wait_until(lambda: not secrets(server).keys() & {"of-nobody", "of-another-uid"}, "Secrets of missing accounts")
    tokens = {name: token(server, name) for name in (*names, "of-leaving", "of-again")}
    observed: JSON = {"claims": {name: claims(encoded) for name, encoded in tokens.items()}}
    observed["first reviews"] = {
        "plain": review(server, tokens["plain"]),
        "listed": review(server, tokens["listed"]),
        "audience of the server": review(server, tokens["plain"], "https://kubernetes.default.svc", "x"),
        "other audience": review(server, tokens["plain"], "x"),
    }
    bound = {"secret": "Secret", "account": ""}
    server.request("POST", f"{NS}/secrets", {"metadata": {"name": "binding"}})
    for name, kind in bound.items():
        reference = {"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": "binding"}} if kind else {}
        created = server.request("POST", f"{NS}/serviceaccounts/leaving/token", {"spec": reference})
        tokens[f"bound to {name}"] = created["status"]["token"]
    requested = server.request("POST", f"{NS}/serviceaccounts/again/token", {"spec": {"audiences": ["vault"]}})
    tokens["of another audience"] = requested["status"]["token"]
    server.request("DELETE", f"{NS}/secrets/binding")
    observed["deleted Secret"] = review(server, tokens["bound to secret"])
    server.request("DELETE", f"{NS}/secrets/deleted")
    server.request("DELETE", f"{NS}/serviceaccounts/leaving")
    server.request("DELETE", f"{NS}/serviceaccounts/again")
    wait_until(lambda: not secrets(server).keys() & {"of-leaving", "of-again"}, "Secrets of deleted accounts")
    server.request("POST", f"{NS}/serviceaccounts", {"metadata": {"name": "again"}})
    server.request("PATCH", f"{NS}/secrets/changed", {"data": {"token": None}}, content_type=MERGE)
    wait_until(lambda: has_token(server, "changed"), "another token")
    wait_until(lambda: "deleted" not in str(server.request("GET", f"{NS}/serviceaccounts/robot")), "reference")
    label = {"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2020-01-01"}}}
    server.request("PATCH", f"{NS}/secrets/marked", label, content_type=MERGE)
    server.request("PATCH", f"{NS}/secrets/plain", {"data": {"ca.crt": "eA==", "more": "eA=="}}, content_type=MERGE)
    wait_until(lambda: secrets(server)["plain"]["data"]["ca.crt"] != "eA==", "the certificates")
    time.sleep(11)  # kube-apiserver caches the result of a token for 10 s
    observed["last reviews"] = {name: review(server, encoded) for name, encoded in tokens.items()}
    observed["accounts"] = {
        name: server.request("GET", f"{NS}/serviceaccounts/{name}").get("secrets") for name in ("robot", "other")
    }
    observed["secrets"] = {
        name: {
            "data": sorted(secret["data"]),
            "labels": sorted(secret["metadata"].get("labels", {})),
            "annotations": secret["metadata"]["annotations"],
            "namespace": secret["data"]["namespace"],
        }
        for name, secret in secrets(server).items()
    }
    return replaced(observed, uids)


def replaced(value: Any, uids: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: replaced(item, uids) for name, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, uids) for item in value]
    return uids.get(value, value)


@contextmanager
def kubernetes(folder: Path) -> Iterator[Path]:
    with real_apiserver(folder) as server:
        server.start_component(
            "kube-controller-manager",
            f"--controllers={CONTROLLER}",
            "--leader-elect=false",
            f"--root-ca-file={server.ca}",
            f"--service-account-private-key-file={server.flags['service-account-signing-key-file']}",
        )
        yield server.kubeconfig


@contextmanager
def kubeloop_run(folder: Path) -> Iterator[Path]:
    with (
        real_apiserver(folder) as server,
        Kubeloop(folder).running(
            "run",
            f"--kubeconfig={server.kubeconfig}",
            f"--controllers={CONTROLLER}",
            f"--root-ca-file={server.ca}",
            f"--service-account-private-key-file={server.flags['service-account-signing-key-file']}",
            "--trace-journal=",
        ),
    ):
        yield server.kubeconfig


def observations(start: Callable[[Path], Any], folder: Path) -> JSON:
    with start(folder) as kubeconfig, closing(Server(kubeconfig)) as server:
        return run(server)


def test_secrets_and_reviews_match_kubernetes(tmp_path):
    needs_binaries("kube-controller-manager")
    starts = (kubernetes, kubeloop_run, kubeloop_up)
    with ThreadPoolExecutor(3) as executor:
        real, ours, development = executor.map(lambda start: observations(start, tmp_path / start.__name__), starts)
    assert ours == real
    assert development == real
