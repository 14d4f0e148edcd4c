"""Methods on the questions of a data set, recorded as `ragauge run` records them."""

import re
import tempfile
from collections.abc import Iterable, Mapping
from copy import copy
from pathlib import Path

from ragauge.errors import UserError, explain_missing_extra
from ragauge.io.records import partial_path
from ragauge.io.sections import LABEL
from ragauge.library.methods import Method, answer_tokens, method
from ragauge.library.models import Model, load_model
from ragauge.library.questions import Dataset, load_dataset
from ragauge.library.results import Results
from ragauge.measure import inputs, runner
from ragauge.measure.concurrency import BatchSize

Methods = Mapping[str, "str | Method"] | Iterable["str | Method"] | str | Method


@explain_missing_extra()
def evaluate(
    methods: Methods,
    dataset: str | Dataset,
    model: str | Path | Model,
    *,
    limit: int | None = None,
    out: str | Path | None = None,
    max_new_tokens: int | None = None,
    batch: BatchSize = 1,
    overwrite: bool = False,
    retry_failed: bool = False,
) -> Results:
    """Answer the questions of a data set with several methods, and record every answer.

    Args:
        methods: names or `method(...)`; a mapping names the variants, as a configuration does.
        dataset: a name, or what `load_dataset` gave.
        model: a name, source or folder, or what `load_model` gave.
        limit: how many questions, from the first; None: all that were loaded.
        out: a folder, as the workflow's `results/<run>`: records go to
            `answers/DATASET/MODEL/VARIANT.jsonl` in it. Questions with records are not asked again,
            so an interrupted evaluation goes on, and further data sets and models join it. None: a
            temporary folder that goes with the results.
        max_new_tokens: of an answer, at least 1; None: the data set's, or 100.
        batch: questions answered together, which then have no times of their own; auto: as many as
            are worth it.
        overwrite: replace records of other settings; they are refused otherwise.
        retry_failed: ask again what is recorded as failed.

    Raises:
        UserError: an unknown name, a model that cannot run a method, a folder that cannot be
            written or holds records of other settings. A question that fails is recorded with the
            reason and raises nothing.
    """
    if limit is not None and limit < 1:
        raise UserError(f"evaluate: limit must be at least 1, not {limit}")
    variants = _variants(methods)
    questions = load_dataset(dataset, limit=limit) if isinstance(dataset, str) else dataset
    tokens = answer_tokens("evaluate", max_new_tokens, questions.source.dataset)
    loaded = model if isinstance(model, Model) else load_model(model)
    results = Results(
        Path(tempfile.mkdtemp(prefix="ragauge-") if out is None else out), temporary=out is None
    )
    jobs = []
    for label, variant in variants.items():
        adapted = variant.on(loaded)
        specification = inputs.specification(adapted, questions.source, loaded.settings, tokens)
        loaded.engines.ready(specification, adapted)  # refused before any other method has answered
        path = results.folder / "answers" / questions.name / loaded.name / f"{label}.jsonl"
        jobs.append(runner.Job(specification, adapted, questions[:limit], label, path))
    engines = copy(loaded.engines)  # the same models, another batch size
    engines.batch = batch
    for job in jobs:
        again = retry_failed and (job.out.exists() or partial_path(job.out).exists())
        runner.run(job, engines, overwrite=overwrite, retry_failed=again)
    return results


def _variants(methods: Methods) -> dict[str, Method]:
    variants = {}
    if isinstance(methods, str | Method):
        methods = [methods]
    labelled = methods.items() if isinstance(methods, Mapping) else ((None, m) for m in methods)
    for label, given in labelled:
        variant = given if isinstance(given, Method) else method(given)
        label = label or variant.name
        if not re.fullmatch(LABEL, label):
            raise UserError(
                f"evaluate: methods: {label!r} must be made of letters, digits, '.', '_' and '-'"
            )
        if label in variants:
            raise UserError(
                f"evaluate: methods: {label!r} twice; name the variants, as in "
                f"{{'{label}_k2': method('{label}', ...)}}"
            )
        variants[label] = variant
    if not variants:
        raise UserError(
            "evaluate: methods: none are given; name at least one of `ragauge list methods`"
        )
    return variants
