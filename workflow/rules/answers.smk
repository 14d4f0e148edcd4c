"""The answers: one job a data set, model and method variant. A job that was cut off goes on where it was."""


rule answers:
    """Answer a data set's questions with a model under a method variant."""
    input:
        examples=f"{RESULTS}/data/{{dataset}}.jsonl",
        model=model_manifest,
        encoders=answer_encoders,
    output:
        records=update(f"{ANSWERS}.jsonl"),  # what is there and still valid is not asked again
        meta=update(f"{ANSWERS}.meta.json"),
    log:
        f"{LOGS}/answers/{{dataset}}/{{model}}/{{variant}}.log",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        gpu=job_gpus,
        mem_mb=job_mem_mb,
        runtime=job_runtime,
    params:
        config=SETTINGS,
        settings=answer_settings,
        code=answer_code,
        documents=f"{RESULTS}/documents",
    shell:
        "ragauge run --config {params.config} --method {wildcards.variant} --dataset {wildcards.dataset}"
        " --examples {input.examples} --model {wildcards.model} --threads {threads}"
        " --documents {params.documents} --overwrite --out {output.records}"
        " 2>&1 | tee {log}"
