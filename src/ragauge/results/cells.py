"""Cells of tables: a measured and a published number, their source, and the reason where there is
none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ragauge.results.stats import Limits, mean_interval, paired_test

if TYPE_CHECKING:
    import pandas as pd

Table: TypeAlias = "pd.DataFrame"  # what `frame` makes
NUMBERS = ("published", "measured", "low", "high", "n", "p", "ratio")
# the columns of a table after its keys and `quantity`
VALUES = (*NUMBERS, "note", "status", "source")
OTHER_MODEL = "published for another model"
NO_SPREAD = "interval not known: values do not vary"
NOT_RUN_HERE = "published; this row was not run"


class CellStatus(StrEnum):
    MEASURED = "measured"
    PREDICTED = "predicted"
    PUBLISHED_ONLY = "published_only"
    COULD_NOT_RUN = "could_not_run"


class CellSource(StrEnum):
    """The origin of a value."""

    RECORDS = "records"  # of a run: scores, traces, seconds of the run itself
    # the latency protocol's trials: of one machine, without a ratio to another one's
    LATENCY = "latency"
    SHAPE = "shape"  # a model's shape alone: predicted
    PROJECTION = "projection"  # a measured trace under other speeds: predicted


@dataclass(frozen=True)
class Measure:
    """A measured value, its 95% interval and its number of questions or trials; or why
    there is none.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    p: float | None = None
    note: str = ""  # a remark on the number
    reason: str = ""  # why there is no number
    source: CellSource = CellSource.RECORDS


Keys = Mapping[str, Any]  # of a row: its columns that are no numbers
Measures = dict[str, Measure]  # by quantity
Line: TypeAlias = Mapping[Any, Any]  # of a table
Key = TypeVar("Key")


@dataclass(frozen=True)
class Cell:
    keys: Keys
    quantity: str
    measure: Measure = field(default_factory=Measure)
    published: float | None = None
    paper_model: str | None = None  # where the paper measured this very model
    paper_dataset: str | None = None  # where, in addition, its table has several data sets

    @property
    def status(self) -> CellStatus:
        """The kind of the number; a reason takes precedence over a published number."""
        measure = self.measure
        if measure.value is not None:
            is_predicted = measure.source in (CellSource.SHAPE, CellSource.PROJECTION)
            return CellStatus.PREDICTED if is_predicted else CellStatus.MEASURED
        is_published_only = self.published is not None and not measure.reason
        return CellStatus.PUBLISHED_ONLY if is_published_only else CellStatus.COULD_NOT_RUN

    @property
    def ratio(self) -> float | None:
        """Measured over published; None if either is missing, or where they are times of two
        machines.
        """
        value = self.measure.value
        if value is None or not self.published or self.measure.source is CellSource.LATENCY:
            return None
        return value / self.published


Cells: TypeAlias = Iterable[Cell]


def row_cells(keys: Keys, measures: Mapping[str, Measure], *paper: str | None) -> list[Cell]:
    """The cells of a row; `paper`: the paper's model and data set, where it measured these."""
    return [Cell(keys, name, measure, None, *paper) for name, measure in measures.items()]


def frame(keys: Sequence[str], cells: Iterable[Cell]) -> Table:
    """One line a cell: keys, quantity, then VALUES. The ratio is measured / published."""
    import pandas as pd

    rows = []
    for cell in cells:
        measure = cell.measure
        numbers = (measure.value, measure.low, measure.high, measure.n, measure.p)
        source = "" if measure.value is None else str(measure.source)
        texts = (join(measure.reason, measure.note), str(cell.status), source)
        names = (cell.keys.get(key, "") for key in keys)
        rows.append([*names, cell.quantity, cell.published, *numbers, cell.ratio, *texts])
    table = pd.DataFrame(rows, columns=[*keys, "quantity", *VALUES])
    return table.astype({name: float for name in NUMBERS if name != "n"})


def merge(
    measured: Sequence[Cell],
    published: Sequence[Cell],
    on: Sequence[str],
    predicted: Sequence[Cell] = (),
) -> list[Cell]:
    """The measured cells, each with the paper's number where model and row (the keys `on`) are the
    paper's; then the others. A predicted value is used where nothing was measured. The other
    numbers come model by model, or as they are published where the paper's table has several data
    sets.
    """

    def identity(cell: Cell) -> tuple[Any, ...]:
        row = (cell.keys.get(key, "") for key in on)
        return cell.paper_model, cell.paper_dataset, cell.quantity, *row

    printed = {identity(cell): cell.published for cell in published}
    predictions = {identity(cell): cell.measure for cell in predicted}
    compared = [replace(c, published=printed.get(identity(c), c.published)) for c in measured]
    used = set(map(identity, measured))
    models = {cell.paper_model for cell in measured}
    rest = []
    for cell in published:
        if identity(cell) not in used:
            note = NOT_RUN_HERE if cell.paper_model in models else OTHER_MODEL
            rest.append(replace(cell, measure=Measure(note=note)))
    rest += [cell for cell in predicted if identity(cell) not in used | printed.keys()]
    order = [cell.paper_model for cell in (*published, *predicted)]
    rest.sort(key=lambda cell: 0 if cell.paper_dataset else order.index(cell.paper_model))
    return [_stand_in(cell, predictions.get(identity(cell)), models) for cell in compared + rest]


def mean(
    values: Sequence[float],
    seed: int,
    note: str = "",
    *,
    nothing: str = "no record holds it",
    limits: Limits | None = None,
) -> Measure:
    """The mean with its interval; `nothing` is the reason where there is no value.

    Args:
        limits: the least and the greatest possible value, without which equal ones have no
            interval.
    """
    if not values:
        return Measure(reason=note or nothing)
    interval = mean_interval(values, seed=seed, limits=limits)
    return with_interval_note(Measure(sum(values) / len(values), *interval, len(values), note=note))


def paired(
    a: Sequence[float],
    b: Sequence[float],
    seed: int,
    note: str = "",
    *,
    limits: Limits | None = None,
) -> Measure:
    """The mean of a - b over the same questions, with its interval and the p-value of a paired
    test; `limits` are those of a value of `a` or `b`.
    """
    test = paired_test(a, b, seed=seed, limits=limits)
    return with_interval_note(
        Measure(test["difference"], test["low"], test["high"], len(a), test["p"], note)
    )


def on_common_keys(*values: Mapping[Key, float]) -> list[list[float]]:
    """The values of each at the keys that all of them have, in the order of the first."""
    keys = [key for key in next(iter(values), ()) if all(key in each for each in values)]
    return [[each[key] for key in keys] for each in values]


def with_interval_note(measure: Measure) -> Measure:
    """The measured value, with a note where its interval is not known."""
    return measure if measure.low is not None else noted(measure, NO_SPREAD)


def join(*notes: str) -> str:
    """Notes in one line, empty ones and repetitions left out."""
    return "; ".join(dict.fromkeys(filter(None, notes)))


def noted(measure: Measure, *notes: str) -> Measure:
    return replace(measure, note=join(measure.note, *notes))


def _stand_in(cell: Cell, prediction: Measure | None, models: set[str | None]) -> Cell:
    """The cell with what was predicted of it, where it was not measured; a reason that it was not
    stays.
    """
    if prediction is None or cell.measure.value is not None:
        return cell
    why = join(cell.measure.reason, cell.measure.note) if cell.paper_model in models else ""
    return replace(cell, measure=replace(prediction, note=join(prediction.note, why)))
