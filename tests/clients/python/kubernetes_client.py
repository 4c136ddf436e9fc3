"""Check the official client `kubernetes`: informer, server-side apply, watch, logs and exec."""

import queue

from kubernetes import client, config, dynamic, watch
from kubernetes.informer import SharedInformer
from kubernetes.stream import stream

TIMEOUT_SECONDS = 30


def main() -> None:
    config.load_kube_config()
    core = client.CoreV1Api()
    metadata = client.V1ObjectMeta(generate_name="kubernetes-")
    namespace = core.create_namespace(client.V1Namespace(metadata=metadata)).metadata.name
    check_informer(core, namespace)
    check_apply(namespace)
    check_pod(core, namespace)


def check_informer(core: client.CoreV1Api, namespace: str) -> None:
    events: queue.Queue[str] = queue.Queue()
    informer = SharedInformer(core.list_namespaced_config_map, namespace=namespace, label_selector="check=informer")
    for event_type in ("ADDED", "MODIFIED", "DELETED"):
        informer.add_event_handler(event_type, lambda obj, event=event_type: events.put(f"{event} {obj.metadata.name}"))

    def create(name: str) -> None:
        metadata = client.V1ObjectMeta(name=name, labels={"check": "informer"})
        core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=metadata))

    def expect(expected: str) -> None:
        event = events.get(timeout=TIMEOUT_SECONDS)
        assert event == expected, f"{event} instead of {expected}"

    create("before")
    informer.start()
    expect("ADDED before")
    create("after")
    expect("ADDED after")
    core.patch_namespaced_config_map("after", namespace, {"data": {"key": "value"}})
    expect("MODIFIED after")
    cached = informer.cache.get_by_key(f"{namespace}/after")
    assert cached.data == {"key": "value"}, cached.data
    core.delete_namespaced_config_map("after", namespace)
    expect("DELETED after")
    assert informer.cache.get_by_key(f"{namespace}/after") is None
    informer.stop()


def check_apply(namespace: str) -> None:
    deployments = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="apps/v1", kind="Deployment")
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "nginx:1.27"}]},
            },
        },
    }
    deployments.server_side_apply(body=body, namespace=namespace, field_manager="first")
    events = watch.Watch().stream(
        client.AppsV1Api().list_namespaced_deployment, namespace, timeout_seconds=TIMEOUT_SECONDS
    )
    available = any(event["object"].status.available_replicas == 2 for event in events)
    assert available, "the watch ended before 2 replicas were available"
    body["spec"]["replicas"] = 3
    conflict = ""
    try:
        deployments.server_side_apply(body=body, namespace=namespace, field_manager="second")
    except dynamic.exceptions.ConflictError as error:
        conflict = error.summary()
    assert ".spec.replicas" in conflict, conflict
    applied = deployments.server_side_apply(
        body=body, namespace=namespace, field_manager="second", force_conflicts=True
    )
    assert applied.spec.replicas == 3, applied.spec.replicas


def check_pod(core: client.CoreV1Api, namespace: str) -> None:
    spec = client.V1PodSpec(containers=[client.V1Container(name="main", image="busybox:1.37")])
    core.create_namespaced_pod(namespace, client.V1Pod(metadata=client.V1ObjectMeta(name="shell"), spec=spec))
    events = watch.Watch().stream(
        core.list_namespaced_pod,
        namespace,
        field_selector="metadata.name=shell",
        timeout_seconds=TIMEOUT_SECONDS,
    )
    running = any(event["object"].status.phase == "Running" for event in events)
    assert running, "the watch ended before the pod ran"
    assert core.read_namespaced_pod_log("shell", namespace) == "first line\nsecond line\n"
    connection = stream(
        core.connect_get_namespaced_pod_exec,
        "shell",
        namespace,
        command=["fail"],
        stdout=True,
        stderr=True,
        _preload_content=False,
    )
    connection.run_forever(timeout=TIMEOUT_SECONDS)
    assert connection.read_stderr() == "refused\n"
    assert connection.returncode == 3, connection.returncode


if __name__ == "__main__":
    main()
