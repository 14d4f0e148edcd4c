"""Everything that an experiment fetches: assets, data sets and streams of the hub; what of it is
pinned; its lock.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from ragauge.assets import pins, resolver
from ragauge.assets.pins import Lock, Pin
from ragauge.config.experiment import Config
from ragauge.config.model import ModelEntry
from ragauge.config.plan.plan import Plan
from ragauge.datasets.base import loader
from ragauge.datasets.base.dataset import Dataset
from ragauge.engines import backend
from ragauge.engines.protocol import Limits
from ragauge.errors import UserError
from ragauge.io import progress
from ragauge.io.jsonl import read_object
from ragauge.methods.prompts.templates import wrapper
from ragauge.pipelines.database import hub
from ragauge.pipelines.database.corpus import streamed
from ragauge.training.settings import ENDPOINT

WORD = "Reply with the word: ready"  # the prompt that tests an endpoint before a run
NOT_PINNED = "not pinned by a hash or a commit: {}; to pin them: ragauge fetch --config FILE --lock"
REPLY_TOKENS = 64  # of an endpoint's first reply, in which some models think before they answer


def fetch(config: Config, *, lock: bool = False) -> Lock:
    """Fetch what is not here yet, and say what everything is. Streams of the hub are read when a
    database is built; here they only have their pins. `lock`: ask the hub which commits its data
    sets are, and fetch these.

    Raises:
        UserError: something cannot be fetched, or is not what the configuration or the lock in use
            says.
    """
    fetched = {source: resolver.fetch_pin(source) for source in Plan(config).assets}
    return Lock(
        assets={source: pin for source, pin in fetched.items() if pin},
        datasets={
            name: dataset.fetched(pin, lock) for name, (dataset, pin) in downloads(config).items()
        },
        corpora={source: hub.pinned(source, lock) for source in streams(config)},
    )


def downloads(config: Config) -> dict[str, tuple[Dataset, Pin]]:
    """The data sets that are downloaded, by name, with the pins that the configuration states."""
    downloaded = {}
    for entry in config.datasets.values():
        dataset = loader.make(entry.dataset, **entry.options)
        if entry.data is None and dataset.downloads():
            downloaded[entry.dataset] = (dataset, Pin(revision=entry.revision, sha256=entry.sha256))
    return downloaded


def streams(config: Config) -> list[str]:
    """The corpora that are read as streams of the hub."""
    trained_on = [source for training in config.training.values() for source in training.corpora]
    return sorted(set(streamed([*config.corpora(), *trained_on])))


def unpinned(config: Config) -> list[str]:
    """Return the sources that may change: those with neither a hash nor a commit in configuration,
    catalog or lock.

    Raises:
        UserError: the lock in use contradicts the configuration, or lacks something that nothing
            else pins.
    """
    sets = {
        name: pins.required_pin("datasets", name, pin)
        for name, (_, pin) in downloads(config).items()
    }
    corpora = {source: hub.pinned(source) for source in streams(config)}
    return [
        *(source for source in Plan(config).assets if not resolver.is_pinned(source)),
        *(f"data set {name}" for name, pin in sets.items() if not pin.is_exact),
        *(f"corpus {source}" for source, pin in corpora.items() if not pin.is_exact),
    ]


def check_start(plan: Plan, made: Collection[str], asks: bool = True) -> None:
    """Check what a run needs of others before hours are spent on it, and name what of it is not
    pinned.

    Args:
        made: the files that the run makes.
        asks: whether each endpoint is tested with a prompt; jobs on other machines may reach
            endpoints that this one does not.

    Raises:
        UserError: a line for each endpoint that is not named or does not answer, and each refused
            model or archive.
    """
    fetched = [source for path, source in plan.manifests.items() if path in made]
    problems = []
    checks = [partial(_check_endpoint, *endpoint, asks) for endpoint in _endpoints(plan, made)]
    answered = (job for job in plan.config.answers() if plan.paths.records(job) in made)
    models = {job.model: plan.config.models[job.model] for job in answered}
    checks += [partial(check_served, model, asks) for model in models.values() if model.served]
    for check in (*(partial(resolver.check_access, source) for source in fetched), *checks):
        try:
            check()
        except UserError as error:
            problems.append(str(error))
    if problems:
        raise UserError("\n".join(problems))
    unpinned = [source for source in fetched if not resolver.is_pinned(source)]
    if unpinned:
        progress.line(NOT_PINNED.format(", ".join(unpinned)))


def _endpoints(plan: Plan, made: Collection[str]) -> Iterator[tuple[str, str]]:
    """Prefix and purpose of the endpoints that the jobs behind these files ask."""
    config = plan.config
    data = f"{plan.paths.training}/data/train.jsonl"
    if any(
        training.writer == ENDPOINT and data.format(training=label) in made
        for label, training in config.training.items()
    ):
        yield "RAGAUGE_WRITER", "writes the questions"
    judged = {plan.paths.judgements.format(**job._asdict()) for job in config.judged()}
    if config.judge and config.judge.model == ENDPOINT and judged & set(made):
        yield "RAGAUGE_JUDGE", "judges, unless judge.model names a local judge"


def _check_endpoint(prefix: str, purpose: str, asks: bool) -> None:
    from ragauge.methods.evidence.chat import Endpoint

    endpoint = replace(Endpoint.from_environment(prefix, purpose), attempts=2)
    if asks:
        endpoint.complete([{"role": "user", "content": WORD}], REPLY_TOKENS)


def check_served(model: ModelEntry, asks: bool = True) -> None:
    """Raise UserError if a served model does not answer a word."""
    assert model.served is not None
    served = {**model.served.engine_options, "tokenizer": None, "attempts": 2}
    engine = backend.load(model.source, model.engine, served=served)
    if asks:
        opening, task = wrapper(model.template or "chat", engine.tokenizer)
        engine.respond(f"{opening}{WORD}{task}", Limits(REPLY_TOKENS))


def check_fetched(plan: Plan) -> None:
    """Raise UserError if an asset that this folder has a manifest of is not what the lock in use
    says.
    """
    for path, source in plan.manifests.items():
        locked = pins.locked_pin("assets", source)
        if locked and Path(path).is_file():
            there = pins.validated(Pin, read_object(Path(path)).get("pin") or {}, f"{path}: pin")
            trouble = locked.conflict(there)
            if trouble:
                raise UserError(
                    f"{path}: the lock has {trouble}; to fetch it again, remove this file"
                )
