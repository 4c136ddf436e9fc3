"""Finding out whether an API server answers us, and saying it well if not."""

from __future__ import annotations

import asyncio
import re

from kubeloop.kube.client.api_client import Client
from kubeloop.kube.errors import ApiError, ServerUnreachable, UserError


async def greet(client: Client, server: str) -> None:
    """Raises UserError unless the API server at this URL lets us read nodes."""
    try:
        async with asyncio.TaskGroup() as group:
            for path in ("/version", "/api/v1/nodes?limit=1"):
                group.create_task(client.raw("GET", path), name=f"greeting {path}")
    except* (ApiError, ServerUnreachable) as failed:
        error = failed.exceptions[0]
        told = refused(server, error) if isinstance(error, ApiError) else unreachable(server, error)
    else:
        return
    raise told


def unreachable(server: str, error: Exception) -> UserError:
    """For a request that was not answered."""
    problem = re.sub(r"\[Errno -?\d+\] ", "", str(error).removeprefix(f"{server}: "))
    if "CERTIFICATE_VERIFY_FAILED" in problem:
        reason = problem.rpartition("failed: ")[2].partition(" (_ssl")[0]
        return UserError(
            f"the certificate of the API server {server} is not to be trusted: {reason}",
            hint="the kubeconfig's certificate-authority must be the one that signed it",
        )
    return UserError(
        f"the API server {server} does not answer: {problem}",
        hint="is it running, and is this its address? see --kubeconfig",
    )


def refused(server: str, error: ApiError) -> UserError:
    """For a request that was answered with an error."""
    if error.code in (401, 403):
        return UserError(
            f"the API server {server} refuses us: {error.message}",
            hint="check the user in the kubeconfig" if error.code == 401 else "its user needs more permissions",
        )
    if error.code == 404:
        return UserError(f"{server} is no Kubernetes API server", hint="check the server in the kubeconfig")
    first_line = error.message.strip().partition("\n")[0]
    return UserError(f"the API server {server} answers {error.code}: {first_line}", hint="is it ready? try again")
