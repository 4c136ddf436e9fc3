"""Leader election of the replicas of a command, from its options."""

from __future__ import annotations

import random
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable

from kubeloop.cli.options.options import ElectionOptions
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import Clock
from kubeloop.kube.user_error import UserError
from kubeloop.process.control_plane.leader_election import ElectionSettings, LeaderElection, LeaseLost


def new_candidate(client: ApiClient, options: ElectionOptions, clock: Clock, rng: random.Random) -> LeaderElection:
    """Return a candidate for the Lease of these options."""
    return LeaderElection(client, election_settings(options), clock=clock, rng=rng)


def election_settings(options: ElectionOptions) -> ElectionSettings:
    """Return the settings of a new candidate for the Lease of these options."""
    return ElectionSettings(
        namespace=options.leader_elect_resource_namespace,
        name=options.leader_elect_resource_name,
        identity=f"{socket.gethostname()}_{secrets.token_hex(8)}",
        lease_duration_seconds=options.leader_elect_lease_duration,
        renew_deadline_seconds=options.leader_elect_renew_deadline,
        retry_period_seconds=options.leader_elect_retry_period,
    )


async def run_as_candidate(
    run: Callable[[Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]], Awaitable[None]],
    client: ApiClient,
    options: ElectionOptions,
    clock: Clock,
    rng: random.Random,
) -> int:
    """Call `run` with a function that elects this replica, and return the exit code: 1 if the lease was lost."""
    lost_lease = False
    try:
        await run(new_candidate(client, options, clock, rng).run_while_leading)
    except* LeaseLost as lost:
        lost_lease = True
        print(f"error: lost the lease: {lost.exceptions[0]}", file=sys.stderr)
    return int(lost_lease)


def check_election(election: ElectionOptions) -> None:
    """Raise UserError for invalid options. Source: client-go tools/leaderelection; component-base config/validation."""
    for name, option in (
        (election.leader_elect_resource_namespace, "--leader-elect-resource-namespace"),
        (election.leader_elect_resource_name, "--leader-elect-resource-name"),
    ):
        if not name:
            raise UserError(f"{option} is empty", hint="replicas share the Lease of that name")
    if election.leader_elect_lease_duration <= election.leader_elect_renew_deadline:
        raise UserError(
            "the lease duration must be longer than the renew deadline",
            hint="--leader-elect-lease-duration, --leader-elect-renew-deadline",
        )
    if election.leader_elect_renew_deadline <= election.leader_elect_retry_period * 1.2:
        raise UserError(
            "the renew deadline must be longer than 1.2 times the retry period",
            hint="--leader-elect-renew-deadline, --leader-elect-retry-period",
        )
