"""The answers: one job a data set, model and method variant. A job that was cut off goes on where it was."""


rule answers:
    """Answer a data set's questions with a model under a method variant."""
    input:
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
        config=SETTINGS,
        settings=answer_settings,
        code=answer_code,
        documents=f"{RESULTS}/documents",
    shell:
        "ragauge run --config {params.config} --method {wildcards.variant} --dataset {wildcards.dataset}"
        " --examples {input.examples} --model {wildcards.model} --threads {threads}"
        " --documents {params.documents} --out {output.records}"
        " 2>&1 | tee {log}"
