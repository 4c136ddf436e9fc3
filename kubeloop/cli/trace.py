"""`kubeloop trace`: where the time of pods went, from the running process or a file, to the terminal or to files."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kubeloop import __version__
from kubeloop.cli import endpoint_client
from kubeloop.cli.trace_sources import FileTraces, RunningProcessTraces, Traces
from kubeloop.kube.errors import UserError
from kubeloop.process.endpoint.trace_targets import Target
from kubeloop.tracing.views.pod_lines import PodLine


def show(
    *,
    target: str | None,
    namespace: str | None,
    as_json: bool,
    watch: bool,
    html: Path | None,
    perfetto: Path | None,
    otlp: Path | None,
    source: Path | None,
    endpoint: str | None,
) -> int:
    """Run the command and return its exit code. Raises UserError for what the user can mend."""
    wanted = Target(namespace=namespace or "")
    if target is not None:
        kind, name = endpoint_client.parse_target(
            target, endpoint_client.PODS | endpoint_client.DEPLOYMENTS, verb="trace"
        )
        wanted = Target(kind, name, namespace or "")
    files = {form: path for form, path in (("html", html), ("perfetto", perfetto), ("otlp", otlp)) if path is not None}
    if watch:
        if source is not None:
            raise UserError("--watch looks at a running process, and --from at a file", hint="leave one of them out")
        if files:
            raise UserError("--watch draws on the terminal, and writes no file", hint="leave one of them out")
        from kubeloop.cli.trace_watch import watching

        return watching(RunningProcessTraces(endpoint), wanted, as_json=as_json)
    traces: Traces = RunningProcessTraces(endpoint) if source is None else FileTraces(source)
    if files:
        if as_json:
            raise UserError("--json prints, and --html, --perfetto, --otlp write files", hint="leave one of them out")
        return _write_files(files, wanted, [*traces.documents(wanted)])
    if as_json:
        return _print_json(traces, wanted)
    return _draw(traces, wanted)


def _print_json(traces: Traces, wanted: Target) -> int:
    from kubeloop.tracing.views.rollout import rollout

    if wanted.kind == "deployment":
        document = rollout(str(wanted), _traced(traces.lines(wanted), wanted)).document()
    else:
        document = traces.one(wanted)
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


def _draw(traces: Traces, wanted: Target) -> int:
    from rich.console import Console

    from kubeloop.tracing.views.rollout import rollout
    from kubeloop.tracing.views.rollout_view import rollout_view
    from kubeloop.tracing.views.waterfall import waterfall

    console = Console(highlight=False)
    if wanted.kind == "pod":
        console.print(waterfall(traces.one(wanted)))
        return 0
    lines = traces.lines(wanted)
    traced = _traced(lines, wanted)
    found = rollout(str(wanted), traced)
    console.print(rollout_view(found) if wanted.kind else rollout_view(found, max_lines=0))
    if len(lines) > len(traced):
        console.print(f"{len(lines) - len(traced)} more have no trace: see OTEL_TRACES_SAMPLER", style="dim")
    if not wanted.kind:
        console.print("\nslowest pod:", style="dim")
        console.print(waterfall(traces.one(wanted)))
    return 0


def _traced(lines: list[PodLine], wanted: Target) -> list[PodLine]:
    """Those that have a trace. Raises UserError if there are none."""
    traced = [line for line in lines if line.trace_id]
    if traced:
        return traced
    where = f"of {wanted}" if wanted.kind else f"in {wanted}"
    if lines:
        raise UserError(f"none of the {len(lines)} pods {where} has a trace", hint="see OTEL_TRACES_SAMPLER")
    raise UserError(f"there is no pod {where} yet", hint="kubectl get pods -A lists what there is")


# --- files -------------------------------------------------------------------------------------------------------


def _write_files(files: Mapping[str, Path], wanted: Target, documents: list[dict[str, Any]]) -> int:
    writers: dict[str, Callable[[], str]] = {
        "html": lambda: _html(wanted, documents),
        "perfetto": lambda: _perfetto(documents),
        "otlp": lambda: _otlp(documents),
    }
    spans = sum(len(document["spans"]) for document in documents)
    for form, path in files.items():
        _write(path, writers[form]())
        if str(path) != "-":
            what = {"html": "open it in a browser", "perfetto": "open it at ui.perfetto.dev"}.get(form, "")
            told = f"wrote {path}: {len(documents)} traces, {spans} spans"
            print(f"{told}; {what}" if what else told, file=sys.stderr)
    return 0


def _html(wanted: Target, documents: Iterable[dict[str, Any]]) -> str:
    from kubeloop.tracing.views.browser_page import self_contained_page

    return self_contained_page(documents, kind=wanted.kind, name=wanted.name, title=str(wanted))


def _perfetto(documents: Iterable[dict[str, Any]]) -> str:
    from kubeloop.tracing.views.perfetto import to_perfetto

    return json.dumps(to_perfetto(documents), separators=(",", ":"))


def _otlp(documents: Iterable[dict[str, Any]]) -> str:
    from kubeloop.tracing.views.otlp_json import to_otlp

    return json.dumps(to_otlp(documents, version=__version__), separators=(",", ":")) + "\n"


def _write(path: Path, text: str) -> None:
    """All of it or nothing: a reader never finds half a file. "-": stdout. Raises UserError."""
    if str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        if path.exists() and not path.is_file():  # a pipe, /dev/stdout
            path.write_text(text, encoding="utf-8")
            return
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            umask = os.umask(0)
            os.umask(umask)
            Path(partial).chmod(0o666 & ~umask)
            Path(partial).replace(path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", hint="choose another file") from None
