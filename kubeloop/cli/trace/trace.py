"""`kubeloop trace`: phase durations of pods, from a running process or a file, to the terminal or to files."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kubeloop import __version__
from kubeloop.cli.endpoint_client import print_choice
from kubeloop.cli.options.options import TraceOptions
from kubeloop.cli.targets import parse_target
from kubeloop.cli.terminal import output_console
from kubeloop.cli.trace.sources import FileTraces, RunningProcessTraces, Traces, group_trace
from kubeloop.kube.user_error import UserError
from kubeloop.process.endpoint.trace_targets import POD_GROUP_KIND, Target
from kubeloop.tracing.views.browser_page import self_contained_page
from kubeloop.tracing.views.otlp_json import to_otlp
from kubeloop.tracing.views.pod_lines import PodLine
from kubeloop.tracing.views.rollout import rollout

_MAX_GROUP_ROWS = 40  # a group that does not fit has many attempts; --json has all


def show(target: str | None, options: TraceOptions) -> int:
    """Run the command and return its exit code. Raises UserError for invalid input."""
    namespace, source, as_json = options.namespace or "", options.source, options.as_json
    selected = Target(namespace=namespace)
    if target is not None:
        selected = Target(*parse_target(target, verb="trace"), namespace)
    outputs = {"html": options.html, "perfetto": options.perfetto, "otlp": options.otlp}
    files = {form: path for form, path in outputs.items() if path is not None}
    if options.watch:
        if source is not None:
            raise UserError("--watch and --from are mutually exclusive", hint="remove one of them")
        if files:
            raise UserError("--watch writes no file", hint="remove --watch, or --html, --perfetto and --otlp")
        from kubeloop.cli.trace.watch import watch_traces

        if options.endpoint is None:
            print_choice()
        return watch_traces(RunningProcessTraces(options.endpoint), selected, as_json=as_json)
    if source is None and options.endpoint is None:
        print_choice()
    traces: Traces = RunningProcessTraces(options.endpoint) if source is None else FileTraces(source)
    if files:
        if as_json:
            raise UserError("--json writes no file", hint="remove --json, or --html, --perfetto and --otlp")
        return _write_files(files, selected, [*traces.documents(selected)])
    if as_json:
        return _print_json(traces, selected)
    return _draw(traces, selected)


def _print_json(traces: Traces, selected: Target) -> int:
    if selected.is_owner:
        lines = _traced(traces.lines(selected), selected)
        document = rollout(str(selected), lines).document()
        if selected.kind == POD_GROUP_KIND:
            document["group"] = group_trace(traces, lines)
    else:
        document = traces.trace(selected)
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


def _draw(traces: Traces, selected: Target) -> int:
    from kubeloop.tracing.views.rollout_view import rollout_view
    from kubeloop.tracing.views.waterfall import waterfall

    console = output_console()
    if selected.kind == "pod":
        console.print(waterfall(traces.trace(selected)))
        return 0
    lines = traces.lines(selected)
    traced = _traced(lines, selected)
    summary = rollout(str(selected), traced)
    group = group_trace(traces, lines) if selected.kind == POD_GROUP_KIND else None
    if group is not None:
        console.print(waterfall(group, max_rows=_MAX_GROUP_ROWS))
        console.print()
    console.print(rollout_view(summary) if selected.kind else rollout_view(summary, max_lines=0))
    if len(lines) > len(traced):
        console.print(f"{len(lines) - len(traced)} other pods have no trace: see OTEL_TRACES_SAMPLER", style="dim")
    if not selected.kind:
        console.print("\nslowest pod:", style="dim")
        console.print(waterfall(traces.trace(selected)))
    return 0


def _traced(lines: list[PodLine], selected: Target) -> list[PodLine]:
    """Return the lines that have a trace. Raises UserError if there are none."""
    traced = [line for line in lines if line.trace_id]
    if traced:
        return traced
    where = f"of {selected}" if selected.kind else f"in {selected}"
    if lines:
        raise UserError(f"none of the {len(lines)} pods {where} has a trace", hint="see OTEL_TRACES_SAMPLER")
    raise UserError(f"there is no pod {where} yet", hint="list pods with kubectl get pods -A")


# --- files -------------------------------------------------------------------------------------------------------


def _write_files(files: Mapping[str, Path], selected: Target, documents: list[dict[str, Any]]) -> int:
    spans = sum(len(document["spans"]) for document in documents)
    for form, path in files.items():
        _write(path, _content(form, selected, documents))
        if str(path) != "-":
            advice = {"html": "open it in a browser", "perfetto": "open it at ui.perfetto.dev"}.get(form, "")
            summary = f"wrote {path}: {len(documents)} traces, {spans} spans"
            print(f"{summary}; {advice}" if advice else summary, file=sys.stderr)
    return 0


def _content(form: str, selected: Target, documents: Iterable[dict[str, Any]]) -> str:
    if form == "html":
        return self_contained_page(documents, kind=selected.kind, name=selected.name, title=str(selected))
    if form == "otlp":
        return json.dumps(to_otlp(documents, version=__version__), separators=(",", ":")) + "\n"
    from kubeloop.tracing.views.perfetto import to_perfetto

    return json.dumps(to_perfetto(documents), separators=(",", ":"))


def _write(path: Path, text: str) -> None:
    """Write a file atomically: a reader never sees a partial file. "-": stdout. Raises UserError."""
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
