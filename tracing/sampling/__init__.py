"""Sampling: which traces are recorded (head) and which finished traces are exported (tail rules)."""
