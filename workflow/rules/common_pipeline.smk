"""Paths and parameters of generation with retrieval."""

PIPELINE = f"{RESULTS}/pipelines/{{pipeline}}"
pipeline_files = [f"{PIPELINE}.jsonl".format(pipeline=label) for label in EXPERIMENT.pipelines]
RETROFIT = f"{RESULTS}/retrofit/{{database}}/{{index}}/{{model}}/{{form}}/{{minutes}}"
EXPORT = f"{RESULTS}/onnx/{{model}}/{{weights}}"  # weights: untrained, or where and how long they were trained
EXPORT_RETRO = f"{RESULTS}/onnx/retro/{{database}}/{{checkpoint}}"  # checkpoint: random, or its file's name


wildcard_constraints:
    pipeline="[^/]+",
    form="joint|cross_attention",
    minutes=r"[\d.]+",
    weights=r"untrained|[^/]+/[^/]+/[\d.]+",
    checkpoint="[^/]+",


def pipeline_of(wildcards):
    return EXPERIMENT.pipelines[wildcards.pipeline]


def pipeline_folder(wildcards):
    return DATABASE.format(database=EXPERIMENT.pipeline_database(pipeline_of(wildcards)))


def pipeline_database(wildcards):
    return GATHERED.format(database=EXPERIMENT.pipeline_database(pipeline_of(wildcards)))


def pipeline_index(wildcards):
    """The index that is asked; nothing where none is."""
    entry = pipeline_of(wildcards)
    merged = f"{INDEX}/merged/manifest.json".format(database=EXPERIMENT.pipeline_database(entry), index=entry.index)
    return merged if entry.asks else []


def pipeline_decoder(wildcards):
    return manifest(EXPERIMENT.models[EXPERIMENT.pipeline_model(pipeline_of(wildcards))].source)


def pipeline_adapters(wildcards):
    """What neighbours are read with, where that was trained."""
    entry = pipeline_of(wildcards)
    if entry.adapters:
        return entry.adapters
    trained = f"{RETROFIT}/adapters.safetensors".format(
        database=EXPERIMENT.pipeline_database(entry),
        index=entry.index,
        model=EXPERIMENT.pipeline_model(entry),
        form=entry.form,
        minutes=entry.retrofit_minutes,
    )
    return trained if entry.retrofit_minutes else []


def pipeline_export(wildcards):
    """The decoder as ONNX, where that runs it."""
    entry = pipeline_of(wildcards)
    if entry.engine != "onnx":
        return []
    database = EXPERIMENT.pipeline_database(entry)
    if entry.form == "retro":
        return EXPORT_RETRO.format(database=database, checkpoint=checkpoint_of(entry))
    weights = f"{database}/{entry.index}/{entry.retrofit_minutes}" if entry.retrofit_minutes else "untrained"
    return EXPORT.format(model=EXPERIMENT.pipeline_model(entry), weights=weights)


def pipeline_code(wildcards):
    """A schedule is found by its name, so no import shows it."""
    schedule = registry.module_name("schedule", pipeline_of(wildcards).schedule)
    return code_of("verbs.pipeline", schedule.removeprefix("ragauge."))


def pipeline_options(wildcards):
    given = {"--adapters": pipeline_adapters(wildcards), "--onnx": pipeline_export(wildcards)}
    return " ".join(f"{option} {path}" for option, path in given.items() if path)


def checkpoint_of(entry):
    """What an export of RETRO's weights is called."""
    return Path(entry.weights).name if entry.weights else "random"


def retro_weights(wildcards):
    """The file that a checkpoint's name is of; nothing for random weights."""
    named = {checkpoint_of(entry): entry.weights for entry in EXPERIMENT.pipelines.values() if entry.form == "retro"}
    return named[wildcards.checkpoint] or []


def export_retro_options(wildcards):
    weights = retro_weights(wildcards)
    return f"--weights {weights}" if weights else f"--seed {EXPERIMENT.seed}"


def export_adapters(wildcards):
    """What `weights` names, trained in the one form that is exported."""
    if wildcards.weights == "untrained":
        return []
    database, index, minutes = wildcards.weights.split("/")
    trained = f"{RETROFIT}/adapters.safetensors"
    return trained.format(database=database, index=index, model=wildcards.model, form="joint", minutes=minutes)


def export_options(wildcards):
    adapters = export_adapters(wildcards)
    model = f"--model {EXPERIMENT.models[wildcards.model].source}"
    return f"{model} --adapters {adapters}" if adapters else model


def export_mb(wildcards, attempt):
    """Weights in float32 twice: as they are read, and as they are written."""
    return attempt * max(6000, EXPERIMENT.models[wildcards.model].resources.mem_mb)


def retrofit_folder(wildcards):
    return RETROFIT.format(**wildcards)


def retrofit_model(wildcards):
    return EXPERIMENT.models[wildcards.model]


def retrofit_decoder(wildcards):
    return manifest(retrofit_model(wildcards).source)


def retrofit_gpus(wildcards):
    return EXPERIMENT.gpus(wildcards.model)


def retrofit_options(wildcards):
    model = retrofit_model(wildcards)
    return f"--model {model.source} --device {model.device} --seed {EXPERIMENT.seed}"


def pipeline_threads(wildcards):
    """All for what is timed; a decoder that scores waits for the server, so that both share a core."""
    entry = pipeline_of(wildcards)
    return ALL_CORES if entry.task == "generate" else entry.threads or 1


def pipeline_node(wildcards):
    """A machine of its own for what is timed."""
    return ALONE if pipeline_of(wildcards).task == "generate" else ""


def pipeline_gpus(wildcards):
    return EXPERIMENT.gpus(EXPERIMENT.pipeline_model(pipeline_of(wildcards)))


def pipeline_resources(wildcards):
    return EXPERIMENT.models[EXPERIMENT.pipeline_model(pipeline_of(wildcards))].resources


def pipeline_mb(wildcards, attempt):
    return attempt * pipeline_resources(wildcards).mem_mb


def pipeline_runtime(wildcards):
    return pipeline_resources(wildcards).runtime


def pipeline_settings(wildcards):
    """Everything of the configuration that the records depend on, but for how many there are."""
    entry = pipeline_of(wildcards)
    model = EXPERIMENT.models[EXPERIMENT.pipeline_model(entry)]
    return {"pipeline": entry.model_dump(), "model": model.model_dump(), "seed": EXPERIMENT.seed}


# --- what stale queries find ---

STALENESS = f"{RESULTS}/staleness/{{staleness}}.json"
staleness_files = [STALENESS.format(staleness=label) for label in EXPERIMENT.staleness]


wildcard_constraints:
    staleness="[^/]+",


def staleness_of(wildcards):
    return EXPERIMENT.staleness[wildcards.staleness]


def staleness_folder(wildcards):
    return DATABASE.format(database=staleness_of(wildcards).database)


def staleness_index(wildcards):
    compared = staleness_of(wildcards)
    return f"{INDEX}/merged/manifest.json".format(database=compared.database, index=compared.index)


def staleness_encoder(wildcards):
    return manifest(staleness_of(wildcards).encoder)


def staleness_settings(wildcards):
    return staleness_of(wildcards).model_dump()
