"""Components: the files of this package, and modules that other installed packages name as entry
points.

    [project.entry-points."ragauge.methods"]
    last_first = "ragauge_last_first.methods.last_first"

The entry point's value is a module that bears the component's name; the module is what a file of
this package would be. Nothing of a plugin is imported to list it.
"""

import importlib.util
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

from ragauge.errors import UserError, explain_missing_extra

AFFECTS_RESULTS = False

OWN = "ragauge"  # the package of our own components
KINDS = ("method", "dataset", "metric", "ranker", "compressor", "item")


@dataclass(frozen=True, order=True)
class Component:
    """A component of this package or of a plugin."""

    kind: str
    name: str
    module: str  # its full name
    package: str = OWN  # the distribution, as `pip list` shows it
    version: str = ""

    @property
    def origin(self) -> str:
        """The package and, of a plugin, its version."""
        return f"{self.package} {self.version}".strip()

    def load(self) -> ModuleType:
        """Import the module.

        Raises:
            UserError: a plugin's has another name or cannot be imported.
        """
        if self.package == OWN:
            return importlib.import_module(self.module)
        parent, _, name = self.module.rpartition(".")
        if name != self.name:
            raise UserError(
                f"{self.kind} {self.name!r} of {self.origin}: its module is {self.module}; "
                f"a component's file bears its name, as in {parent or self.module}.{self.name}"
            )
        try:
            with explain_missing_extra():
                return importlib.import_module(self.module)
        except Exception as error:  # a plugin's code may raise anything
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            reason = " ".join(f"{kind}{error}".split())
            raise UserError(
                f"{self.kind} {self.name!r} of {self.origin} cannot be imported: {reason}"
            ) from error


@cache
def installed() -> tuple[Component, ...]:
    """The components of all plugins, sorted."""
    components = set()
    points = metadata.entry_points()  # read once: every package has files of its own
    for kind in KINDS:
        for point in points.select(group=f"ragauge.{kind}s"):
            assert point.dist is not None  # as `metadata.entry_points` finds them
            components.add(
                Component(
                    kind, point.name, point.value.strip(), point.dist.name, point.dist.version
                )
            )
    return tuple(sorted(components))


@cache
def of_module(module: str) -> tuple[Component, ...]:
    """The components of the plugins that a module belongs to, by its outermost package; none of
    other modules.
    """
    top = module.partition(".")[0]
    return tuple(plugin for plugin in installed() if plugin.module.partition(".")[0] == top)


@cache
def path_of(module: str) -> Path | None:
    """The file of a module of a plugin; None where there is none. Nothing is imported."""
    top, *below = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return None
    stems = [Path(folder, *below) for folder in spec.submodule_search_locations or ()]
    paths = [path for stem in stems for path in (stem.with_suffix(".py"), stem / "__init__.py")]
    if not below and spec.origin:
        return Path(spec.origin)
    return next((path for path in paths if path.is_file()), None)
