"""The checked configuration and the helpers that the rules name. A wrong configuration ends here, in one line."""

import fcntl
import os
import re
import sys
from glob import glob
from pathlib import Path

import yaml

from ragauge import assets
from ragauge import datasets
from ragauge import registry
from ragauge.errors import UserError
from ragauge.experiment import schema
from ragauge.experiment.plan import Plan
from ragauge.io.digest import digest
from ragauge.training.settings import ENDPOINT
from snakemake.exceptions import WorkflowError


def retyped(data, given):
    """`data` with the values that the command line gave as what they are: nested in a key, Snakemake has them as text."""
    if isinstance(given, dict):
        return {key: retyped(value, given[key]) if key in given else value for key, value in data.items()}
    if isinstance(given, list):
        return [retyped(value, value) for value in given]
    return yaml.safe_load(given) if isinstance(given, str) else given


def checked(data):
    """The experiment, with its mistakes told in one line and no traceback."""
    try:
        for path in workflow.configfiles:
            schema.read(Path(path))  # for what the merged mapping does not show, such as a key that stands twice
        place = os.path.relpath(workflow.configfiles[-1]) if workflow.configfiles else "--config"
        experiment = schema.parse(retyped(data, workflow.config_settings.config or {}), place)
    except UserError as error:
        print(f"ragauge: error: {error}", file=sys.stderr, flush=True)
        os._exit(2)  # an exception would reach the user as a traceback through this file
    return experiment


EXPERIMENT = checked(config)
PLAN = Plan(EXPERIMENT)
RESULTS = f"results/{EXPERIMENT.run}"
REPORTS = f"reports/{EXPERIMENT.run}"
LOGS = f"logs/{EXPERIMENT.run}"
SETTINGS = f"{RESULTS}/config.yaml"
ON_GPU = any(model.device == "cuda" for model in EXPERIMENT.models.values())
ENVIRONMENT = f"../../envs/{'gpu' if ON_GPU else 'cpu'}.yaml"


wildcard_constraints:
    asset="[^/]+",
    dataset="[^/]+",
    model="[^/]+",
    training="[^/]+",
    variant="[^/]+",


def hold_folder():
    """Keep other runs out for as long as this process lives.

    Snakemake's own lock outlives a killed run, which must simply go on; so profiles/default has it off.
    """
    global FOLDER_LOCK
    FOLDER_LOCK = open(".snakemake/ragauge.lock", "w")
    try:
        fcntl.flock(FOLDER_LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise WorkflowError("another run of this workflow is at work in this folder; wait for it or stop it")


def write_settings():
    """The experiment with what the command line changed, for the commands to read.

    Not a rule's output: Snakemake does not look at the parameters of jobs below one that runs. The rules have what
    they use of it as parameters.
    """
    Path(SETTINGS).parent.mkdir(parents=True, exist_ok=True)
    Path(SETTINGS).write_text(yaml.safe_dump(EXPERIMENT.model_dump(exclude_none=True), sort_keys=False))


def code_of(*modules):
    """The digest of the modules behind a rule's command: an edit makes anew what rests on it, and nothing else."""
    return digest(*(f"ragauge.{module}" for module in modules))


# --- resources ---

# Of the run, or on a cluster, where the run has none, of the node that the job is on: it asks for a node ALONE, and
# Snakemake counts the cores there.
ALL_CORES = workflow.resource_settings.cores or 1
ALONE = "--exclusive"  # Slurm's option for it; a run on one machine keeps other jobs away by ALL_CORES


def grown(mem_mb):
    """Memory that grows with every attempt, where a profile has failed jobs tried again."""

    def of_attempt(wildcards, attempt):
        return attempt * mem_mb

    return of_attempt


# --- assets ---

ASSET_SOURCES = {}  # by the name of the manifest, as far as the experiment needs them


def manifest(source):
    """The manifest of an asset; a source's own characters that file names cannot bear become dashes."""
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in source)
    ASSET_SOURCES[name] = source
    return f"resources/assets/{name}.json"


def asset_source(wildcards):
    return ASSET_SOURCES[wildcards.asset]


def model_manifests(wildcards):
    """Of a model, and of the one that finds evidence for it."""
    model = EXPERIMENT.models[wildcards.model]
    both = [model, *([EXPERIMENT.models[model.finder]] if model.finder else [])]
    return [f"{MODELS}/{m.training}.json" if m.training else manifest(m.source) for m in both]


def model_settings(wildcards):
    """What the configuration says of a model, but for where it is used."""
    model = EXPERIMENT.models[wildcards.model]
    unset = {key for key in ("max_context", "finder") if getattr(model, key) is None}
    settings = model.model_dump(exclude={"training", "methods", "datasets", "resources"} | unset)
    finder = EXPERIMENT.models.get(model.finder)
    return settings | ({"finder": finder.model_dump(include={"source", "max_context"})} if finder else {})


def dataset_manifests(wildcards):
    """What a data set without a file of its own is made from."""
    entry = EXPERIMENT.datasets[wildcards.dataset]
    return [] if entry.data else [manifest(name) for name in dataset_kind(entry.dataset).assets]


def encoder_manifests(*names):
    """The text encoders of method variants."""
    variants = [EXPERIMENT.methods[name] for name in names]
    dense = [v for v in variants if v.method == "dense" or v.method == "chunks" and v.params.get("ranker") != "bm25"]
    return sorted({manifest(variant.params.get("encoder", "minilm")) for variant in dense})


# --- training ---

MODELS = f"{RESULTS}/models"
TRAINING = f"{RESULTS}/training/{{training}}"  # data and checkpoints
TRAINING_ENVIRONMENT = "../../envs/training.yaml"


def training_settings(wildcards):
    return EXPERIMENT.training[wildcards.training].model_dump()


def training_data_folder(wildcards):
    return f"{TRAINING}/data".format(**wildcards)


def training_data_settings(wildcards):
    return EXPERIMENT.training[wildcards.training].data().model_dump()


def training_base(wildcards):
    return manifest(EXPERIMENT.training[wildcards.training].model)


def training_corpora(wildcards):
    """The files that articles are read from, of catalogued corpora the manifests; the hub's are streams."""
    found = []
    for corpus in EXPERIMENT.training[wildcards.training].corpora:
        found += [manifest(corpus)] if corpus in assets.entries() else sorted(glob(corpus))
    return found


def training_writer(wildcards):
    """The model that writes questions, unless an endpoint does."""
    writer = EXPERIMENT.training[wildcards.training].writer
    return [] if writer == ENDPOINT else manifest(writer)


def training_evaluation(wildcards):
    """The questions that models of this training are asked: it must not see their documents."""
    return [f"{RESULTS}/data/{dataset}.jsonl" for dataset in EXPERIMENT.evaluation(wildcards.training)]


def training_limits(wildcards):
    """How many of them, a change of which changes what may be trained on."""
    return EXPERIMENT.evaluation(wildcards.training)


def training_gpus(wildcards):
    training = EXPERIMENT.training[wildcards.training]
    return training.processes if training.device == "cuda" else 0


def training_threads(wildcards):
    """All cores of a CPU; on GPUs a core a process feeds it."""
    training = EXPERIMENT.training[wildcards.training]
    return ALL_CORES if training.device == "cpu" else training.processes


def training_node(wildcards):
    """A whole machine for a CPU's training, which takes all of its cores."""
    return ALONE if EXPERIMENT.training[wildcards.training].device == "cpu" else ""


# --- data sets ---


def dataset_kind(name):
    return registry.component("dataset", name, datasets.Dataset)


def dataset_settings(wildcards):
    entry = EXPERIMENT.datasets[wildcards.dataset].model_dump(exclude={"limit", "max_new_tokens", "jobs"})
    return {**entry, "seed": EXPERIMENT.dataset_seed(wildcards.dataset)}


def dataset_code(wildcards):
    return code_of(
        "datasets._examples",
        f"datasets.{EXPERIMENT.datasets[wildcards.dataset].dataset}",
    )


def dataset_file(wildcards):
    """The official file that the configuration names, or the questions that the package ships for its own data set."""
    entry = EXPERIMENT.datasets[wildcards.dataset]
    shipped = Path(os.path.relpath(datasets.__file__)).parent / "questions" / f"{entry.dataset}.jsonl"
    return entry.data or ([str(shipped)] if shipped.is_file() else [])


# --- answers ---

ANSWERS = f"{RESULTS}/answers/{{dataset}}/{{model}}/{{variant}}"
answer_files = [ANSWERS.format(**job._asdict()) + ".jsonl" for job in EXPERIMENT.answers()]
PART = f"{RESULTS}/parts/{{dataset}}/{{model}}/{{variant}}/{{part}}-of-{{jobs}}"  # of the questions; counted from 0


def datasets_of(*, several_jobs):
    """The labels of the data sets whose questions are dealt to several jobs, or to one, as a wildcard's pattern."""
    labels = [label for label, entry in EXPERIMENT.datasets.items() if (entry.jobs > 1) == several_jobs]
    return "|".join(map(re.escape, labels)) or "(?!)"


def answer_parts(wildcards):
    jobs = EXPERIMENT.datasets[wildcards.dataset].jobs
    return [f"{PART}.jsonl".format(**wildcards, part=part, jobs=jobs) for part in range(jobs)]


def answer_part(wildcards):
    """The option that names a part; none where one job answers everything."""
    return f"--part {wildcards.part}/{wildcards.jobs}" if "part" in wildcards.keys() else ""


def answer_settings(wildcards):
    """Everything of the configuration that the records of a job depend on."""
    return {
        "model": model_settings(wildcards),
        "dataset": dataset_settings(wildcards),
        "variant": EXPERIMENT.methods[wildcards.variant].model_dump(exclude={"datasets", "limit"}),
        "limit": EXPERIMENT.limit(wildcards),
        "generation": {"max_new_tokens": EXPERIMENT.max_new_tokens(wildcards.dataset)},
    }


def job_gpus(wildcards):
    return EXPERIMENT.gpus(wildcards.model)


def job_mem_mb(wildcards, attempt):
    return attempt * EXPERIMENT.models[wildcards.model].resources.mem_mb


def job_runtime(wildcards):
    return EXPERIMENT.models[wildcards.model].resources.runtime


def answer_code(wildcards):
    return code_of("evaluation.inputs", "evaluation.runner", f"methods.{EXPERIMENT.methods[wildcards.variant].method}")


def answer_encoders(wildcards):
    return encoder_manifests(wildcards.variant)


# --- latency ---

LATENCY = f"{RESULTS}/latency/{{dataset}}/{{model}}.json"
latency_files = [LATENCY.format(dataset=dataset, model=model) for dataset, model in EXPERIMENT.timed()]


def latency_settings(wildcards):
    """Everything of the configuration that the times of a model on a data set depend on."""
    protocol = EXPERIMENT.protocol(wildcards.dataset)
    unused = {key for key in ("more_new_tokens", "documents") if protocol.model_dump()[key] in ([], "ready")}
    return {
        "model": model_settings(wildcards),
        "protocol": protocol.model_dump(exclude=unused),
        "variants": {
            name: EXPERIMENT.methods[name].model_dump(exclude={"datasets", "limit"}) for name in protocol.methods
        },
    }


def latency_encoders(wildcards):
    return encoder_manifests(*EXPERIMENT.protocol(wildcards.dataset).methods)


def latency_code(wildcards):
    timed = EXPERIMENT.protocol(wildcards.dataset).methods
    return code_of("evaluation.costing", *(f"methods.{EXPERIMENT.methods[name].method}" for name in timed))


# --- judgements ---

JUDGEMENTS = f"{RESULTS}/judgements/{{dataset}}/{{model}}/{{variant}}.jsonl"
judgement_files = [JUDGEMENTS.format(**job._asdict()) for job in EXPERIMENT.judged()]


def judge_manifest(wildcards):
    judge = EXPERIMENT.judge.model
    return [] if judge == ENDPOINT else manifest(judge)


def judge_options(wildcards):
    """The judge on this machine; nothing for the one behind the endpoint, which the environment describes."""
    judge = EXPERIMENT.judge
    local = f"--model {judge.model} --dtype {judge.dtype} --device {judge.device}"
    return "" if judge.model == ENDPOINT else local


def judge_gpus(wildcards):
    return int(EXPERIMENT.judge.device == "cuda" and EXPERIMENT.judge.model != ENDPOINT)


# --- items ---

ITEM_FILES = {"table": "csv", "figure": "svg", "pdf": "pdf", "png": "png", "latex": "tex", "markdown": "md"}
item_files = [f"{REPORTS}/{item}.{suffix}" for item in EXPERIMENT.item_names() for suffix in ITEM_FILES.values()]


def rendered(item):
    """The files of an item; the report shows the figure and the table."""
    files = {name: f"{REPORTS}/{item}.{suffix}" for name, suffix in ITEM_FILES.items()}
    shown = dict(caption="../report/item.rst", category=PLAN.paper(item), subcategory=item)
    return files | {name: report(files[name], labels={"file": name}, **shown) for name in ("table", "figure")}


# --- the page ---

PAGE = f"{REPORTS}/index.html"
PAGE_FOLDER = Path(os.path.relpath(datasets.__file__)).parent.parent / "report"
page_parts = sorted(str(path) for kind in ("html", "css", "js") for path in PAGE_FOLDER.glob(f"*.{kind}"))


def page_code():
    """Metrics and items are found by name."""
    return code_of("report._page", *(f"metrics.{name}" for name in registry.names("metric")))
