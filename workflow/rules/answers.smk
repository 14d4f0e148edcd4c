"""The answers: one job a data set, model and method variant. A job that was cut off goes on where it was."""

ANSWERS = f"{RESULTS}/answers/{{dataset}}/{{model}}/{{variant}}"
answer_files = [
    ANSWERS.format(**job._asdict()) + ".jsonl" for job in EXPERIMENT.answers()
]


def answer_settings(wildcards):
    """Everything of the configuration that the records of a job depend on."""
    return {
        "model": EXPERIMENT.models[wildcards.model].model_dump(),
        "dataset": dataset_settings(wildcards),
        "variant": EXPERIMENT.methods[wildcards.variant].model_dump(
            exclude={"datasets", "limit"}
        ),
        "limit": EXPERIMENT.limit(wildcards),
        "generation": EXPERIMENT.generation.model_dump(),
    }


def answer_code(wildcards):
    return code_of("runner", f"methods.{EXPERIMENT.methods[wildcards.variant].method}")


def answer_encoders(wildcards):
    return encoder_manifests(wildcards.variant)


rule answers:
    """Answer a data set's questions with a model under a method variant."""
    input:
        settings=ancient(SETTINGS),
        examples=f"{RESULTS}/data/{{dataset}}.jsonl",
        model=model_manifest,
        encoders=answer_encoders,
    output:
        records=f"{ANSWERS}.jsonl",
        meta=f"{ANSWERS}.meta.json",
    log:
        f"{LOGS}/answers/{{dataset}}/{{model}}/{{variant}}.log",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=4000,
        runtime=720,
    params:
        settings=answer_settings,
        code=answer_code,
    shell:
        "ragauge run --config {input.settings} --method {wildcards.variant} --dataset {wildcards.dataset}"
        " --examples {input.examples} --model {wildcards.model} --threads {threads} --out {output.records}"
        " 2>&1 | tee {log}"
