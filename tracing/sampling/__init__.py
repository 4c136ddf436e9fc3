"""Sampling: the head sampler decides when a trace starts, tail rules decide when it ends."""
