"""Explanations of pending pods, and the cache debugger."""
