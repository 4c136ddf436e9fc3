"""Log records on stderr, one line each."""

from __future__ import annotations

import logging

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure_logging(verbosity: str) -> None:
    """Print kubeloop's records from `verbosity` ("error" to "debug") on; other libraries' from warning on."""
    logging.basicConfig(format=_FORMAT, level=logging.WARNING)
    logging.getLogger("kubeloop").setLevel(verbosity.upper())
    # what somebody asked for with a signal is not noise, however quiet the log was made
    logging.getLogger("kubeloop.dump").setLevel(logging.INFO)
