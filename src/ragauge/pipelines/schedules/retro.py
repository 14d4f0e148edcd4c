"""RETRO (Borgeaud et al., ICML 2022): retrieval every 64 tokens."""

from ragauge.errors import SettingError
from ragauge.pipelines.schedules.base import Schedule
from ragauge.pipelines.windows import CHUNK


class Retro(Schedule):
    """Queries every 64 tokens with the 64 before, and waits for each reply."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.interval != CHUNK:
            raise SettingError(
                "interval",
                f"schedule 'retro' requires {CHUNK}, not {self.interval}; see retro_plus",
            )
