"""The journal of traces: unfinished pod records on disk, so that a restarted process continues them."""
