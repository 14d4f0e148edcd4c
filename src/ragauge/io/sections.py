"""The base of all settings that a user states: the sections of a configuration and the options of a
verb.
"""

from typing import Any

from pydantic import BaseModel, model_validator

from ragauge.errors import SettingError, unknown


class Section(BaseModel, extra="forbid", strict=True, frozen=True):
    """Refuses an undeclared key with the known ones, and converts no value to another type."""

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, stated: Any) -> Any:
        for key in stated if isinstance(stated, dict) else ():
            if key not in cls.model_fields:
                raise SettingError(str(key), str(unknown("key", key, cls.model_fields)))
        return stated
