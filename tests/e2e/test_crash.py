"""kubeloop killed during a rollout, also with a faulty API server: no pod is lost or duplicated."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS
from support.objects.manifests import deployment
from support.processes.cli_processes import TIMEOUT_SECONDS, Kubeloop, KubeloopProcess

REPLICAS = 500
FAULTS = "error=0.02,throttle=0.01,conflict=0.02,silence=0.002,lost-answer=0.01,drop-watch=0.05,seed=1"
ANNOTATION = "tracing.k8s.io/traceparent"


class PodHistory:
    """The pods received by a watch. Asserts that no pod changes its node."""

    def __init__(self) -> None:
        self.node_of: dict[str, str] = {}
        self.pods: dict[str, Pod] = {}

    def record(self, pod: Pod, *, deleted: bool) -> None:
        uid = pod.metadata.uid
        before = self.node_of.get(uid, "")
        assert before in ("", pod.spec.node_name), f"{pod.key} moved from {before} to {pod.spec.node_name}"
        self.node_of[uid] = pod.spec.node_name
        if deleted:
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = pod

    def with_image(self, image: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.spec.containers[0].image == image]


async def watch_pods(client: ApiClient, history: PodHistory) -> None:
    version = "0"
    while True:
        try:
            async with client.watch(PODS, resource_version=version) as events:
                async for event in events:
                    if event.type == "ERROR":
                        break
                    version = event.object.metadata.resource_version
                    if event.type != "BOOKMARK":
                        history.record(event.object, deleted=event.type == "DELETED")
        except (ApiError, ServerUnreachable):
            await asyncio.sleep(0.05)


async def wait_until(condition, description: str) -> None:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not await condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"not within {TIMEOUT_SECONDS:g} s: {description}")


@asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[tuple[ApiClient, PodHistory]]:
    transport = await connect(str(kubeconfig), None)
    client = ApiClient(transport, clock=SystemClock(), rng=random.Random(0))
    history = PodHistory()
    try:
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(watch_pods(client, history))
            yield client, history
            watch.cancel()
    finally:
        await client.close()


async def retry(call) -> None:
    """Repeat a request of the test until the faulty server accepts it."""

    async def succeeded() -> bool:
        try:
            await call()
        except (ApiError, ServerUnreachable):
            return False
        return True

    await wait_until(succeeded, "a request of the test itself")


def start(kubeloop: Kubeloop, kubeconfig: Path):
    return kubeloop.running("run", "--kubeconfig", kubeconfig, "--controllers", "*")


def kill(running: KubeloopProcess) -> None:
    running.process.send_signal(signal.SIGKILL)
    running.process.wait(TIMEOUT_SECONDS)


async def wait_complete(client: ApiClient, image: str, history: PodHistory) -> None:
    async def is_complete() -> bool:
        try:
            deployment = await client.get(DEPLOYMENTS, "web", "default")
        except (ApiError, ServerUnreachable):
            return False
        status = deployment.status
        return (
            status.observed_generation >= deployment.metadata.generation
            and status.updated_replicas == status.available_replicas == status.replicas == REPLICAS
            and len(history.pods) == REPLICAS
        )

    try:
        await wait_until(is_complete, f"all {REPLICAS} pods of {image}")
    except BaseException:
        page = await client.list_all(PODS)
        states = Counter(
            (
                pod.status.phase,
                bool(pod.spec.node_name),
                pod.spec.containers[0].image,
                pod.metadata.deletion_timestamp is not None,
            )
            for pod in page.items
        )
        print(f"the test's watch has {len(history.pods)} pods; the server has {states}")
        print((await client.get_raw(DEPLOYMENTS, "web", "default"))["status"])
        raise
    assert len(history.with_image(image)) == REPLICAS


@pytest.mark.long
@pytest.mark.parametrize("faults", [pytest.param("", id="reliable server"), pytest.param(FAULTS, id="faulty server")])
async def test_rollout_completes_after_sigkill_and_restart(kubeloop, tmp_path, faults):
    kubeconfig = tmp_path / "kubeconfig"
    arguments = ["--nodes", "50", "--kubeconfig", kubeconfig, *(["--faults", faults] if faults else [])]
    with kubeloop.running("apiserver", *arguments) as server:
        await asyncio.to_thread(server.wait_for, "export KUBECONFIG")
        async with connected(kubeconfig) as (client, history):
            with start(kubeloop, kubeconfig) as first:
                await retry(
                    lambda: client.create(DEPLOYMENTS, deployment(replicas=REPLICAS, image="one", cpu="10m"), "default")
                )

                async def half_bound() -> bool:
                    return sum(map(bool, history.node_of.values())) > REPLICAS // 2

                await wait_until(half_bound, "half of the pods bound")
                kill(first)
            with start(kubeloop, kubeconfig) as second:
                await wait_complete(client, "one", history)
                spec = deployment(image="two", cpu="10m")["spec"]["template"]["spec"]
                patch = {"spec": {"template": {"spec": spec}}}
                await retry(lambda: client.patch(DEPLOYMENTS, "web", patch, PatchType.MERGE, "default"))

                async def rolling() -> bool:
                    return len(history.with_image("two")) > REPLICAS // 3

                await wait_until(rolling, "a third of the pods replaced")
                kill(second)
            annotated = {uid: pod.metadata.annotations[ANNOTATION] for uid, pod in history.pods.items()}
            pending = [pod for pod in history.pods.values() if not pod.spec.node_name]
            with start(kubeloop, kubeconfig):
                await wait_complete(client, "two", history)
                for pod in pending[:3]:
                    if pod.metadata.uid not in history.pods:
                        continue
                    trace = await asyncio.to_thread(kubeloop.json, "trace", f"pod/{pod.metadata.name}", "--json")
                    assert trace["traceId"] == annotated[pod.metadata.uid].split("-")[1]
            assert all(history.node_of[uid] for uid in history.pods)
