"""Leader election over a Lease: one of several replicas is active, and another takes over when it ends.

Source: client-go tools/leaderelection. A leader that cannot renew within the renew deadline stops before its lease
expires for the others; lease times are measured from the local observation of a change, never with a remote clock.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.clock import Clock, rfc3339_micro
from kubeloop.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import Lease
from kubeloop.kube.objects.resources import LEASES

log = logging.getLogger(__name__)

_JITTER = 1.2  # JitterFactor: retry periods added at most between attempts, so that candidates do not synchronize


class ElectionSettings(msgspec.Struct, frozen=True):
    """lease_duration_seconds > renew_deadline_seconds > retry_period_seconds * 1.2, as in kube-controller-manager."""

    namespace: str = "kube-system"
    name: str = "kubeloop"
    identity: str = ""
    lease_duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0


class LeaseLost(Exception):
    """Another process holds the lease, or it could not be renewed in time: this process must stop."""


class LeaderElection:
    """One candidate for the lease."""

    def __init__(self, client: ApiClient, settings: ElectionSettings, *, clock: Clock, rng: random.Random) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._observed: Lease | None = None
        self._observed_at = float("-inf")  # loop time of the last observed change of its spec
        self._renewed_at = float("-inf")  # loop time before the last write that acquired or renewed it

    async def run_while_leading(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, run `lead`, and release the lease when it ends or is cancelled.

        Raises LeaseLost after `lead` was cancelled because the lease was lost.
        """
        settings = self._settings
        while not await self._try_acquire_or_renew():
            await asyncio.sleep(settings.retry_period_seconds * (1.0 + _JITTER * self._rng.random()))
        log.warning("became leader", extra={"lease": f"{settings.namespace}/{settings.name}"})
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._renew(), name="renew-lease")
                await lead()
                renewing.cancel()
        except* LeaseLost as lost:
            raise LeaseLost(str(lost.exceptions[0])) from None
        finally:
            await self._release()

    async def _renew(self) -> None:
        """Renew the lease until cancelled. Raises LeaseLost, at the latest at the renew deadline."""
        settings = self._settings
        while True:
            await asyncio.sleep(settings.retry_period_seconds)
            try:
                # One deadline for all attempts: a server that does not respond must not delay it past the lease's
                # expiry.
                async with asyncio.timeout_at(self._renewed_at + settings.renew_deadline_seconds):
                    while not await self._try_acquire_or_renew():
                        if self._holder() not in ("", settings.identity):
                            raise LeaseLost(f"the lease is now held by {self._holder()}")
                        await asyncio.sleep(settings.retry_period_seconds)
            except TimeoutError:
                raise LeaseLost(f"not renewed within {settings.renew_deadline_seconds:g} s") from None

    async def _try_acquire_or_renew(self) -> bool:
        """Acquire or renew the lease; return False if another process holds it or the server rejected the write."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        requested_at = loop.time()
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
                    self._observe(await self._client.create(LEASES, body, settings.namespace), loop.time())
                    self._renewed_at = requested_at
                    return True
                self._observe(lease, loop.time())
                holder = self._holder()
                held_by_other = holder not in ("", settings.identity)
                duration_seconds = lease.spec.lease_duration_seconds or settings.lease_duration_seconds
                if held_by_other and loop.time() < self._observed_at + duration_seconds:
                    return False
                if holder != settings.identity:
                    spec |= {"acquireTime": now, "leaseTransitions": (lease.spec.lease_transitions or 0) + 1}
                patch = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
                self._observe(
                    await self._client.patch(LEASES, settings.name, patch, PatchType.MERGE, settings.namespace),
                    loop.time(),
                )
                self._renewed_at = requested_at
                return True
        except (Conflict, AlreadyExists):
            return False
        except (ApiError, ServerUnreachable, TimeoutError) as error:
            log.warning("cannot acquire or renew the lease", extra={"error": str(error)})
            return False

    def _observe(self, lease: Lease, now: float) -> None:
        if self._observed is None or lease.spec != self._observed.spec:
            self._observed_at = now
        self._observed = lease

    def _holder(self) -> str:
        return (self._observed.spec.holder_identity or "") if self._observed is not None else ""

    async def _release(self) -> None:
        """Release the lease, so that another replica can take over immediately."""
        if self._observed is None or self._holder() != self._settings.identity:
            return
        patch = {
            "metadata": {"resourceVersion": self._observed.metadata.resource_version},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": rfc3339_micro(self._clock.now())},
        }
        try:
            async with asyncio.timeout(self._settings.retry_period_seconds):
                await self._client.patch(LEASES, self._settings.name, patch, PatchType.MERGE, self._settings.namespace)
        except (ApiError, ServerUnreachable, TimeoutError) as error:
            log.warning("cannot release the lease", extra={"error": str(error)})
