"""Leader election over a Lease: of several replicas one acts, and another takes over when it is gone.

Source: client-go tools/leaderelection. A holder that cannot renew within the renew deadline stops acting before its
lease runs out for the others; times are compared with the moment a change was seen here, never with a remote clock.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from kubeloop.kube.client.api_client import Client, PatchType
from kubeloop.kube.clock import Clock, rfc3339_micro
from kubeloop.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import Lease
from kubeloop.kube.objects.resources import LEASES

log = logging.getLogger(__name__)

_JITTER = 1.2  # of the retry period between tries to acquire, so that candidates do not march in step


class ElectionSettings(msgspec.Struct, frozen=True):
    """lease_duration_seconds > renew_deadline_seconds > retry_period_seconds * 1.2, as kube-controller-manager asks."""

    namespace: str = "kube-system"
    name: str = "kubeloop"
    identity: str = ""
    lease_duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0


class LeaseLost(Exception):
    """Somebody else holds the lease, or it could not be renewed in time: this process must stop acting."""


class LeaderElection:
    """One candidate."""

    def __init__(self, client: Client, settings: ElectionSettings, *, clock: Clock, rng: random.Random) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._seen: Lease | None = None
        self._seen_at = float("-inf")  # loop time when its spec last changed for us
        self._held_at = float("-inf")  # loop time before the last write that took or renewed it
        self.leading = False

    async def run_while_leading(self, acting: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, run `acting`, and give the lease back when it ends or is cancelled.

        Raises LeaseLost after `acting` was cancelled because the lease was lost.
        """
        settings = self._settings
        while not await self._try_to_hold():
            await asyncio.sleep(settings.retry_period_seconds * self._rng.uniform(1.0, _JITTER))
        log.warning("became leader", extra={"lease": f"{settings.namespace}/{settings.name}"})
        self.leading = True
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._renew(), name="renew-lease")
                await acting()
                renewing.cancel()
        except* LeaseLost as lost:
            raise LeaseLost(str(lost.exceptions[0])) from None
        finally:
            self.leading = False
            await self._release()

    async def _renew(self) -> None:
        """Renew the lease until cancelled. Raises LeaseLost, at the latest at the renew deadline."""
        settings = self._settings
        while True:
            await asyncio.sleep(settings.retry_period_seconds)
            try:
                # One deadline for all tries: a server that answers nothing must not stretch it past the lease's end.
                async with asyncio.timeout_at(self._held_at + settings.renew_deadline_seconds):
                    while not await self._try_to_hold():
                        if self._holder() not in ("", settings.identity):
                            raise LeaseLost(f"the lease is now held by {self._holder()}")
                        await asyncio.sleep(settings.retry_period_seconds)
            except TimeoutError:
                raise LeaseLost(f"not renewed within {settings.renew_deadline_seconds:g} s") from None

    async def _try_to_hold(self) -> bool:
        """Acquire or renew the lease; False if somebody else holds it or the server did not take the write."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        now = rfc3339_micro(self._clock.now())
        spec: dict[str, Any] = {
            "holderIdentity": settings.identity,
            "leaseDurationSeconds": round(settings.lease_duration_seconds),
            "renewTime": now,
        }
        try:
            async with asyncio.timeout(settings.renew_deadline_seconds):
                try:
                    lease = await self._client.get(LEASES, settings.name, settings.namespace)
                except NotFound:
                    body = {
                        "apiVersion": LEASES.api_version,
                        "kind": LEASES.kind,
                        "metadata": {"name": settings.name, "namespace": settings.namespace},
                        "spec": {**spec, "acquireTime": now, "leaseTransitions": 0},
                    }
                    self._see(await self._client.create(LEASES, body, settings.namespace), loop.time())
                    self._held_at = asked_at
                    return True
                self._see(lease, loop.time())
                holder = self._holder()
                held_by_other = holder not in ("", settings.identity)
                duration_seconds = lease.spec.lease_duration_seconds or settings.lease_duration_seconds
                if held_by_other and loop.time() < self._seen_at + duration_seconds:
                    return False
                if holder != settings.identity:
                    spec |= {"acquireTime": now, "leaseTransitions": (lease.spec.lease_transitions or 0) + 1}
                patch = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
                self._see(
                    await self._client.patch(LEASES, settings.name, patch, PatchType.MERGE, settings.namespace),
                    loop.time(),
                )
                self._held_at = asked_at
                return True
        except (Conflict, AlreadyExists):
            return False
        except (ApiError, ServerUnreachable, TimeoutError) as error:
            log.warning("cannot hold the lease: %s", error)
            return False

    def _see(self, lease: Lease, now: float) -> None:
        if self._seen is None or lease.spec != self._seen.spec:
            self._seen_at = now
        self._seen = lease

    def _holder(self) -> str:
        return (self._seen.spec.holder_identity or "") if self._seen is not None else ""

    async def _release(self) -> None:
        """Let others take over at once."""
        if self._seen is None or self._holder() != self._settings.identity:
            return
        patch = {
            "metadata": {"resourceVersion": self._seen.metadata.resource_version},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": rfc3339_micro(self._clock.now())},
        }
        try:
            async with asyncio.timeout(self._settings.retry_period_seconds):
                await self._client.patch(LEASES, self._settings.name, patch, PatchType.MERGE, self._settings.namespace)
        except (ApiError, ServerUnreachable, TimeoutError) as error:
            log.warning("the lease was not given back: %s", error)
