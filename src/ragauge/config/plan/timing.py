"""Jobs that measure times by the protocols of the sections `latency`, `load` and `stream`."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ragauge import registry
from ragauge.config.code import code_of
from ragauge.config.experiment import Config, Protocol
from ragauge.config.plan.answers import AnswerPlan
from ragauge.config.plan.part import Labels, PlanPart
from ragauge.config.protocols import TimedSection
from ragauge.cost.tokens import load


class TimingPlan(PlanPart):
    """Labels: dataset, model. The functions of a rule are made by the name of its protocol."""

    verbs: dict[Protocol, str] = {"latency": "time", "load": "load", "stream": "stream"}

    def __init__(self, config: Config, cores: int) -> None:
        super().__init__(config, cores)
        self._answers = AnswerPlan(config, cores)

    def files(self, protocol: Protocol) -> list[str]:
        pattern: str = getattr(self.paths, protocol)
        return [
            pattern.format(dataset=dataset, model=model)
            for dataset, model in self.config.measured(protocol)
        ]

    def machine(self, protocol: Protocol) -> list[str]:
        """The file of the machine's own rates, where a protocol needs them."""
        return [self.paths.machine] if protocol == "latency" else []

    def answers(self, protocol: Protocol) -> Callable[[Labels], list[str]]:
        """The records whose median length a protocol times."""

        def of_job(labels: Labels) -> list[str]:
            section = self._section(protocol, labels)
            is_median = getattr(section, "answer_tokens", None) == "median"
            timed = {(labels.dataset, labels.model, name) for name in section.methods}
            jobs = [job for job in self.config.answers() if is_median and tuple(job) in timed]
            return list(map(self.paths.records, jobs))

        return of_job

    def encoders(self, protocol: Protocol) -> Callable[[Labels], list[str]]:
        """The manifests of what the measured methods read besides the model."""
        return lambda labels: self._answers.assets(self._section(protocol, labels).methods)

    def settings(self, protocol: Protocol) -> Callable[[Labels], dict[str, Any]]:
        """Everything of the configuration that a measurement depends on."""

        def of_job(labels: Labels) -> dict[str, Any]:
            section = self._section(protocol, labels)
            variants = {name: self.config.methods[name] for name in section.methods}
            model = self.config.models[labels.model]
            counts = getattr(section, "tokens", None)
            finder = (
                model.finder
                and self.config.finds(section.methods)
                and self.config.models[model.finder]
            )
            return {
                "model": model.recorded(timed=True),
                "finder": finder and finder.recorded(timed=True),
                "counts": counts and asdict(load(counts)),  # which a file may change
                "protocol": section.recorded(timed=True),
                "variants": {
                    name: {"method": variant.method, **asdict(variant.instance)}
                    for name, variant in variants.items()
                },
                "seed": self.config.seed,
            }

        return of_job

    def code(self, protocol: Protocol) -> Callable[[Labels], str]:
        def of_job(labels: Labels) -> str:
            model = self.config.models[labels.model]
            methods = self._answers.modules(self._section(protocol, labels).methods)
            engine = registry.module_name("engine", model.engine)
            return code_of(
                f"measure.protocols.{'served' if model.served else protocol}",
                components=[*methods, engine],
            )

        return of_job

    def _section(self, protocol: Protocol, labels: Labels) -> TimedSection:
        sections = self.config.timed_sections
        return next(
            section
            for path, section in sections
            if path.startswith(protocol) and section.dataset == labels.dataset
        )
