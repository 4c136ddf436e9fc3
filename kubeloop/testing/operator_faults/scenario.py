"""Scenario of a run: manifests that exist before the operator starts, and the steps of users."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubeloop.devcluster.api.served_resources import BY_KIND
from kubeloop.kube import yaml
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import ApiError
from kubeloop.kube.user_error import UserError, read_text
from kubeloop.process.manifests import Manifest, apply, objects_of, read_manifests
from kubeloop.testing.operations import Operations
from kubeloop.testing.wait_conditions import parse_condition

_RETRY_SECONDS = 0.2
_KEYS = {
    "apply": {"apply"},
    "delete": {"delete", "namespace"},
    "patch": {"patch", "merge", "namespace"},
    "wait": {"wait", "for", "namespace", "timeout"},
}
_WORKLOADS = ("apps", "batch")
_HINT = "see docs/operator-faults.md, which describes the steps"


@dataclass(frozen=True)
class ScenarioStep:
    """A step of a user. verb: "apply", "delete", "patch" or "wait". act: performs it within some seconds."""

    verb: str
    title: str
    act: Callable[[Operations, float], Awaitable[object]]


@dataclass(frozen=True)
class Scenario:
    """setup: objects that exist before the operator starts."""

    setup: Sequence[Manifest]
    steps: Sequence[ScenarioStep]


def read_scenario(files: Sequence[Path], steps: Path | None) -> Scenario:
    """Return the scenario of manifests and a file of steps. Raises UserError.

    Without steps, the custom resources of the manifests are applied and then deleted; if there are none, the workloads.
    """
    manifests = read_manifests(files)
    if steps is not None:
        return Scenario(manifests, read_steps(steps))
    tested = [manifest for manifest in manifests if _is_custom(manifest)]
    tested = tested or [manifest for manifest in manifests if _group(manifest) in _WORKLOADS]
    if not tested:
        raise UserError(
            "the manifests have no custom resource and no workload, which the operator would act on",
            hint="add one with -f, or the file of a scenario with --steps",
        )
    setup = [manifest for manifest in manifests if manifest not in tested]
    named = [manifest for manifest in tested if manifest.name]
    return Scenario(setup, [_apply(tested), *(_delete_manifest(manifest) for manifest in named)])


def read_steps(path: Path) -> list[ScenarioStep]:
    """Return the steps of a file; a wait belongs to the step before it. Raises UserError."""
    try:
        document, _ = yaml.read_first(read_text(path, hint=_HINT))
    except yaml.InvalidYaml as error:
        raise UserError(f"{path}: {error}", hint=_HINT) from None
    if not isinstance(document, list) or not document:
        raise UserError(f"{path}: not a list of steps", hint=_HINT)
    steps: list[ScenarioStep] = []
    for number, entry in enumerate(document, start=1):
        step = _step(f"{path}, step {number}", entry, path.parent)
        steps.append(_then(steps.pop(), step) if step.verb == "wait" and steps else step)
    return steps


def _then(step: ScenarioStep, wait: ScenarioStep) -> ScenarioStep:
    """Return a step that ends after the wait: what is in between depends on time."""

    async def act(cluster: Operations, seconds: float) -> None:
        await step.act(cluster, seconds)
        await wait.act(cluster, seconds)

    return ScenarioStep(step.verb, f"{step.title}, {wait.title}", act)


def _step(source: str, entry: Any, folder: Path) -> ScenarioStep:
    verbs = [verb for verb in _KEYS if isinstance(entry, Mapping) and verb in entry]
    if len(verbs) != 1:
        raise UserError(f"{source}: not one of {', '.join(_KEYS)}", hint=_HINT)
    verb = verbs[0]
    if unknown := sorted(str(key) for key in entry.keys() - _KEYS[verb]):
        raise UserError(f"{source}: {verb} has no field {', '.join(unknown)}", hint=_HINT)
    if verb == "apply":
        return _apply(_manifests(source, entry["apply"], folder))
    target, namespace = entry[verb], entry.get("namespace")
    if not isinstance(target, str) or "/" not in target:
        raise UserError(f"{source}: {verb} needs a target such as site/blog", hint=_HINT)
    match verb:
        case "delete":
            return _delete(target, namespace)
        case "patch":
            body = entry.get("merge")
            if not isinstance(body, dict):
                raise UserError(f"{source}: patch needs merge, the patch itself", hint=_HINT)
            return _patch(target, namespace, body)
    condition, timeout = str(entry.get("for", "Ready")), entry.get("timeout")
    parse_condition(condition)
    if not isinstance(timeout, int | float | None):
        raise UserError(f"{source}: timeout is not a number of seconds", hint=_HINT)
    return ScenarioStep(
        "wait",
        f"wait for {target} to be {condition}",
        lambda cluster, seconds: cluster.wait_for(target, condition, timeout or seconds, namespace=namespace),
    )


def _manifests(source: str, content: Any, folder: Path) -> list[Manifest]:
    if isinstance(content, str):
        return read_manifests([folder / content])
    entries = content if isinstance(content, list) else [content]
    return [manifest for entry in entries for manifest in objects_of(source, entry)]


def _apply(manifests: Sequence[Manifest]) -> ScenarioStep:
    names = ", ".join(f"{manifest.kind} {manifest.name}" for manifest in manifests)
    return ScenarioStep(
        "apply", f"apply {names}", lambda cluster, seconds: apply_when_served(cluster, manifests, seconds)
    )


async def apply_when_served(cluster: Operations, manifests: Sequence[Manifest], seconds: float) -> None:
    """Apply manifests; see when_served()."""
    await when_served(lambda: apply(cluster.client, manifests, default_namespace=cluster.namespace), seconds)


async def when_served(write: Callable[[], Awaitable[object]], seconds: float) -> None:
    """Write; try again while a webhook, which the operator may serve, does not respond. Raises UserError, ApiError."""
    failure: UserError | ApiError = UserError(f"not done within {seconds:g} s", hint="choose a longer --timeout")
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    await write()
                    return
                except (UserError, ApiError) as error:
                    if "failed calling webhook" not in str(error):
                        raise
                    failure = error
                await asyncio.sleep(_RETRY_SECONDS)
    except TimeoutError:
        raise failure from None


def _delete_manifest(manifest: Manifest) -> ScenarioStep:
    metadata = manifest.body["metadata"]
    group, _, version = manifest.api_version.rpartition("/")
    target = f"{manifest.kind.lower()}.{version}.{group}" if group else manifest.kind.lower()
    return _delete(f"{target}/{manifest.name}", metadata.get("namespace"), f"delete {manifest.kind} {manifest.name}")


def _delete(target: str, namespace: str | None, title: str = "") -> ScenarioStep:
    async def delete(cluster: Operations, seconds: float) -> None:
        await when_served(lambda: cluster.delete(target, namespace=namespace), seconds)
        await cluster.wait_for(target, "delete", seconds, namespace=namespace)

    return ScenarioStep("delete", title or f"delete {target}", delete)


def _patch(target: str, namespace: str | None, body: dict[str, Any]) -> ScenarioStep:
    async def patch(cluster: Operations, seconds: float) -> None:
        ref = await cluster.resolve(target, namespace)
        await when_served(
            lambda: cluster.client.patch(ref.resource, ref.name, body, PatchType.MERGE, ref.namespace), seconds
        )

    return ScenarioStep("patch", f"patch {target}", patch)


def _group(manifest: Manifest) -> str:
    return manifest.api_version.rpartition("/")[0]


def _is_custom(manifest: Manifest) -> bool:
    return (manifest.api_version, manifest.kind) not in BY_KIND
