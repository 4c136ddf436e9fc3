"""The framework runtime: runs the plugins of a profile at their extension points."""
