"""Check that an API server is reachable and authorizes requests, with errors that suggest a fix."""

from __future__ import annotations

import asyncio
import re

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.user_error import UserError


async def check_api_server(client: ApiClient, server: str, *, lists_nodes: bool = True) -> None:
    """Raise UserError unless the API server at this URL is reachable and permits listing nodes.

    lists_nodes: False for a process that does not read nodes; its user may not be permitted to.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for path in ("/version", "/api/v1/nodes?limit=1") if lists_nodes else ("/version",):
                group.create_task(client.raw("GET", path), name=f"check {path}")
    except* (ApiError, ServerUnreachable) as failed:
        error = failed.exceptions[0]
        user_error = refused_error(server, error) if isinstance(error, ApiError) else unreachable_error(server, error)
    else:
        return
    raise user_error


def unreachable_error(server: str, error: Exception) -> UserError:
    """Return the error for a request without a response."""
    problem = re.sub(r"\[Errno -?\d+\] ", "", str(error).removeprefix(f"{server}: "))
    if "CERTIFICATE_VERIFY_FAILED" in problem:
        reason = problem.rpartition("failed: ")[2].partition(" (_ssl")[0]
        return UserError(
            f"the certificate of the API server {server} is not trusted: {reason}",
            hint="certificate-authority in the kubeconfig must be the one that signed it",
        )
    return UserError(
        f"the API server {server} does not respond: {problem}",
        hint="check that it is running and that the address is correct; see --kubeconfig",
    )


def refused_error(server: str, error: ApiError) -> UserError:
    """Return the error for a request with an error response."""
    if error.code in (401, 403):
        return UserError(
            f"the API server {server} denies access: {error.message}",
            hint="check the user in the kubeconfig" if error.code == 401 else "its user needs more permissions",
        )
    if error.code == 404:
        return UserError(f"{server} is not a Kubernetes API server", hint="check the server in the kubeconfig")
    first_line = error.message.strip().partition("\n")[0]
    return UserError(f"the API server {server} responds {error.code}: {first_line}", hint="is it ready? try again")
