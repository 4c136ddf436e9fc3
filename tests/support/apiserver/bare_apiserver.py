"""The development API server as a program, without nodes and controllers: what kube-apiserver is alone.

For comparisons with kube-apiserver, which must not see the writes of controllers. Usage: bare_apiserver.py FOLDER
FEATURE_GATES AUTHORIZATION_MODES ADMISSION_PLUGINS; it writes FOLDER/kubeconfig and prints its URL when it serves. The
token is $KUBELOOP_TOKEN.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import uuid
from pathlib import Path

from kubeloop.devcluster.admission.plugin_settings import DEFAULT_PLUGINS, PluginSettings, parse_plugins
from kubeloop.devcluster.authorization.mode_names import parse_authorization_modes
from kubeloop.devcluster.registry.server_objects import ServerObject, object_template, stamp_object
from kubeloop.devcluster.server.apiserver import ApiServer, ServingSettings
from kubeloop.devcluster.server.http import HttpServer
from kubeloop.devcluster.server.listener import listen, listening_socket, machine_identity
from kubeloop.devcluster.server.tls import create_certificate
from kubeloop.kube.clock import SystemClock, rfc3339
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import NAMESPACES, SERVICE_ACCOUNTS
from kubeloop.process.development_cluster.kubeconfig_file import write_kubeconfig

ACCOUNTS_MANAGER = "accounts-of-tests"


async def main(folder: Path, gates: FeatureGates, modes: tuple[str, ...], admission: PluginSettings) -> None:
    clock, token = SystemClock(), os.environ["KUBELOOP_TOKEN"]
    listener = listening_socket(0)
    port = listener.getsockname()[1]
    certificate = create_certificate(clock)
    url = f"https://127.0.0.1:{port}"
    write_kubeconfig(
        folder / "kubeconfig", server=url, token=token, certificate_pem=certificate.authority.certificate_pem
    )
    settings = ServingSettings(
        identity=machine_identity(port),
        feature_gates=gates,
        admission=admission,
        authorization_modes=modes,
        client_ca=certificate.authority.certificate_pem,
    )
    api = ApiServer(clock=clock, rng=random.Random(), token=token, settings=settings)
    create_accounts(api)
    async with HttpServer(api) as http, asyncio.TaskGroup() as group:
        group.create_task(api.run())
        group.create_task(listen(listener, http, certificate.context))
        print(url, flush=True)


def create_accounts(api: ApiServer) -> None:
    """Create the ServiceAccount "default" in present and new namespaces, as real_apiserver() does."""
    template = object_template(SERVICE_ACCOUNTS, ServerObject("default", manager=ACCOUNTS_MANAGER))

    def create(namespace: str) -> None:
        account = stamp_object(template, str(uuid.uuid4()), rfc3339(api.clock.now()))
        account["metadata"]["namespace"] = namespace
        if api.store.get(SERVICE_ACCOUNTS, namespace, "default") is None:  # left by a finalized namespace of this name
            api.store.create(SERVICE_ACCOUNTS, account)

    for namespace in api.store.list(NAMESPACES):
        create(namespace["metadata"]["name"])
    api.store.subscribe(NAMESPACES, lambda change: create(change.now.key) if change.type == "ADDED" else None)


if __name__ == "__main__":
    _, folder, gates, modes, plugins = sys.argv
    admission = parse_plugins([plugins], (), frozenset(DEFAULT_PLUGINS))
    asyncio.run(main(Path(folder), FeatureGates.parse([gates]), parse_authorization_modes(modes), admission))
