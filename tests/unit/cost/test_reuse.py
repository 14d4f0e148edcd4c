"""What keeping documents on disk costs and saves: the formulas by hand, and against counting question by question."""

from hypothesis import given
from hypothesis import strategies as st

from ragauge.results.reuse import Seconds, break_even_hit_rate, break_even_questions, break_even_reuses

HAND = Seconds(computing_s=4.0, saving_s=1.5, loading_s=0.5, online_s=1.0)
TIMES = st.integers(0, 40).map(lambda quarters: quarters / 4)
ANY = st.builds(Seconds, TIMES, TIMES, TIMES, TIMES)


def test_what_never_pays() -> None:
    slow = Seconds(computing_s=1.0, saving_s=0.1, loading_s=1.0, online_s=1.0)
    assert break_even_reuses(slow) is None
    assert break_even_questions(HAND, naive_s=1.5) is None
    assert break_even_hit_rate(HAND, naive_s=1.0) is None
    assert break_even_hit_rate(HAND, naive_s=9.0) == 0.0


@given(ANY)
def test_reuses_by_counting(seconds: Seconds) -> None:
    """With and without keeping, use by use."""
    result = break_even_reuses(seconds)
    kept = [seconds.computing_s + seconds.saving_s + n * seconds.loading_s for n in range(200)]
    anew = [(n + 1) * seconds.computing_s for n in range(200)]
    assert result == next((n for n in range(200) if kept[n] <= anew[n]), None)


@given(ANY, TIMES)
def test_questions_by_counting(seconds: Seconds, naive_s: float) -> None:
    result = break_even_questions(seconds, naive_s)
    first, again = seconds.latency_s(0), seconds.latency_s(1)
    paid = (n for n in range(1, 400) if first + (n - 1) * again <= n * naive_s)
    expected = next(paid, None)
    assert result == expected


@given(ANY, TIMES)
def test_the_hit_rate_is_where_the_line_crosses(seconds: Seconds, naive_s: float) -> None:
    rate = break_even_hit_rate(seconds, naive_s)
    if rate is None:
        assert min(seconds.latency_s(0), seconds.latency_s(1)) > naive_s
    else:
        assert seconds.latency_s(min(rate, 1.0)) <= naive_s + 1e-9
