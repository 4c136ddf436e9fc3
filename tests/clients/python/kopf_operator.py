"""Check a kopf operator: handlers of a custom resource with a finalizer, retries, status, adopted children, events."""

import asyncio
from typing import Any

import kopf
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

GROUP, VERSION, PLURAL = "clients.kubeloop.example", "v1", "pages"
TIMEOUT_SECONDS = 30

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"title": {"type": "string"}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
DEFINITION = {
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "Page", "plural": PLURAL},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": SCHEMA},
            }
        ],
    },
}

cleaned: list[str] = []


@kopf.on.create(GROUP, VERSION, PLURAL)
def create(namespace: str, name: str, spec: kopf.Spec, body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
    child = {"metadata": {"name": name}, "data": {"title": spec["title"]}}
    kopf.adopt(child)
    client.CoreV1Api().create_namespaced_config_map(namespace, child)
    patch.status["published"] = spec["title"]
    kopf.info(body, reason="Published", message=spec["title"])


@kopf.on.update(GROUP, VERSION, PLURAL, field="spec.title")
def update(namespace: str, name: str, new: str, patch: kopf.Patch, **_: Any) -> None:
    client.CoreV1Api().patch_namespaced_config_map(name, namespace, {"data": {"title": new}})
    patch.status["published"] = new


@kopf.on.delete(GROUP, VERSION, PLURAL)
def clean_up(name: str, retry: int, **_: Any) -> None:
    if retry == 0:
        raise kopf.TemporaryError("the first clean-up fails", delay=0.1)
    cleaned.append(name)


async def main() -> None:
    config.load_kube_config()
    client.ApiextensionsV1Api().create_custom_resource_definition(DEFINITION)
    metadata = client.V1ObjectMeta(generate_name="kopf-")
    namespace = client.CoreV1Api().create_namespace(client.V1Namespace(metadata=metadata)).metadata.name
    ready, stop = asyncio.Event(), asyncio.Event()
    operator = asyncio.create_task(
        kopf.operator(namespaces=[namespace], standalone=True, ready_flag=ready, stop_flag=stop)
    )
    await ready.wait()
    await check_life_of_a_page(namespace)
    stop.set()
    await operator


async def check_life_of_a_page(namespace: str) -> None:
    pages, core = client.CustomObjectsApi(), client.CoreV1Api()
    page = (GROUP, VERSION, namespace, PLURAL)
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Page",
        "metadata": {"name": "home"},
        "spec": {"title": "first"},
    }
    pages.create_namespaced_custom_object(*page, body)

    def current() -> Any:
        return pages.get_namespaced_custom_object(*page, "home")

    def published() -> Any:
        return current().get("status", {}).get("published")

    await wait_until(lambda: published() == "first", "the create handler published the page")
    assert current()["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"], current()["metadata"]
    child = core.read_namespaced_config_map("home", namespace)
    assert child.data == {"title": "first"}, child.data
    assert child.metadata.owner_references[0].kind == "Page", child.metadata

    def messages() -> list[str]:
        events = core.list_namespaced_event(namespace, field_selector="involvedObject.kind=Page,reason=Published")
        return [event.message for event in events.items]

    await wait_until(lambda: messages() == ["first"], "the handler's event was posted")

    pages.patch_namespaced_custom_object(*page, "home", {"spec": {"title": "second"}})
    await wait_until(lambda: published() == "second", "the update handler published the page")
    assert core.read_namespaced_config_map("home", namespace).data == {"title": "second"}

    pages.delete_namespaced_custom_object(*page, "home")
    await wait_until(lambda: absent(current), "the finalizer was removed and the page deleted")
    assert cleaned == ["home"], cleaned
    await wait_until(
        lambda: absent(lambda: core.read_namespaced_config_map("home", namespace)), "the child was collected"
    )


def absent(read: Any) -> bool:
    try:
        read()
    except ApiException as error:
        return error.status == 404
    return False


async def wait_until(condition: Any, description: str) -> None:
    """Poll until the condition holds; the client's calls are short enough to block the operator's event loop."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():
            await asyncio.sleep(0.05)
    print(description)


if __name__ == "__main__":
    asyncio.run(main())
