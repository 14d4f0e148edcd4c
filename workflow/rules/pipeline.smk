"""Generation with retrieval: a job a pipeline of the configuration, the server of its index started inside the job.

Jobs that generate are timed, so each has the machine to itself.
"""


rule retrofit:
    """Train a frozen decoder to read neighbours, for a given wall-clock time, alone on the machine."""
    input:
        database=GATHERED,
        index=f"{INDEX}/merged/manifest.json",
        model=retrofit_decoder,
    output:
        adapters=f"{RETROFIT}/adapters.safetensors",
        curve=f"{RETROFIT}/curve.jsonl",
    log:
        f"{LOGS}/retrofit/{{database}}/{{index}}/{{model}}/{{form}}/{{minutes}}.log",
    conda:
        ENVIRONMENT
    threads: ALL_CORES
    resources:
        gpu=retrofit_gpus,
        mem_mb=grown(8000),
        runtime=720,
        slurm_extra=ALONE,
    params:
        options=retrofit_options,
        code=code_of("verbs.retrofit"),
        database=database_folder,
        index=index_folder,
        folder=retrofit_folder,
    shell:
        "ragauge retrofit {params.options} --database {params.database} --index {params.index}"
        " --form {wildcards.form} --minutes {wildcards.minutes} --out {params.folder} 2>&1 | tee {log}"


rule export:
    """Write a decoder as ONNX, once for all pipelines that ONNX Runtime runs with the same weights."""
    input:
        model=retrofit_decoder,
        adapters=export_adapters,
    output:
        directory(EXPORT),
    log:
        f"{LOGS}/onnx/{{model}}/{{weights}}.log",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=export_mb,
        runtime=60,
    params:
        options=export_options,
        code=code_of("verbs.export"),
    shell:
        "ragauge export {params.options} --out {output} 2>&1 | tee {log}"


rule export_retro:
    """Write RETRO and its encoder as ONNX, for the vocabulary of a database."""
    input:
        database=GATHERED,
        weights=retro_weights,
    output:
        directory(EXPORT_RETRO),
    log:
        f"{LOGS}/onnx/retro/{{database}}/{{checkpoint}}.log",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=grown(12000),
        runtime=60,
    params:
        options=export_retro_options,
        code=code_of("verbs.export"),
        database=database_folder,
    shell:
        "ragauge export --form retro {params.options} --database {params.database} --out {output} 2>&1 | tee {log}"


rule pipeline:
    """Score or continue held-out text under one schedule of retrieval."""
    input:
        database=pipeline_database,
        index=pipeline_index,
        model=pipeline_decoder,
        adapters=pipeline_adapters,
        export=pipeline_export,
    output:
        records=f"{PIPELINE}.jsonl",
        meta=f"{PIPELINE}.meta.json",
    log:
        f"{LOGS}/pipelines/{{pipeline}}.log",
    conda:
        ENVIRONMENT
    threads: pipeline_threads
    resources:
        gpu=pipeline_gpus,
        mem_mb=pipeline_mb,
        runtime=pipeline_runtime,
        slurm_extra=pipeline_node,
    params:
        config=SETTINGS,
        settings=pipeline_settings,
        options=pipeline_options,
        folder=pipeline_folder,
        code=pipeline_code,
    shell:
        "ragauge pipeline --config {params.config} --pipeline {wildcards.pipeline} --database {params.folder}"
        " {params.options} --out {output.records} 2>&1 | tee {log}"
