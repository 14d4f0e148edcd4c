"""The smallest configuration with a database, for tests of its sections."""

from ragauge.config import loading

BASE = {
    "run": "x",
    "models": {"smollm2-135m-instruct": {}},
    "datasets": {"wiki_single": {}},
    "methods": {"naive": {}},
    "databases": {"wiki": {}},
}


def parsed(**changes):
    return loading.parse({**BASE, **changes}, "c.yaml")
