"""Service account token controller: fills token Secrets, and deletes those of missing ServiceAccounts.

Source: v1.36 pkg/controller/serviceaccount/tokens_controller.go.
"""

from __future__ import annotations

from contextlib import suppress

from kubeloop.controllers.runtime.controller import EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.writes.object_patch import versioned_merge_patch
from kubeloop.controllers.serviceaccount.token_secret import (
    NAME_ANNOTATION,
    TOKEN_TYPE,
    UID_ANNOTATION,
    AccountReference,
    account_of,
    missing_data,
)
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import NotFound
from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.kube.objects.resources import SECRETS, SERVICE_ACCOUNTS

_BY_ACCOUNT = "service-account"


def _account_key(secret: JSONValue) -> tuple[str, ...]:
    """Index function of _BY_ACCOUNT."""
    if secret.get("type") != TOKEN_TYPE:
        return ()
    return (f"{secret['metadata']['namespace']}/{account_of(secret).name}",)


class TokensController(EventDrivenController):
    """Reconciles Secrets, by "namespace/name"; `run()` works until cancelled. The context must have `sign_token`.

    A failed write is retried until it succeeds, also after a conflict. v1.36 retries no conflicts, and other errors ten
    times in 10 s, which leaves a Secret without a token until it changes.
    """

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(
            context,
            "serviceaccount-token",
            "serviceaccount_tokens_service",
            is_terminal=lambda error: isinstance(error, NotFound),
        )
        assert context.sign_token is not None
        self._sign = context.sign_token
        self._root_ca = context.root_ca
        accounts = context.informers.informer(SERVICE_ACCOUNTS)
        secrets = context.informers.informer(SECRETS)
        secrets.store.add_index(_BY_ACCOUNT, _account_key)
        self._accounts, self._secrets = accounts.store, secrets.store
        self._deleted: dict[str, list[AccountReference]] = {}  # accounts of deleted Secrets by key
        self._registrations = (
            accounts.on_changes(self._on_account),
            secrets.on_changes(self._on_secret),
        )

    def _on_account(self, old: JSONValue | None, new: JSONValue | None) -> None:
        """Queue the token Secrets of a deleted account."""
        if old is None or new is not None:
            return
        metadata = old["metadata"]
        for secret in self._secrets.view(_BY_ACCOUNT, f"{metadata['namespace']}/{metadata['name']}"):
            self.queue.add(_key(secret))

    def _on_secret(self, old: JSONValue | None, new: JSONValue | None) -> None:
        secret = new if new is not None else old
        assert secret is not None
        if secret.get("type") != TOKEN_TYPE:
            return
        key = _key(secret)
        if new is None:
            self._deleted.setdefault(key, []).append(account_of(secret))
        self.queue.add(key)

    async def reconcile(self, key: str) -> float | None:
        """Fill or delete a token Secret, or remove the reference to a deleted one. An exception means: retry."""
        while references := self._deleted.get(key):
            await self._remove_reference(key, references[0])
            del references[0]  # later ones may have been added meanwhile
        self._deleted.pop(key, None)
        secret = self._secrets.get(key)
        if secret is None:
            return None
        metadata, reference = secret["metadata"], account_of(secret)
        account = await self._account(metadata["namespace"], reference)
        if account is not None:
            await self._fill(secret, account)
            return None
        with suppress(NotFound):
            uid = metadata["uid"]
            await self._client.delete(SECRETS, metadata["name"], metadata["namespace"], precondition_uid=uid)
        return None

    async def _account(self, namespace: str, reference: AccountReference) -> JSONValue | None:
        """Return the account from the cache or, as the cache may lag behind the Secret, from the API server."""
        account = self._accounts.get(f"{namespace}/{reference.name}")
        if account is not None and reference.fits(account):
            return account
        try:
            account = await self._client.get(SERVICE_ACCOUNTS, reference.name, namespace)
        except NotFound:
            return None
        return account if reference.fits(account) else None

    async def _fill(self, secret: JSONValue, account: JSONValue) -> None:
        data = missing_data(secret, account, self._root_ca, self._sign)
        if not data:
            return
        metadata = secret["metadata"]
        identity = {NAME_ANNOTATION: account["metadata"]["name"], UID_ANNOTATION: account["metadata"]["uid"]}
        body = versioned_merge_patch(metadata["resourceVersion"], metadata={"annotations": identity}, data=data)
        with suppress(NotFound):
            await self._client.patch(SECRETS, metadata["name"], body, PatchType.MERGE, metadata["namespace"])

    async def _remove_reference(self, key: str, reference: AccountReference) -> None:
        """Remove a deleted Secret from `secrets` of its account."""
        namespace, _, name = key.partition("/")
        cached = self._accounts.get(f"{namespace}/{reference.name}")
        if cached is None or not reference.fits(cached):
            return
        try:
            account = await self._client.get(SERVICE_ACCOUNTS, reference.name, namespace)
            secrets = account.get("secrets") or []
            remaining = [secret for secret in secrets if secret.get("name") != name]
            if not reference.fits(account) or len(remaining) == len(secrets):
                return
            body = versioned_merge_patch(account["metadata"]["resourceVersion"], secrets=remaining or None)
            await self._client.patch(SERVICE_ACCOUNTS, reference.name, body, PatchType.MERGE, namespace)
        except NotFound:
            pass  # the account is deleted


def _key(secret: JSONValue) -> str:
    return f"{secret['metadata']['namespace']}/{secret['metadata']['name']}"
