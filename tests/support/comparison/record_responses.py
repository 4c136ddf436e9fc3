"""Records the responses of kube-apiserver that tests compare with where it is not installed.

    KUBEBUILDER_ASSETS=FOLDER PYTHONPATH=tests python -m support.comparison.record_responses

replaces the *_responses.json and recorded_protobuf.json of this folder. Tests in tests/parity send the same requests to
an installed kube-apiserver.
"""

from __future__ import annotations

import base64
import json
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from kubeloop.devcluster.api.request import PROTOBUF_TYPE
from kubeloop.devcluster.api.served_resources import BY_PATH
from kubeloop.devcluster.serializer.protobuf.wire import wire_values
from kubeloop.kube.feature_gates import gang_scheduling_text
from support.apiserver.http_api import HttpApi, response_when_initialized, response_when_served, wait_until_settled
from support.comparison import custom_resource_requests, policy_cases, rule_cases
from support.comparison.differential import SERVER_METADATA
from support.comparison.real_apiserver import real_apiserver, why_missing

_FOLDER = Path(__file__).parent
_MAGIC_BYTES = 4  # before the envelope of a protobuf body


def policy_responses(server: HttpApi) -> Iterator[Any]:
    for step in policy_cases.setup_requests():
        response = server.request(step.method, step.path, step.body, step.content_type)
        assert response.status == 201, (step.about, response.content)
    time.sleep(policy_cases.POLICY_DELAY_SECONDS)
    for step in policy_cases.judged_requests():
        response = server.request(step.method, step.path, step.body, step.content_type)
        yield {"step": step.about, **policy_cases.comparable(response)}


def rule_responses(server: HttpApi) -> Iterator[Any]:
    for step in rule_cases.steps():
        yield {"step": step.about, **rule_cases.comparable(response_when_served(server, step))}
        if step.settle:
            time.sleep(1)  # until kube-apiserver has reloaded its definitions


def custom_resource_responses(server: HttpApi) -> Iterator[Any]:
    for step in custom_resource_requests.steps():
        response = response_when_initialized(server, step)
        yield {"step": step.about, **custom_resource_requests.comparable(step, response)}
        if step.settle:
            wait_until_settled(server)


def recorded_protobuf(server: HttpApi) -> Iterator[Any]:
    """Create the recorded objects again, and yield of each its JSON and its message without envelope."""
    resources = {(served.resource.api_version, served.resource.kind): served.resource for served in BY_PATH.values()}
    for obj, recorded_message in json.loads((_FOLDER / "recorded_protobuf.json").read_text()):
        resource = resources[obj["apiVersion"], obj["kind"]]
        metadata = {name: value for name, value in obj["metadata"].items() if name not in SERVER_METADATA}
        namespace = metadata.get("namespace", "")
        if namespace:
            server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        body = _compact_json({**obj, "metadata": metadata})  # raw JSON inside of objects is stored as it was sent
        created = server.request("POST", resource.path(namespace), body)
        if created.status not in (201, 409):  # 409: every server has it
            print(
                f"the record is kept: {created.content['message']}", file=sys.stderr
            )  # such as an Event of a controller
            yield [obj, recorded_message]
            continue
        path = resource.path(namespace, metadata["name"])
        if "status" in obj and created.status == 201:
            server.request("PUT", f"{path}/status", _compact_json({**created.content, "status": obj["status"]}))
        envelope = server.request("GET", path, accept=PROTOBUF_TYPE).body[_MAGIC_BYTES:]
        message = {number: value for number, _, value in wire_values(envelope)}[2]
        yield [server.request("GET", path).content, base64.b64encode(message).decode()]


def _compact_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


_RECORDERS: tuple[Callable[[HttpApi], Iterator[Any]], ...] = (
    policy_responses,
    rule_responses,
    custom_resource_responses,
    recorded_protobuf,
)


def main() -> None:
    if (reason := why_missing("etcd", "kube-apiserver")) is not None:
        sys.exit(f"error: {reason}")
    for record in _RECORDERS:
        flags = {
            "service-cluster-ip-range": "10.96.0.0/12",  # the addresses of the recorded Services
            "feature-gates": f"{gang_scheduling_text()},StorageVersionMigrator=true",
            "runtime-config": "scheduling.k8s.io/v1alpha2=true,storagemigration.k8s.io/v1beta1=true",
        }
        with tempfile.TemporaryDirectory() as folder, real_apiserver(Path(folder), flags=flags) as kubernetes:
            context = ssl.create_default_context(cafile=str(kubernetes.ca))
            with closing(HttpApi(kubernetes.url, kubernetes.token, context, "tester/1")) as server:
                responses = list(record(server))
        lines = ",\n".join(map(_compact_json, responses))
        (_FOLDER / f"{record.__name__}.json").write_text(f"[\n{lines}\n]\n")
        print(f"{record.__name__}: {len(responses)}")


if __name__ == "__main__":
    main()
