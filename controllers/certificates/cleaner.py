"""CertificateSigningRequest cleaner: deletes old requests, once an hour.

Source: v1.36 pkg/controller/certificates/cleaner/cleaner.go.
"""

from __future__ import annotations

import logging

from kubeloop.controllers.certificates.request_age import is_outdated
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.informers.shared_informer import ResourceEventHandlerFuncs
from kubeloop.kube.clock import pause
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.resources import CERTIFICATE_SIGNING_REQUESTS

log = logging.getLogger(__name__)

_POLL_SECONDS = 3600.0


class CertificateSigningRequestCleaner:
    """Deletes old CertificateSigningRequests; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        requests = context.informers.informer(CERTIFICATE_SIGNING_REQUESTS)
        self._requests = requests.store
        self._registration = requests.add_handler(ResourceEventHandlerFuncs())

    async def run(self) -> None:
        """Delete old requests every hour until cancelled."""
        await self._registration.wait_synced()
        while True:
            await self._clean()
            await pause(_POLL_SECONDS, due=0.0 if self._requests else None)

    async def _clean(self) -> None:
        now = self._clock.now()
        for metadata in [it["metadata"] for it in self._requests.values() if is_outdated(it, now)]:
            try:
                await self._client.delete(
                    CERTIFICATE_SIGNING_REQUESTS, metadata["name"], precondition_uid=metadata["uid"]
                )
            except (ApiError, ServerUnreachable) as error:
                log.warning("cannot delete CertificateSigningRequest %s: %s", metadata["name"], error)
