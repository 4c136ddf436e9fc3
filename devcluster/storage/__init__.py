"""Storage: the versioned object store with its watch cache, watches, and the SQLite file of `--data-dir`."""
