"""The development API server as a program, without nodes and controllers: what kube-apiserver is alone.

For comparisons with kube-apiserver, which must not see the writes of controllers. Usage: bare_apiserver.py FOLDER
FEATURE_GATES; it writes FOLDER/kubeconfig and prints its URL when it serves. The token is $KUBELOOP_TOKEN.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from kubeloop.devcluster.server.apiserver import ApiServer, ServingSettings
from kubeloop.devcluster.server.http import HttpServer
from kubeloop.devcluster.server.listener import listen, loopback_socket, machine_identity
from kubeloop.devcluster.server.tls import create_certificate
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.process.kubeconfig_file import write_kubeconfig


async def main(folder: Path, gates: FeatureGates) -> None:
    clock, token = SystemClock(), os.environ["KUBELOOP_TOKEN"]
    listener = loopback_socket(0)
    port = listener.getsockname()[1]
    certificate = create_certificate(clock)
    url = f"https://127.0.0.1:{port}"
    write_kubeconfig(folder / "kubeconfig", server=url, token=token, certificate_pem=certificate.certificate_pem)
    settings = ServingSettings(identity=machine_identity(port), feature_gates=gates)
    api = ApiServer(clock=clock, rng=random.Random(), token=token, settings=settings)
    async with HttpServer(api) as http, asyncio.TaskGroup() as group:
        group.create_task(api.run())
        group.create_task(listen(listener, http, certificate.context))
        print(url, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), FeatureGates.parse([sys.argv[2]])))
