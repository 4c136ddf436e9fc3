"""`kubeloop record`: a cluster as a file, read-only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import sys
from pathlib import Path
from typing import Final

import msgspec

from kubeloop.cli.options.recording_options import RecordOptions
from kubeloop.kube.allocator import map_large_blocks
from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.json_object import JSON
from kubeloop.kube.user_error import UserError
from kubeloop.process.api_server_check import refused_error, unreachable_error
from kubeloop.process.logs import configure_logging
from kubeloop.process.signals import run_until_interrupted
from kubeloop.recording.anonymization import Anonymizer
from kubeloop.recording.reader import RecordingFile
from kubeloop.recording.recorder import ClusterRecorder, recorded_resources
from kubeloop.recording.writer import Header, RecordingWriter

_KEY_BYTES: Final = 32


def record(path: Path, options: RecordOptions) -> int:
    """Run the command and return its exit code. Raises UserError for invalid input."""
    configure_logging(options.verbosity, options.log_format)
    if options.append and options.once:
        raise UserError("--once and --append are mutually exclusive", hint="remove one")
    map_large_blocks()
    return run_until_interrupted(_record(path, options), interrupted=0)


async def _record(path: Path, options: RecordOptions) -> int:
    clock, rng = SystemClock(), random.Random()
    kubeconfig = str(options.kubeconfig) if options.kubeconfig else None
    transport = await connect(kubeconfig, options.kube_context)
    async with contextlib.AsyncExitStack() as stack:
        client = ApiClient(transport, clock=clock, rng=rng)
        stack.push_async_callback(client.close)
        header = Header(server=transport.server, kubernetes=await _version(client), namespace=options.namespace)
        resources, denied = await recorded_resources(client, options.namespace, watch=not options.once)
        writer = _open_writer(path, header, options, clock)
        stack.callback(writer.close)
        for name, reason in sorted(denied.items()):
            writer.omit(name, reason)
            _print(f"warning: {name} are not recorded: {reason}")
        recorder = ClusterRecorder(client, writer, resources, namespace=options.namespace, clock=clock, rng=rng)
        if options.once:
            await recorder.snapshot()
            _print(f"recorded {_counts(recorder)} of {transport.server} to {path}")
            return 0
        async with asyncio.TaskGroup() as group:
            group.create_task(recorder.run(), name="recorder")
            await recorder.listed_once.wait()
            _print(f"recording {transport.server} to {path}: {_counts(recorder)}; Ctrl-C ends it")
    return 0


def _open_writer(path: Path, header: Header, options: RecordOptions, clock: SystemClock) -> RecordingWriter:
    """Return the writer of a new recording, or of the one to continue. Raises UserError."""
    anonymizer = Anonymizer(_read_key(options.anonymize)) if options.anonymize is not None else None
    anonymize = anonymizer.object if anonymizer is not None else _unchanged
    if anonymizer is not None:
        header = msgspec.structs.replace(header, key_id=anonymizer.key_id, server=anonymizer.address(header.server))
    if not options.append or not path.exists():
        return RecordingWriter.create(path, header, clock=clock, anonymize=anonymize)
    existing = RecordingFile(path)
    for field, value in (("server", header.server), ("namespace", header.namespace), ("key_id", header.key_id)):
        recorded = getattr(existing.header, field)
        if recorded != value:
            raise UserError(
                f"{path} is a recording with {field} {recorded or 'none'}, not {value or 'none'}",
                hint="record to another file",
            )
    return RecordingWriter.append(path, existing.header, existing.start_ns, clock=clock, anonymize=anonymize)


def _unchanged(kind: str, obj: JSON) -> JSON:
    return obj


def _read_key(path: Path) -> bytes:
    """Return the key of a file, which is created with a random one if it does not exist. Raises UserError."""
    try:
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{secrets.token_hex(_KEY_BYTES)}\n")
        key = path.read_bytes().strip()
    except OSError as error:
        raise UserError(f"--anonymize: cannot read or create {path}: {error.strerror}", hint="choose a file") from None
    if len(key) < _KEY_BYTES // 2:
        raise UserError(
            f"--anonymize: the key in {path} is too short", hint=f"use at least {_KEY_BYTES // 2} random characters"
        )
    return key


async def _version(client: ApiClient) -> str:
    """Return the version of the API server. Raises UserError if it does not respond."""
    server = client.transport.server
    try:
        response = await client.raw("GET", "/version")
        return str(msgspec.json.decode(response.body)["gitVersion"])
    except ServerUnreachable as error:
        raise unreachable_error(server, error) from None
    except ApiError as error:
        raise refused_error(server, error) from None
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""


def _counts(recorder: ClusterRecorder) -> str:
    counts = recorder.counts()
    others = sum(counts.values()) - counts["nodes"] - counts["pods"]
    return f"{counts['nodes']:,} nodes, {counts['pods']:,} pods and {others:,} other objects"


def _print(text: str) -> None:
    print(text, file=sys.stderr)
