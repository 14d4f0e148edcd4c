"""Tables of items, single lines of them, and what their figures show."""

import pytest
from matplotlib.text import Text

from ragauge import registry
from ragauge.config.loading import parse
from ragauge.results.runs import Runs, unconfigured
from tables import rows


def table(item, folder, config=None):
    """The table of an item from a folder of results, and from a configuration as its file holds it."""
    return registry.module("item", item).table(
        Runs(folder, parse(config, "t.yaml") if config else unconfigured())
    )


def line(frame, **keys):
    for key, value in keys.items():
        frame = frame[frame[key] == value]
    assert len(frame) == 1, f"{len(frame)} lines with {keys}"
    return dict(frame.iloc[0].to_dict())


def check_cells(frame, text, **common):
    """Check lines of a table: each row of the text is YAML of a line's keys, besides the common
    ones, and of what stands in it.
    """
    for keys, expected in rows(text):
        found = line(frame, **common, **keys)
        cells = {name: found[name] for name in expected}
        assert cells == pytest.approx(expected, nan_ok=True), keys


def shown(item, frame):
    """Everything that is written in an item's figure of a table, which is laid out as it is for a
    file.
    """
    figure = registry.module("item", item).draw(frame)
    figure.draw_without_rendering()
    return "\n".join(text.get_text() for text in figure.findobj(match=Text))
