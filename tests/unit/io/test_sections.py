"""A key of a section says itself which results record it."""

from typing import Annotated

import pytest
from pydantic import Field

from ragauge.io.sections import Recorded, Section


class Inner(Section):
    address: Annotated[str | None, Recorded.NEVER] = None
    threads: Annotated[int, Recorded.WITH_TIMES] = Field(1, ge=1)
    depth: int = 3


class Outer(Section):
    label: Annotated[str, Recorded.NEVER] = Field("a", description="a label")
    size: int = 2
    inner: Inner = Inner()


@pytest.mark.parametrize(
    ("timed", "inner"), [(True, {"threads": 1, "depth": 3}), (False, {"depth": 3})]
)
def test_recorded_keys(timed, inner):
    assert Outer().recorded(timed=timed) == {"size": 2, "inner": inner}
