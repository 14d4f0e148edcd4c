"""Colours, markers, sizes and type of every figure: the one module that owns them.

Colours are those of Okabe and Ito (Color Universal Design, 2008), which stay apart under the common kinds of colour
blindness; markers and dashes repeat what the colours say, so that a figure survives a grey printer. Text is kept as
text in SVG and as TrueType in PDF, and nothing written depends on the time of day.
"""

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

Axes: TypeAlias = "matplotlib.axes.Axes"
Figure: TypeAlias = "matplotlib.figure.Figure"

COLUMN_IN = 3.35  # width of one column of a two-column paper
TEXT_IN = 6.9  # width of its text block
FONT_PT = 7.5
SMALL_PT = 6.2
MARKER_PT = 4.2
INK, MUTED, GRID, PUBLISHED_FACE = "#1A1A1A", "#6B6B6B", "#D9D9D9", "#F5F4F0"

RC = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],  # the first comes with matplotlib: same on every machine
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), FONT_PT),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), SMALL_PT + 0.3),
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), MUTED),
    **dict.fromkeys(("legend.frameon", "axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 2.5),
    "xtick.minor.width": 0.4,
    "xtick.minor.size": 1.5,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.1,
    "lines.markersize": MARKER_PT,
    "svg.fonttype": "none",
    "svg.hashsalt": "ragauge",
    **dict.fromkeys(("pdf.fonttype", "ps.fonttype"), 42),
    "savefig.dpi": 220,
    "figure.dpi": 110,
}

# method -> (label, colour, marker)
METHODS = {
    "naive": ("naive", "#1A1A1A", "o"),
    "top": ("retriever's order", "#B15928", "D"),
    "bm25": ("BM25", "#E69F00", "s"),
    "tfidf": ("TF-IDF", "#56B4E9", "^"),
    "contriever": ("Contriever", "#009E73", "D"),
    "dense": ("dense", "#005C42", "d"),
    "attention_sort": ("attention sort", "#CC79A7", "v"),
    "prompt_cache": ("prompt cache", "#0072B2", "P"),
    "superposition": ("superposition", "#D55E00", "*"),
    "parallel_windows": ("parallel windows", "#56B4E9", "s"),
    "ape": ("APE", "#004C6D", "D"),
    "naive_reuse": ("naive reuse", "#8C8C8C", "v"),
    "epic": ("EPIC", "#E69F00", "^"),
    "cache_blend": ("CacheBlend", "#A6761D", "P"),
    "prophet_kv": ("ProphetKV", "#882255", "d"),
    "cache_clip": ("CacheClip", "#CC6677", "<"),
    "prefix_scale_recompute": ("prefix, scale, recompute", "#E31A1C", "D"),
    "parallel_experts": ("PCED", "#009E73", "X"),
    "compressed": ("compressed", "#7A5195", "p"),
    "long_llmlingua": ("LongLLMLingua", "#66A61E", "h"),
    "sentence_pruning": ("sentence pruning", "#B2DF8A", "H"),
    "prefix_tree": ("prefix tree", "#1B4F72", "s"),
    "context_pilot": ("ContextPilot", "#6A3D9A", ">"),
    "kv_link": ("KVLink", "#B15928", "X"),
    "closed_book": ("closed book", "#8C8C8C", "X"),
    "oracle": ("gold documents alone", "#8C8C8C", "h"),
    "cfic": ("CFIC", "#AA3377", "*"),
    "free_extraction": ("free extraction", "#666633", "v"),
    "full_article": ("full article", "#1A1A1A", "o"),
    "bge": ("BGE", "#0072B2", "D"),
    "llm_embedder": ("LLM-Embedder", "#56B4E9", "^"),
    "minilm": ("MiniLM", "#009E73", "d"),
    "no_retrieval": ("no retrieval", "#1A1A1A", "X"),
    "retrieve_once": ("retrieve once", "#8C8C8C", "h"),
    "random": ("random neighbours", "#CC79A7", "v"),
    "retro": ("RETRO", "#0072B2", "s"),
    "retro_plus": ("RETRO+", "#E69F00", "^"),
    "piperag": ("PipeRAG", "#D55E00", "*"),
}
# What tables compare that is no method: the paper's choice has superposition's looks, differences are ink.
OPTIONS = {
    "equilibrium": METHODS["superposition"],
    "bayesian": METHODS["superposition"],
    "pruned": METHODS["superposition"],
    "left_aligned": ("left aligned", "#0072B2", "s"),
    "unpruned": ("unpruned", "#0072B2", "s"),
    "none": ("none", "#8C8C8C", "o"),
    "attention": ("attention", "#CC79A7", "v"),
    "query": ("query", "#E69F00", "s"),
    "without_prefix": ("without prefix", "#0072B2", "s"),
    "without_skip": ("without skip", "#E69F00", "^"),
    "without_both": ("without both", "#56B4E9", "v"),
    "without_sft": ("without SFT", "#009E73", "D"),
    "without_sft_free": ("without SFT, free extraction", "#A6761D", "D"),
    "first_token": ("first token only", "#CC79A7", "P"),
    "average_document_tokens": ("mean document", "#0072B2", "o"),
    "average_longest_document_tokens": ("longest document", "#D55E00", "s"),
    "average_left_align_gap_tokens": ("left-align gap", "#009E73", "^"),
}
_OTHER_COLOURS = ("#7A5195", "#A6761D", "#66A61E", "#1B4F72")
_SERIES = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"), ("#56B4E9", "P"))


def method_style(method: str) -> tuple[str, str, str]:
    """(label, colour, marker) of a method, an option or a difference "a − b"; `dense:minilm` has that encoder."""
    if " − " in method:
        return method.replace("_", " "), INK, "o"
    if method in OPTIONS:
        return OPTIONS[method]
    name, _, encoder = method.partition(":")
    if name not in METHODS:
        return method.replace("_", " "), _OTHER_COLOURS[sum(name.encode()) % len(_OTHER_COLOURS)], "p"
    label, colour, marker = METHODS[name]
    return (f"{label} ({encoder})" if encoder else label), colour, marker


def method_label(method: str) -> str:
    return method_style(method)[0]


def is_method(name: str) -> bool:
    """Whether a name is a method's that this module knows."""
    return method_order(name) < len(METHODS)


def method_order(name: str) -> int:
    """The place of a method in legends; others come last."""
    return [*METHODS, name.partition(":")[0]].index(name.partition(":")[0])


def marker_size(marker: str) -> float:
    """In points; stars are drawn larger to look as large as discs."""
    return 6.2 if marker == "*" else MARKER_PT


def series_style(index: int) -> tuple[str, str]:
    """(colour, marker) of the index-th line of a figure whose lines are not methods; the marker of a paper's model."""
    return _SERIES[index % len(_SERIES)]


def paler(colour: str, share: float) -> str:
    from matplotlib.colors import to_hex, to_rgb

    return str(to_hex([c + (1 - c) * share for c in to_rgb(colour)]))


@contextmanager
def theme() -> Iterator[None]:
    """The settings above, for as long as a figure is drawn or written; the caller's are restored."""
    import matplotlib as mpl

    with mpl.rc_context(RC):
        yield


def counted(count: Any, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def figure(width_in: float, height_in: float) -> Figure:
    """An empty figure with constrained layout, never shown on a screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(made)
    return made


def empty(message: str) -> Figure:
    """A placeholder that states why there is nothing to draw."""
    with theme():
        made = figure(COLUMN_IN, 1.4)
        axes = made.subplots()
        axes.set_axis_off()
        text = textwrap.fill(message, 52)
        axes.text(0.5, 0.5, text, ha="center", va="center", color=MUTED, transform=axes.transAxes)
        return made


def footer(made: Figure, text: str) -> None:
    """Small print along the lower edge; the figure grows by its lines, so that nothing above gets narrower."""
    width_in, height_in = made.get_size_inches()
    lines = textwrap.wrap(text, max(40, int(width_in * 23)))
    room_in = (len(lines) * SMALL_PT * 1.25 + 5) / 72
    made.set_size_inches(width_in, height_in + room_in)
    share = room_in / (height_in + room_in)
    engine = cast(Any, made.get_layout_engine())
    if engine is not None:
        engine.set(rect=(0.01, share, 0.98, 1 - share))  # long labels would touch the edge
    made.text(0.012, share * 0.86, "\n".join(lines), fontsize=SMALL_PT - 0.7, color=MUTED, va="top", linespacing=1.25)


def interval(ax: Axes, x: float, y: float, low: float, high: float, colour: str, vertical: bool = False) -> None:
    """An error bar without caps, below the points; none where the ends are not known."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return
    if vertical:
        ax.plot([x, x], [low, high], color=colour, lw=0.9, alpha=0.55, solid_capstyle="round", zorder=2)
    else:
        ax.plot([low, high], [y, y], color=colour, lw=1.6, alpha=0.45, solid_capstyle="round", zorder=2)


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")


def handle(label: str, colour: str, marker: str, line: bool = False, hollow: bool = False) -> Any:
    from matplotlib.lines import Line2D

    face, size = "white" if hollow else colour, marker_size(marker)
    return Line2D([], [], color=colour, marker=marker, mfc=face, ms=size, lw=1.1 if line else 0, label=label)


def legend(made: Figure, handles: Sequence[object], columns: int) -> None:
    if handles:
        columns = -(-len(handles) // -(-len(handles) // columns))  # rows of equal length
        spacing = {"handletextpad": 0.4, "columnspacing": 1.3}
        made.legend(handles=list(handles), loc="outside upper center", ncols=columns, **spacing)
