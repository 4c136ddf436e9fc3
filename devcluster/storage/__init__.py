"""Storage: the versioned object store, watches, and the SQLite file of `--data-dir`."""
