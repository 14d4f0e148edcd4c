"""The smallest configuration with a database, for tests of its sections."""

from typing import Any

from ragauge.config import loading

BASE: dict[str, Any] = {
    "run": "x",
    "models": {"smollm2-135m-instruct": {}},
    "datasets": {"wiki_single": {}},
    "methods": {"naive": {}},
    "databases": {"wiki": {}},
}


def parsed(**changes):
    return loading.parse({**BASE, **changes}, "c.yaml")
