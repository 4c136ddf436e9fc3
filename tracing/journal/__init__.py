"""Journal of traces on disk, with which the next process continues and exports them after a crash."""
