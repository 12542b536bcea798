# Derived from _async/__init__.py by derive.py: change that one.
"""The client, written once. `_sync` is derived from this folder."""
