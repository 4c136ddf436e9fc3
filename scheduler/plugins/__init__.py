"""The in-tree plugins: one module per plugin, named after it, and the modules that several plugins share.

`registry` lists them by name. `legacy` holds plugins of older schedulers that only Policy documents name.
"""
