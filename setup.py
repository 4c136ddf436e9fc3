"""Build script: pyproject.toml has the metadata. The check precedes the search for dependencies."""

import runpy

from setuptools import setup

runpy.run_path("kubeloop/python_version.py")
setup()
