"""The command line: one module per command, and their options."""
