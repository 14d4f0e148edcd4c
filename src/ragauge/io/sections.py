"""The base of all settings that a user states: the sections of a configuration and the options of a
verb.
"""

from enum import Enum
from typing import Annotated, Any

from pydantic import BaseModel, StringConstraints, model_validator

from ragauge.errors import SettingError, unknown
from ragauge.io.jsonl import JsonObject

AFFECTS_RESULTS = False

# of a label, which becomes the name of a file or folder
LABEL = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
Label = Annotated[str, StringConstraints(pattern=LABEL)]


class Recorded(Enum):
    """The results that record a key, as in `Annotated[str, Recorded.NEVER]`; default: all."""

    NEVER = "never"  # it changes no result, or results record what it names
    WITH_TIMES = "with times"  # it changes how long an answer takes, but not the answer


# In a key's `Annotated`: the command line has no option of this name and meaning.
NO_OPTION = object()


class Section(BaseModel, extra="forbid", strict=True, frozen=True):
    """Refuses an undeclared key with the known ones, and converts no value to another type."""

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, stated: Any) -> Any:
        for key in stated if isinstance(stated, dict) else ():
            if key not in cls.model_fields:
                raise SettingError(str(key), str(unknown("key", key, cls.model_fields)))
        return stated

    def recorded(self, *, timed: bool) -> JsonObject:
        """Return the keys that results depend on, those of nested sections included.

        Args:
            timed: whether the results are times, so that keys `Recorded.WITH_TIMES` count as well.
        """
        unrecorded = {Recorded.NEVER} if timed else set(Recorded)
        values = self.model_dump()
        for key, field in type(self).model_fields.items():
            value = getattr(self, key)
            if any(role in field.metadata for role in unrecorded):
                del values[key]
            elif isinstance(value, Section):
                values[key] = value.recorded(timed=timed)
        return values
