"""Check lightkube: apply with conflicts, wait, scale, watch and logs."""

import faulthandler

from lightkube import ApiError, Client
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Namespace, Pod

TIMEOUT_SECONDS = 30


def main() -> None:
    faulthandler.dump_traceback_later(2 * TIMEOUT_SECONDS, exit=True)  # waits of this client have no timeout
    client = Client(field_manager="first")
    created = client.create(Namespace(metadata=ObjectMeta(generateName="lightkube-")))
    namespace = created.metadata.name
    check_apply(client, namespace)
    check_watch(client, namespace)
    check_deployment(client, namespace)


def check_apply(client: Client, namespace: str) -> None:
    def config_map(owner: str) -> ConfigMap:
        return ConfigMap(metadata=ObjectMeta(name="shared", namespace=namespace), data={"owner": owner})

    client.apply(config_map("first"))
    conflict = None
    try:
        client.apply(config_map("second"), field_manager="second")
    except ApiError as error:
        conflict = (error.status.code, error.status.reason)
    assert conflict == (409, "Conflict"), conflict
    forced = client.apply(config_map("second"), field_manager="second", force=True)
    assert forced.data == {"owner": "second"}, forced.data
    managers = [entry.manager for entry in forced.metadata.managedFields]
    assert managers == ["second"], managers


def check_watch(client: Client, namespace: str) -> None:
    metadata = ObjectMeta(name="watched", namespace=namespace, labels={"check": "watch"})
    client.create(ConfigMap(metadata=metadata))
    events = []
    for event, obj in client.watch(
        ConfigMap, namespace=namespace, labels={"check": "watch"}, server_timeout=TIMEOUT_SECONDS
    ):
        events.append((event, obj.data))
        if event == "ADDED":
            client.patch(ConfigMap, "watched", {"data": {"key": "value"}}, namespace=namespace)
        elif event == "MODIFIED":
            client.delete(ConfigMap, "watched", namespace=namespace)
        else:
            break
    value = {"key": "value"}
    assert events == [("ADDED", None), ("MODIFIED", value), ("DELETED", value)], events


def check_deployment(client: Client, namespace: str) -> None:
    labels = {"app": "web"}
    template = PodTemplateSpec(
        metadata=ObjectMeta(labels=labels), spec=PodSpec(containers=[Container(name="web", image="nginx:1.27")])
    )
    client.create(
        Deployment(
            metadata=ObjectMeta(name="web", namespace=namespace),
            spec=DeploymentSpec(replicas=1, selector=LabelSelector(matchLabels=labels), template=template),
        )
    )
    client.wait(Deployment, "web", for_conditions=["Available"], namespace=namespace)
    scale = Deployment.Scale(metadata=ObjectMeta(name="web", namespace=namespace), spec=ScaleSpec(replicas=2))
    client.replace(scale)
    for _, deployment in client.watch(Deployment, namespace=namespace, server_timeout=TIMEOUT_SECONDS):
        if deployment.status.availableReplicas == 2:
            break
    pods = list(client.list(Pod, namespace=namespace, labels=labels))
    assert len(pods) == 2, pods
    lines = list(client.log(pods[0].metadata.name, namespace=namespace, newlines=False))
    assert lines == ["first line", "second line"], lines


if __name__ == "__main__":
    main()
