"""Jobs in which a language model judges evidence or answers."""

from __future__ import annotations

from collections.abc import Iterator

from ragauge.config.plan.part import Labels, PlanPart, manifest
from ragauge.config.schema import JudgeSettings
from ragauge.training.settings import ENDPOINT


class JudgementPlan(PlanPart):
    """Labels: dataset, model, variant."""

    def sources(self) -> Iterator[str]:
        """The assets that these jobs read."""
        if self._local:
            yield self._local.model

    def judge(self, labels: Labels) -> list[str]:
        """The manifest of a judge on this machine."""
        return [manifest(source) for source in self.sources()]

    def examples(self, labels: Labels) -> list[str]:
        """The questions with their passages, where answers are judged by them."""
        judge = self.config.judge
        by_passages = judge is not None and judge.of == "answers"
        return [self.paths.data.format(dataset=labels.dataset)] if by_passages else []

    def options(self, labels: Labels) -> list[str]:
        """What is judged, of how many questions, by which judge here; the environment describes an endpoint."""
        judge, local = self.config.judge, self._local
        limit = [f"--limit={judge.limit}"] if judge and judge.limit else []
        answers = [option for path in self.examples(labels) for option in ("--of=answers", f"--examples={path}")]
        here = [f"--model={local.model}", f"--dtype={local.dtype}", f"--device={local.device}"] if local else []
        return limit + answers + here

    def gpus(self, labels: Labels) -> int:
        return int(self._local is not None and self._local.device == "cuda")

    @property
    def _local(self) -> JudgeSettings | None:
        """The judge, if it is a model on this machine."""
        judge = self.config.judge
        return judge if judge and judge.model != ENDPOINT else None
