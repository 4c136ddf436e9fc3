"""Functions that print the cells of each kind's row in a Table.

A function takes an object, decoded and defaulted as the server stores it, and the time; it returns the cells in the
order of columns.json, wide columns included. Source: kubernetes/pkg/printers/internalversion.
"""

from __future__ import annotations

from kubeloop.devcluster.printers import core, network, pods, storage, workloads
from kubeloop.devcluster.printers.formatting import CellPrinter, human_duration

__all__ = ["PRINTERS", "human_duration"]

PRINTERS: dict[str, CellPrinter] = {
    **pods.PRINTERS,
    **workloads.PRINTERS,
    **network.PRINTERS,
    **storage.PRINTERS,
    **core.PRINTERS,
}
"""By group resource; "scale" for the subresource scale, "" for kinds without a printer."""
