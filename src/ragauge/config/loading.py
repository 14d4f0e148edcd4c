"""Loads the configuration of an experiment and checks it once, so that mistakes are found before
any work.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragauge.assets import pins
from ragauge.config import checks
from ragauge.config.experiment import Config
from ragauge.config.reading import checked
from ragauge.config.reading import read as read
from ragauge.errors import UserError
from ragauge.pipelines.retrieval.settings import DatabaseSettings
from ragauge.training.settings import TrainingSettings

AFFECTS_RESULTS = False


def load(path: Path) -> Config:
    """Load and check the configuration of a file, and put its lock in use (`assets.pins`).

    Raises:
        UserError: the first mistake, with the key's path.
    """
    config = parse(read(path), str(path))
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


def parse_training(data: Mapping[str, Any], where: str) -> TrainingSettings:
    """The checked settings of one training; `where` begins the message of a mistake."""
    training = checked(TrainingSettings, data, where)
    checks.check_training(training, where)
    return training


def parse_database(data: Mapping[str, Any], where: str) -> DatabaseSettings:
    """The checked settings of one chunk database; `where` begins the message of a mistake."""
    database = checked(DatabaseSettings, data, where)
    checks.check_database(database, where)
    return database
