"""Windows, staleness and shift, as the paper's Figure 3 has them."""

import pytest

from ragauge.errors import UserError
from ragauge.pipelines.windows import Windows


@pytest.mark.parametrize("interval", [8, 16, 32, 64])
def test_pieces_cover_a_sequence_and_change_with_the_window(interval):
    windows = Windows(interval)
    pieces = list(windows.pieces(0, 300))
    places = [(place, window) for start, stop, window in pieces for place in range(start, stop)]
    assert places == [(place, windows.window_at(place)) for place in range(300)]
    assert [window for *_, window in pieces] == list(range(-1, len(pieces) - 1))


def test_the_last_token_of_a_query_is_the_first_to_attend_to_what_it_found():
    windows = Windows(16)
    for window in range(9):
        query = windows.query(window)
        assert (query.start, query.stop) == (16 * window, 16 * window + 64)
        assert windows.first(window) == query.stop - 1
        assert windows.part(window) == slice(0, 128)


def test_a_stale_neighbour_that_is_the_text_itself_continues_it():
    """Kept tokens of the query's own text begin where a fresh query's would."""
    text = list(range(1000))
    for interval in (8, 16, 32, 64):
        fresh = Windows(interval)
        stale = Windows(interval, stale=True)
        for window in range(5):
            start = stale.query(window).start
            fetched = text[start : start + 64 * (1 + stale.continuation)]
            begin = fresh.query(window).start
            assert fetched[stale.part(window)] == text[begin : begin + 128]


@pytest.mark.parametrize("interval", [0, -8, 7, 128])
def test_an_interval_divides_a_chunk(interval):
    with pytest.raises(UserError, match="known: 1, 2, 4, 8, 16, 32, 64"):
        Windows(interval)
