"""The client, written once. `_sync` is derived from this folder."""
