"""Windows, staleness and shift, as the paper's Figure 3 has them."""

from ragauge.pipelines.windows import Windows


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
