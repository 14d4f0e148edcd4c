"""Calls with a cache directory of their own."""

import pytest


def in_home(home, call, *args, **options):
    """Call with `home` as the cache directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAGAUGE_HOME", str(home))
        return call(*args, **options)
