"""The code that a result depends on, as a digest: a change of it makes the result again."""

from collections.abc import Iterable

from ragauge import registry
from ragauge.io import digest
from ragauge.methods.base import making
from ragauge.methods.base.method import Method

AFFECTS_RESULTS = False


def code_of(*modules: str, components: Iterable[str] = ()) -> str:
    """Return the digest of the code behind a rule's command.

    Args:
        modules: names below ragauge.
        components: full names of modules, which other packages may add.
    """
    return digest.digest(*(f"{digest.PACKAGE}.{module}" for module in modules), *components)


def answer_code(method: Method, engine: str) -> str:
    """Return the digest of the code behind the answers of a method on an engine of that name."""
    components = [*making.modules(method), registry.module_name("engine", engine)]
    return code_of("measure.concurrency", "measure.engines", components=components)


def engine_code(engine: str) -> str:
    """Return the digest of the code behind the keys and values that an engine computes."""
    return code_of(components=[registry.module_name("engine", engine)])
