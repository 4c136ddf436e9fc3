"""Conversion webhooks: how a definition's author turns objects of one version into those of another.

A call takes time and answering does not wait, so a request that needs one is put aside until it has been made (see
`deferred_work`). What came of it is remembered by what the object says; of its metadata only names, labels and
annotations count, as a webhook may change no other. Source: apiextensions-apiserver
pkg/apiserver/conversion/webhook_converter.go.
"""

from __future__ import annotations

import ssl
import uuid
from base64 import b64decode
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.deferred_work import Deferred, DeferredWork
from kubeloop.devcluster.api.errors import quoted
from kubeloop.kube.json_object import JSON

_SECONDS = 30
_KEPT = 20_000  # converted objects
_CHANGEABLE = ("labels", "annotations")


class _Failed(Exception):
    """The call has failed, or its answer is none. The text follows "conversion webhook for ...", unless whole."""

    def __init__(self, told: str, *, whole: bool = False) -> None:
        super().__init__(told)
        self.whole = whole


class ConversionWebhook:
    """The webhook of one definition."""

    def __init__(self, definition: JSON, deferred_work: DeferredWork) -> None:
        self._deferred_work = deferred_work
        webhook = definition["spec"]["conversion"]["webhook"]
        known = [each for each in webhook["conversionReviewVersions"] if each in ("v1", "v1beta1")]
        self._api_version = f"apiextensions.k8s.io/{known[0]}"
        client = webhook["clientConfig"]
        self._url = f"{client.get('url') or _service_url(client['service'])}?timeout={_SECONDS}s"
        self._trusted = b64decode(client.get("caBundle") or "").decode(errors="replace")
        self._name: str = definition["metadata"]["name"]
        self._calls = 0
        self._known: dict[tuple[str, bytes], JSON] = {}  # by version and what the object says, oldest first

    def converted(self, obj: JSON, api_version: str) -> JSON:
        """An object in another version, not pruned. Raises Later; StatusError 500 if the webhook fails."""
        found = self._known.get((api_version, _said(obj)))
        if found is None:
            self.prepare([obj], api_version)
            raise errors.internal(f"conversion webhook for {_kind(obj)} cannot be waited for here")
        metadata = {name: value for name, value in obj["metadata"].items() if name not in _CHANGEABLE}
        return {**found, "kind": obj["kind"], "metadata": {**metadata, **found["metadata"]}}

    def prepare(self, objects: Sequence[JSON], api_version: str) -> None:
        """Have all of them converted in one call. Raises as converted()."""
        missing = {
            said: obj
            for obj in objects
            if obj["apiVersion"] != api_version and (api_version, said := _said(obj)) not in self._known
        }
        if not missing:
            return
        key = (self, api_version, tuple(missing))
        if failed := self._deferred_work.take_result(key):
            raise errors.internal(failed)
        if self._deferred_work.may_defer:
            raise Deferred(key, lambda: self._call([*missing.values()], api_version))

    async def _call(self, objects: list[JSON], api_version: str) -> str:
        """Convert objects and remember them; returns what is wrong, "" if nothing is."""
        kind = _kind(objects[0])
        self._calls += 1
        uid = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._name} {self._calls}"))
        request = {"uid": uid, "desiredAPIVersion": api_version, "objects": objects}
        review = {"kind": "ConversionReview", "apiVersion": self._api_version, "request": request}
        try:
            converted = self._objects(await self._post(msgspec.json.encode(review)), uid)
            if len(converted) != len(objects):
                told = f"conversion webhook for {kind} returned {len(converted)} objects, expected {len(objects)}"
                return told
            for before, after in zip(objects, converted, strict=True):
                self._known[api_version, _said(before)] = _checked(before, after, api_version)
        except _Failed as failure:
            return str(failure) if failure.whole else f"conversion webhook for {kind} {failure}"
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
        return ""

    async def _post(self, body: bytes) -> Any:
        import aiohttp  # only who converts by a webhook needs a client

        told = f"failed: Post {quoted(self._url)}"
        try:
            context = ssl.create_default_context(cadata=self._trusted or None)
            # Python 3.13 and later require certificate extensions that Go, and so kube-apiserver, does not.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_SECONDS)) as session,
                session.post(self._url, data=body, headers={"content-type": "application/json"}, ssl=context) as answer,
            ):
                content = await answer.read()
                if answer.status != 200:
                    raise _Failed(f"failed: {_refusal(answer.status, content)}")
        except TimeoutError:
            raise _Failed(f"{told}: context deadline exceeded") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _Failed(f"{told}: {_in_words_of_go(error)}") from None
        try:
            return msgspec.json.decode(content)
        except msgspec.DecodeError as error:
            raise _Failed(f"failed: couldn't get version/kind; json parse error: {error}") from None

    def _objects(self, answer: Any, uid: str) -> list[Any]:
        """The objects in a review that answers the request."""
        if not isinstance(answer, dict):
            raise _Failed("failed: couldn't get version/kind; json parse error: no object")
        group, _, version = str(answer.get("apiVersion", "")).rpartition("/")
        found, wanted = (
            f"{group}/{version}, Kind={answer.get('kind', '')}",
            f"{self._api_version}, Kind=ConversionReview",
        )
        strict = self._api_version.endswith("/v1")
        if strict and found != wanted:
            raise _Failed(f"failed: expected webhook response of {wanted}, got {found}")
        response = answer.get("response")
        if not isinstance(response, dict):
            raise _Failed("failed: no response provided")
        if strict and response.get("uid", "") != uid:
            raise _Failed(f"failed: expected response.uid={quoted(uid)}, got {quoted(str(response.get('uid', '')))}")
        result = response.get("result") or {}
        if result.get("status") != "Success":
            status = f"response.result.status was '{result.get('status', '')}', not 'Success'"
            raise _Failed(f"failed: {result.get('message') or status}")
        return list(response.get("convertedObjects") or ())


def _service_url(service: JSON) -> str:
    path = (service.get("path") or "").removeprefix("/")
    return f"https://{service['name']}.{service['namespace']}.svc:{service.get('port') or 443}/{path}"


def _kind(obj: JSON) -> str:
    return f"{obj['apiVersion']}, Kind={obj['kind']}"


def _said(obj: JSON) -> bytes:
    """What an object says, but for what conversions leave alone, as a hash."""
    given = obj["metadata"]
    # a name that the server makes up is another one each time that the request is answered
    names = ("generateName", "namespace") if given.get("generateName") else ("name", "namespace")
    metadata = {name: given[name] for name in (*names, *_CHANGEABLE) if given.get(name)}
    return blake2b(msgspec.json.encode({**obj, "metadata": metadata}, order="sorted"), digest_size=16).digest()


def _checked(before: JSON, after: Any, api_version: str) -> JSON:
    """A converted object with what counts of its metadata. Raises _Failed for one that is not the same object."""
    told = "returned invalid object at index 0"
    if not isinstance(after, dict) or not after.get("kind"):
        raise _Failed(f"Object 'Kind' is missing in '{msgspec.json.encode(after).decode()}'", whole=True)
    if (given := after.get("apiVersion", "")) != api_version:
        raise _Failed(f"{told}: invalid groupVersion (expected {api_version}, received {given})")
    if after["kind"] != before["kind"]:
        raise _Failed(f"{told}: invalid kind (expected {before['kind']}, received {after['kind']})")
    metadata, was = after.get("metadata"), before["metadata"]
    names = metadata if isinstance(metadata, dict) else {}
    for name in ("name", "namespace", "uid"):
        if (wanted := was.get(name, "")) != (given := names.get(name, "")):
            shown = "UID" if name == "uid" else name
            raise _Failed(f"returned invalid object: must have the same {shown}: {wanted} != {given}")
    if not isinstance(metadata, dict):
        raise _Failed("returned invalid metadata: missing metadata in converted object")
    kept = {name: metadata[name] for name in _CHANGEABLE if metadata.get(name) is not None}
    for name, values in kept.items():
        if not isinstance(values, dict) or not all(isinstance(each, str) for each in values.values()):
            raise _Failed(f"returned invalid metadata: invalid metadata.{name} in converted object")
    return {**after, "metadata": kept}


def _refusal(status: int, content: bytes) -> str:
    if status == 404:
        return "the server could not find the requested resource"
    text = content.decode(errors="replace").strip()
    return f"an error on the server ({quoted(text or 'unknown')}) has prevented the request from succeeding"


def _in_words_of_go(error: Exception) -> str:
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {error.host}: no such host"
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionRefusedError):
        return f"dial tcp {error.host}:{error.port}: connect: connection refused"
    return str(error) or "EOF"
