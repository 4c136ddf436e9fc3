"""Names that complete arguments: of a running kubeloop process, of the cluster, or of a kubeconfig.

Functions are those of click's `shell_complete`: context and parameter of the command, and the text to complete. They
raise UserError, ApiError, ServerUnreachable, MsgspecError, OSError and TimeoutError.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from typing import Any

import click
import msgspec

from kubeloop.cli.endpoint_client import get_json
from kubeloop.cli.targets import parse_target
from kubeloop.kube.auth.credentials import connect, context_names, runs_plugin
from kubeloop.kube.clock import SystemClock
from kubeloop.process.endpoint.paths import NAMES_PATH
from kubeloop.process.process_files import current_kubeconfig, development_kubeconfig, list_processes
from kubeloop.process.python_gc import importing

_TIMEOUT_SECONDS = 1.0  # the shell waits
_TARGET_KINDS = ("pod", "deploy", "sts", "ds", "rs", "job", "cronjob", "podgroup")
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


def contexts(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the contexts of the kubeconfig."""
    names = context_names(current_kubeconfig(context.params.get("kubeconfig")))
    return _starting_with(incomplete, names)


def namespaces(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the namespaces of the process that a command queries, or of the cluster."""
    return _names(context.params, "namespace", "", incomplete)


def nodes(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the nodes of the cluster."""
    return _names(context.params, "node", "", incomplete)


def targets(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return targets of trace and explain: kinds (pod/), then names (pod/web-1); names alone after a kind."""
    words: tuple[str, ...] = context.params.get("target") or ()
    kind, slash, name = incomplete.rpartition("/")
    if len(words) == 1 and "/" not in words[0] and not slash:
        kind = words[0]
    elif words:
        return []
    elif not slash:
        return _starting_with(incomplete, [f"{kind}/" for kind in _TARGET_KINDS])
    resource, _ = parse_target(f"{kind}/{name or '-'}", verb="complete")
    namespace = context.params.get("namespace") or ""
    return [f"{kind}{slash}{item}" if slash else item for item in _names(context.params, resource, namespace, name)]


def _names(options: Mapping[str, Any], kind: str, namespace: str, prefix: str) -> list[str]:
    """Return the names of a kind that start with `prefix`, from where the command with these options reads."""
    if options.get("source") or options.get("cluster"):  # a file
        return []
    kubeconfig, context = current_kubeconfig(options.get("kubeconfig")), options.get("kube_context")
    chooses_cluster = options.get("kubeconfig") is not None or context is not None
    if options.get("endpoint") or ("endpoint" in options and not chooses_cluster and list_processes()):
        query = {"kind": kind, "namespace": namespace, "prefix": prefix}
        return [*get_json(NAMES_PATH, query, endpoint=options["endpoint"], hint="", timeout_seconds=_TIMEOUT_SECONDS)]
    if "kube_context" not in options:  # of a command for development clusters
        kubeconfig = development_kubeconfig(options.get("kubeconfig"))
    if runs_plugin(kubeconfig, context):
        return []  # it may take seconds, or ask for a password
    return _starting_with(prefix, asyncio.run(_names_in_cluster(kubeconfig, context, kind, namespace)))


async def _names_in_cluster(kubeconfig: tuple[str, ...], context: str | None, kind: str, namespace: str) -> list[str]:
    with importing():
        from kubeloop.kube.client.api_client import ApiClient
        from kubeloop.kube.objects.resources import ALL

    resource = next((resource for resource in ALL if resource.kind.lower() == kind), None)
    if resource is None:
        return []
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        client = ApiClient(await connect(kubeconfig, context), clock=SystemClock(), rng=random.Random())
        try:
            response = await client.raw("GET", resource.path(namespace), headers={"accept": _METADATA_ONLY})
        finally:
            await client.close()
    return [item.metadata.name for item in msgspec.json.decode(response.body, type=_List).items]


def _starting_with(prefix: str, names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name.startswith(prefix)})


class _Metadata(msgspec.Struct):
    name: str


class _Item(msgspec.Struct):
    metadata: _Metadata


class _List(msgspec.Struct):
    items: list[_Item]
