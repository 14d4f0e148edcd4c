"""What the parts of a plan have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ragauge.config.plan.paths import Paths
from ragauge.config.schema import Config
from ragauge.io import digest

Labels = Any  # Snakemake's wildcards: each label of a job is an attribute
ASSET = "resources/assets/{asset}.json"  # a manifest: what the asset is, hash by hash
ALONE = "--exclusive"  # Slurm's option for a whole node; a run on one machine keeps other jobs away by its cores


class PlanPart:
    """The jobs of one file of rules: their inputs, parameters and resources, as functions of a job's labels."""

    def __init__(self, config: Config, cores: int) -> None:
        self.config = config
        self.cores = cores  # of the run; on a cluster, where the run has none, of the node that the job is on
        self.paths = Paths(config.run)

    def model_manifest(self, model: str) -> str:
        """Of a model (a label): the asset's, or that of the training that makes it."""
        entry = self.config.models[model]
        made = f"{self.paths.trained}.json".format(training=entry.training)
        return made if entry.training else manifest(entry.source)

    def model_manifests(self, model: str) -> list[str]:
        """Of the files that a model (a label) is read from: none of a served one but its tokenizer's, if it has any."""
        served = self.config.models[model].served
        if served is None:
            return [self.model_manifest(model)]
        return [manifest(served.tokenizer)] if served.tokenizer else []


def code_of(*modules: str, components: Iterable[str] = ()) -> str:
    """The digest of the modules behind a rule's command: a change of them makes the result again.

    Args:
        modules: below ragauge.
        components: full names of the modules of components, which other packages may add.
    """
    return digest.digest(*(f"{digest.PACKAGE}.{module}" for module in modules), *components)


def grown(mem_mb: int) -> Callable[..., int]:
    """Megabytes that grow with every attempt, for profiles that retry failed jobs."""

    def of_attempt(wildcards: Labels, attempt: int) -> int:
        return attempt * mem_mb

    return of_attempt


def manifest(source: str) -> str:
    """The manifest of an asset; characters that are not allowed in file names become dashes."""
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in source)
    return ASSET.format(asset=name)
