"""The extension points of a profile: each module runs the plugins of one phase of an attempt."""
