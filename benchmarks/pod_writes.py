"""Writes of pods to an API server in this process, without sockets: CPU microseconds per create, patch and delete.

    python benchmarks/pod_writes.py [--webhooks N] [--rounds N]

--webhooks: webhooks whose rules match no pod. Without any, a write must cost what it cost before webhooks existed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Callable
from typing import Any

from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.kube.clock import SystemClock

PODS = "/api/v1/namespaces/default/pods"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MERGE = {"content-type": "application/merge-patch+json"}
COUNT = 1500


def pod(name: str) -> bytes:
    container = {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "100m"}}}
    return json.dumps({"metadata": {"name": name, "labels": {"a": "b"}}, "spec": {"containers": [container]}}).encode()


def configuration(count: int) -> bytes:
    rule = {"apiGroups": ["none"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}
    webhook: dict[str, Any] = {"clientConfig": {"url": "https://127.0.0.1:1"}, "rules": [rule], "sideEffects": "None"}
    webhook["admissionReviewVersions"] = ["v1"]
    webhooks = [{"name": f"w{index}.example.com", **webhook} for index in range(count)]
    return json.dumps({"metadata": {"name": "c"}, "webhooks": webhooks}).encode()


def microseconds(send: Callable[[int], Any]) -> float:
    began = time.process_time()
    for index in range(COUNT):
        response = send(index)
        assert isinstance(response, Response), response
        assert response.status in {200, 201}, response.body
    return (time.process_time() - began) / COUNT * 1e6


async def measure(webhooks: int) -> list[float]:
    server = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None)
    if webhooks:
        server.respond(ApiRequest.of("POST", CONFIGURATIONS, {}, configuration(webhooks)))
    bodies = [pod(f"p{index}") for index in range(COUNT)]
    patches = [b'{"metadata": {"labels": {"x": "%d"}}}' % index for index in range(COUNT)]
    return [
        microseconds(lambda index: server.respond(ApiRequest.of("POST", PODS, {}, bodies[index]))),
        microseconds(lambda index: server.respond(ApiRequest.of("PATCH", f"{PODS}/p{index}", MERGE, patches[index]))),
        microseconds(lambda index: server.respond(ApiRequest.of("DELETE", f"{PODS}/p{index}?gracePeriodSeconds=0"))),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--webhooks", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rounds = [asyncio.run(measure(options.webhooks)) for _ in range(options.rounds)]
    medians = [sorted(values)[len(values) // 2] for values in zip(*rounds, strict=True)]
    print("create {:.0f}, patch {:.0f}, delete {:.0f} us".format(*medians))


if __name__ == "__main__":
    main()
