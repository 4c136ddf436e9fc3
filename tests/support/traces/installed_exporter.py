"""A distribution with an OpenTelemetry span exporter, as pip installs it: a module and its entry point."""

from __future__ import annotations

from pathlib import Path

MODULE = """
import os
from pathlib import Path

from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult


class FileExporter(SpanExporter):
    def __init__(self):
        self.path = Path(os.environ["SPAN_FILE"])

    def export(self, spans):
        with self.path.open("a") as file:
            file.writelines(f"{span.name} {span.resource.attributes['service.name']}\\n" for span in spans)
        return SpanExportResult.SUCCESS

    def shutdown(self):
        with self.path.open("a") as file:
            file.write("shut down\\n")


class NoExporter:
    pass
"""
ENTRY_POINTS = """
[opentelemetry_traces_exporter]
File = kubeloop_file_exporter:FileExporter
wrong = kubeloop_file_exporter:NoExporter
broken = kubeloop_no_such_module:Exporter
"""


def install_exporter(folder: Path) -> None:
    """Install the exporters `file`, `wrong` and `broken` into a folder of sys.path. `file` writes to $SPAN_FILE."""
    metadata = folder / "kubeloop_file_exporter-1.0.dist-info"
    metadata.mkdir()
    (folder / "kubeloop_file_exporter.py").write_text(MODULE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kubeloop-file-exporter\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
