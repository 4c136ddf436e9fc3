"""What a row of `kubectl get` says about an object of each kind.

One function per kind takes the object and the time and returns its cells in the order of columns.json, wide columns
included. An object is as the server stores it: decoded and defaulted. Source: kubernetes/pkg/printers/internalversion.
"""

from __future__ import annotations

from kubeloop.devcluster.printers import network, others, pods, storage, workloads
from kubeloop.devcluster.printers.formatting import Print, human_duration

__all__ = ["PRINTERS", "human_duration"]

PRINTERS: dict[str, Print] = {
    **pods.PRINTERS,
    **workloads.PRINTERS,
    **network.PRINTERS,
    **storage.PRINTERS,
    **others.PRINTERS,
}
"""By group resource; "scale" for the subresource of that name, "" for kinds that nobody wrote a printer for."""
