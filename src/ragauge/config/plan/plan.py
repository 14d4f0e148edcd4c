"""The plan of an experiment: its jobs, their inputs, what their results depend on, and their
resources.

The rules of the workflow (workflow/rules) query it and only state which command makes what.
"""

from functools import cached_property

from ragauge.assets import resolver
from ragauge.config.experiment import Config
from ragauge.config.plan.answers import AnswerPlan, DataPlan, JudgementPlan
from ragauge.config.plan.contents import contents
from ragauge.config.plan.items import ItemPlan
from ragauge.config.plan.part import ASSET, Labels, PlanPart, manifest
from ragauge.config.plan.pipelines import PipelinePlan
from ragauge.config.plan.retrieval import RetrievalPlan
from ragauge.config.plan.servers import ServerPlan
from ragauge.config.plan.timing import TimingPlan
from ragauge.config.plan.training import TrainingPlan


class Plan(PlanPart):
    """An experiment's jobs on a machine, or on the nodes of a cluster, with a number of cores."""

    def __init__(self, config: Config, cores: int = 1) -> None:
        super().__init__(config, cores)
        self.data = DataPlan(config, cores)
        self.answers = AnswerPlan(config, cores)
        self.timing = TimingPlan(config, cores)
        self.judgements = JudgementPlan(config, cores)
        self.training = TrainingPlan(config, cores)
        self.retrieval = RetrievalPlan(config, cores)
        self.pipelines = PipelinePlan(config, cores)
        self.servers = ServerPlan(config, cores)
        self.items = ItemPlan(config, cores)

    @property
    def on_gpu(self) -> bool:
        """Whether a decoder runs on a GPU."""
        return any(model.device == "cuda" for model in self.config.models.values())

    def asset_entry(self, labels: Labels) -> dict[str, object]:
        """The catalog's entry of an asset: a change of it makes the manifest again."""
        return resolver.catalogued(self.asset_source(labels))

    def asset_source(self, labels: Labels) -> str:
        return self.manifests[ASSET.format(asset=labels.asset)]

    def asset_files(self, labels: Labels) -> list[str]:
        """The files of an asset on this machine's disks, which may be written anew."""
        return resolver.local_files(self.asset_source(labels))

    def asset_contents(self, labels: Labels) -> list[str]:
        """The hashes of these files."""
        return contents(self.asset_files(labels))

    @property
    def assets(self) -> list[str]:
        """The source of every asset: a name of the catalog, or a source."""
        return sorted(self.manifests.values())

    @cached_property
    def manifests(self) -> dict[str, str]:
        parts = (self.data, self.answers, self.judgements, self.training, self.retrieval)
        return {manifest(source): source for part in parts for source in part.sources()}
