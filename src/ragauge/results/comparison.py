"""Files of sequence records compared: perplexities, and paired tests on the same sequences.

The control: on held-out text, retrieved neighbours must beat random ones by an interval that
excludes zero, as more text of the same kind can lower perplexity by itself.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from ragauge.cost import overlap
from ragauge.errors import UserError
from ragauge.io.jsonl import JsonObject
from ragauge.io.records import SequenceRecord, read_kind
from ragauge.results.pipelines import Likelihoods, load_share, mean_nll, traces
from ragauge.results.sequences import perplexity_of, shared_nll
from ragauge.results.stats import paired_test


def summary(path: Path) -> JsonObject:
    """Perplexity, pooled over tokens, or latency of a file of records; UserError where no sequence
    succeeded.
    """
    records = _records(path)
    scored = mean_nll(records)
    if not scored:
        return _latency(path, records)
    [nll] = shared_nll(scored)
    value, low, high = perplexity_of(nll)
    return {
        "perplexity": value,
        "low": low,
        "high": high,
        "nll": sum(nll) / len(nll),
        "sequences": len(nll),
        "scored": sum(tokens for *_, tokens in scored),
    }


def _latency(path: Path, generated: Sequence[SequenceRecord]) -> JsonObject:
    """Seconds of a sequence, and those of an ideal overlap: medians over sequences."""
    calls = traces(path, generated)
    seconds = [median(record.trials_s) for record in generated]
    ideal = [overlap.ideal_s(trace) for trace in calls]
    return {
        "seconds": median(seconds),
        "ideal_s": median(ideal),
        "over_ideal": median(s / i for s, i in zip(seconds, ideal, strict=True)),
        "waited_s": median(map(overlap.waited_s, calls)),
        "load_share": load_share(generated),
        "sequences": len(generated),
    }


def difference(path: Path, base: Path) -> JsonObject:
    """Paired difference of mean negative log-likelihood, `path` minus `base`, in nats a token, of
    shared sequences.
    """
    a, b = shared_nll(_likelihoods(path), _likelihoods(base))
    if not a:
        raise UserError(f"{path} and {base}: no sequence was scored in both")
    return paired_test(a, b)


def control(retrieved: Path, random: Path) -> JsonObject:
    """Whether retrieved neighbours beat random ones: the paired difference, and true where its
    interval is below 0.
    """
    compared = difference(retrieved, random)
    return {**compared, "passes": (compared["high"] or 0) < 0}


def _likelihoods(path: Path) -> Likelihoods:
    scored = mean_nll(_records(path))
    if not scored:
        raise UserError(
            f"{path}: holds generated text and no likelihoods; run it with --task perplexity"
        )
    return scored


def _records(path: Path) -> list[SequenceRecord]:
    answered = [record for record in read_kind(path, SequenceRecord) if record.status == "ok"]
    if not answered:
        raise UserError(f"{path}: no sequence succeeded")
    return answered
