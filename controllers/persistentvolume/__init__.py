"""Persistent volume binder: binds claims to volumes, and releases volumes of deleted claims."""
