"""Where a run's files lie. In braces stand labels: the rules' wildcards."""

from __future__ import annotations


class Paths:
    """The files and folders of a run, as patterns below the folder that Snakemake works in."""

    def __init__(self, run: str) -> None:
        self.results = results = f"results/{run}"
        self.reports = reports = f"reports/{run}"
        self.logs = f"logs/{run}"
        self.settings = f"{results}/config.yaml"
        self.machine = f"{results}/machine.json"
        self.predictions = f"{results}/predictions.json"
        self.provenance = f"{reports}/provenance.json"
        self.page = f"{reports}/index.html"

        self.data = f"{results}/data/{{dataset}}.jsonl"
        self.documents = f"{results}/documents"  # stored keys and values
        self.answers = f"{results}/answers/{{dataset}}/{{model}}/{{variant}}"  # records and .meta.json
        self.part = f"{results}/parts/{{dataset}}/{{model}}/{{variant}}/{{part}}-of-{{jobs}}"  # counted from 0
        self.latency = f"{results}/latency/{{dataset}}/{{model}}.json"
        self.load = f"{results}/load/{{dataset}}/{{model}}.json"
        self.stream = f"{results}/stream/{{dataset}}/{{model}}.json"
        self.judgements = f"{results}/judgements/{{dataset}}/{{model}}/{{variant}}.jsonl"

        self.training = f"{results}/training/{{training}}"  # data and checkpoints
        self.trained = f"{results}/models/{{training}}"

        self.database = f"{results}/databases/{{database}}"
        self.shard = f"{self.database}/shards/{{shard}}/manifest.json"
        self.cut = f"{self.database}/shards/cut"  # stands once all shards do
        self.evaluation_set = f"{self.database}/evaluation/{{evaluation}}/manifest.json"
        self.marked = f"{self.database}/near_duplicates/{{shard}}/manifest.json"
        self.embeddings = f"{self.database}/embeddings/{{shard}}/manifest.json"
        self.gathered = f"{self.database}/database/manifest.json"
        self.index = f"{self.database}/indexes/{{index}}"
        self.codes = f"{self.index}/shards/{{shard}}/manifest.json"
        self.merged = f"{self.index}/merged/manifest.json"
        self.recall = f"{self.index}/recall.json"
        self.database_logs = f"{self.logs}/databases/{{database}}"
        self.staleness = f"{results}/staleness/{{staleness}}.json"

        self.retrofit = f"{results}/retrofit/{{database}}/{{index}}/{{model}}/{{mode}}/{{minutes}}"
        self.adapters = f"{self.retrofit}/adapters.safetensors"
        self.export = f"{results}/onnx/{{export}}"
        self.pipeline = f"{results}/pipelines/{{pipeline}}"  # records and .meta.json
        # Where a server is a job of its own: who asks it, where, and what it and they wait for.
        self.served = f"{results}/served/{{pipeline}}"  # records and .meta.json, until the server has ended
        self.server = f"{results}/servers/{{database}}/{{index}}"
        self.server_needs = f"{self.server}/needs"  # stands once all is made that its pipelines read
        self.server_clients = f"{self.server}/clients"  # the files that it is needed for, one a line
        self.server_address = f"{self.server}/address"
        self.server_ended = f"{self.server}/ended"
