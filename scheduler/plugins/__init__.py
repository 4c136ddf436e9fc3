"""The in-tree plugins: one module per plugin, named after it, and the modules that several plugins share.

`registry` lists them by name. Plugins of older schedulers are in `legacy_policy`.
"""
