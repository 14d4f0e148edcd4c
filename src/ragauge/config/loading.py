"""Loads the configuration of an experiment and checks it once, so that mistakes are found before
any work.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragauge._version import __version__
from ragauge.assets import pins
from ragauge.config import checks
from ragauge.config.reading import checked
from ragauge.config.reading import read as read
from ragauge.config.schema import Config
from ragauge.errors import UserError
from ragauge.pipelines.retrieval.settings import DatabaseSettings
from ragauge.training.settings import TrainingSettings

# the key of a configuration that a run wrote: the version of ragauge that checked it
CHECKED_BY = "checked_by"


def load(path: Path) -> Config:
    """The checked configuration of a file, whose lock is then in use (`assets.pins`). A
    configuration that a run of this version wrote was checked when the run began, and is not
    checked again. Raises UserError: the first mistake, with the key's path.
    """
    data = read(path)
    is_checked = data.pop(CHECKED_BY, None) == __version__
    config = checked(Config, data, str(path)) if is_checked else parse(data, str(path))
    pins.activate_lock(path)
    return config


def parse(data: Mapping[str, Any], place: str) -> Config:
    """The checked configuration of a mapping that came from `place` (a file name, for the
    messages).
    """
    config = checked(Config, data, place)
    try:
        checks.check(config)
    except UserError as error:
        raise UserError(f"{place}: {error}") from error
    return config


def resolved(config: Config) -> dict[str, Any]:
    """The mapping that a run writes for its jobs, for `load` to read."""
    return {CHECKED_BY: __version__, **config.model_dump(exclude_none=True)}


def parse_training(data: Mapping[str, Any], where: str) -> TrainingSettings:
    """The checked settings of one training; `where` begins the message of a mistake."""
    checks.check_training(training := checked(TrainingSettings, data, where), where)
    return training


def parse_database(data: Mapping[str, Any], where: str) -> DatabaseSettings:
    """The checked settings of one chunk database; `where` begins the message of a mistake."""
    checks.check_database(database := checked(DatabaseSettings, data, where), where)
    return database
