"""What keeping documents on disk costs and saves: the formulas against counting question by
question.
"""

from hypothesis import given
from hypothesis import strategies as st

from ragauge.results.reuse import (
    Seconds,
    break_even_hit_rate,
    break_even_questions,
    break_even_reuses,
)

TIMES = st.integers(0, 40).map(lambda quarters: quarters / 4)
ANY = st.builds(Seconds, TIMES, TIMES, TIMES, TIMES)


@given(ANY)
def test_reuses_by_counting(seconds):
    """With and without keeping, use by use."""
    result = break_even_reuses(seconds)
    kept = [seconds.computing_s + seconds.saving_s + n * seconds.loading_s for n in range(200)]
    anew = [(n + 1) * seconds.computing_s for n in range(200)]
    assert result == next((n for n in range(200) if kept[n] <= anew[n]), None)


@given(ANY, TIMES)
def test_questions_by_counting(seconds, naive_s):
    result = break_even_questions(seconds, naive_s)
    first = seconds.latency_s(0)
    again = seconds.latency_s(1)
    paid = (n for n in range(1, 400) if first + (n - 1) * again <= n * naive_s)
    expected = next(paid, None)
    assert result == expected


@given(ANY, TIMES)
def test_the_hit_rate_is_where_the_line_crosses(seconds, naive_s):
    rate = break_even_hit_rate(seconds, naive_s)
    if rate is None:
        assert min(seconds.latency_s(0), seconds.latency_s(1)) > naive_s
    else:
        assert seconds.latency_s(min(rate, 1.0)) <= naive_s + 1e-9
        assert rate == 0 or seconds.latency_s(0.99 * rate) > naive_s, "the smallest"
