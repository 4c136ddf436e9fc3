"""Conversion webhooks: calls that convert custom resources between versions.

Handlers await the conversions that they need (`convert_all`); results are cached by the object's content, so that
responses and watch events are encoded without waiting (`converted`). Of an object's metadata only names, labels and
annotations count, since a webhook may change no other field. Source: apiextensions-apiserver
pkg/apiserver/conversion/webhook_converter.go.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.slow_work import SlowWork
from kubeloop.devcluster.outgoing.webhook_client import CallFailed, WebhookClient
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted

_SECONDS = 30
_MAX_CACHED = 20_000  # converted objects
_CHANGEABLE = ("labels", "annotations")


class _WebhookError(Exception):
    """The call failed or its response is invalid. The text follows "conversion webhook for ...", unless `complete`."""

    def __init__(self, message: str, *, complete: bool = False) -> None:
        super().__init__(message)
        self.complete = complete


class ConversionWebhook:
    """The webhook of one definition."""

    def __init__(self, definition: JSON, client: WebhookClient) -> None:
        webhook = definition["spec"]["conversion"]["webhook"]
        supported = [version for version in webhook["conversionReviewVersions"] if version in ("v1", "v1beta1")]
        self._api_version = f"apiextensions.k8s.io/{supported[0]}"
        self._config: JSON = webhook["clientConfig"]
        self._client = client
        self._name: str = definition["metadata"]["name"]
        self._calls = 0
        self._cache: dict[tuple[str, bytes], JSON] = {}  # by version and content hash, oldest first

    def converted(self, obj: JSON, api_version: str) -> JSON:
        """Return a cached conversion of an object, not pruned. Raises StatusError 500 if there is none."""
        converted = self._cache.get((api_version, _content_hash(obj)))
        if converted is None:
            raise errors.internal(f"conversion webhook for {_kind(obj)} has not converted the object to {api_version}")
        metadata = {name: value for name, value in obj["metadata"].items() if name not in _CHANGEABLE}
        return {**converted, "kind": obj["kind"], "metadata": {**metadata, **converted["metadata"]}}

    async def convert_all(self, objects: Sequence[JSON], api_version: str) -> None:
        """Convert all objects in one call, unless they are cached. Raises StatusError 500 if the webhook fails."""
        keys = {(api_version, _content_hash(obj)): obj for obj in objects if obj["apiVersion"] != api_version}
        missing = [obj for key, obj in keys.items() if key not in self._cache]
        if missing:
            converted = await SlowWork(partial(self._call, missing, api_version))
            self._evict(keys)
            self._cache.update(converted)

    def _evict(self, keys: Container[tuple[str, bytes]]) -> None:
        """Drop the oldest conversions beyond the limit, except those of `keys`."""
        excess = len(self._cache) - _MAX_CACHED
        if excess > 0:
            for key in [key for key in self._cache if key not in keys][:excess]:
                del self._cache[key]

    async def _call(self, objects: list[JSON], api_version: str) -> dict[tuple[str, bytes], JSON]:
        """Convert objects and return the results by cache key. Raises StatusError 500."""
        kind = _kind(objects[0])
        self._calls += 1
        uid = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._name} {self._calls}"))
        request = {"uid": uid, "desiredAPIVersion": api_version, "objects": objects}
        review = {"kind": "ConversionReview", "apiVersion": self._api_version, "request": request}
        try:
            converted = self._objects(await self._post(msgspec.json.encode(review)), uid)
            if len(converted) != len(objects):
                raise _WebhookError(f"returned {len(converted)} objects, expected {len(objects)}")
            return {
                (api_version, _content_hash(before)): _changed_metadata_only(before, after, api_version)
                for before, after in zip(objects, converted, strict=True)
            }
        except _WebhookError as failure:
            message = str(failure) if failure.complete else f"conversion webhook for {kind} {failure}"
            raise errors.internal(message) from failure

    async def _post(self, body: bytes) -> Any:
        try:
            content = await self._client.post(self._config, body, _SECONDS)
        except CallFailed as error:
            raise _WebhookError(f"failed: {error}") from None
        try:
            return msgspec.json.decode(content)
        except msgspec.DecodeError as error:
            raise _WebhookError(f"failed: couldn't get version/kind; json parse error: {error}") from None

    def _objects(self, answer: Any, uid: str) -> list[Any]:
        """Return the converted objects of a ConversionReview. Raises _WebhookError if it is not a valid response."""
        if not isinstance(answer, dict):
            raise _WebhookError("failed: couldn't get version/kind; json parse error: no object")
        group, _, version = str(answer.get("apiVersion", "")).rpartition("/")
        actual, expected = (
            f"{group}/{version}, Kind={answer.get('kind', '')}",
            f"{self._api_version}, Kind=ConversionReview",
        )
        strict = self._api_version.endswith("/v1")
        if strict and actual != expected:
            raise _WebhookError(f"failed: expected webhook response of {expected}, got {actual}")
        response = answer.get("response")
        if not isinstance(response, dict):
            raise _WebhookError("failed: no response provided")
        if strict and response.get("uid", "") != uid:
            raise _WebhookError(
                f"failed: expected response.uid={quoted(uid)}, got {quoted(str(response.get('uid', '')))}"
            )
        result = response.get("result") or {}
        if result.get("status") != "Success":
            status = f"response.result.status was '{result.get('status', '')}', not 'Success'"
            raise _WebhookError(f"failed: {result.get('message') or status}")
        return list(response.get("convertedObjects") or ())


def _kind(obj: JSON) -> str:
    return f"{obj['apiVersion']}, Kind={obj['kind']}"


def _content_hash(obj: JSON) -> bytes:
    """Return a hash of an object's fields, without the metadata that conversions leave unchanged."""
    metadata = obj["metadata"]
    metadata = {name: metadata[name] for name in ("name", "namespace", *_CHANGEABLE) if metadata.get(name)}
    return blake2b(msgspec.json.encode({**obj, "metadata": metadata}, order="sorted"), digest_size=16).digest()


def _changed_metadata_only(before: JSON, after: Any, api_version: str) -> JSON:
    """Return a converted object with only labels and annotations as metadata. Raises _WebhookError if it is invalid."""
    error_prefix = "returned invalid object at index 0"
    if not isinstance(after, dict) or not after.get("kind"):
        raise _WebhookError(f"Object 'Kind' is missing in '{msgspec.json.encode(after).decode()}'", complete=True)
    if (received := after.get("apiVersion", "")) != api_version:
        raise _WebhookError(f"{error_prefix}: invalid groupVersion (expected {api_version}, received {received})")
    if after["kind"] != before["kind"]:
        raise _WebhookError(f"{error_prefix}: invalid kind (expected {before['kind']}, received {after['kind']})")
    metadata, old_metadata = after.get("metadata"), before["metadata"]
    names = metadata if isinstance(metadata, dict) else {}
    for name in ("name", "namespace", "uid"):
        if (expected := old_metadata.get(name, "")) != (received := names.get(name, "")):
            field = "UID" if name == "uid" else name
            raise _WebhookError(f"returned invalid object: must have the same {field}: {expected} != {received}")
    if not isinstance(metadata, dict):
        raise _WebhookError("returned invalid metadata: missing metadata in converted object")
    changed = {name: metadata[name] for name in _CHANGEABLE if metadata.get(name) is not None}
    for name, values in changed.items():
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise _WebhookError(f"returned invalid metadata: invalid metadata.{name} in converted object")
    return {**after, "metadata": changed}
