"""Generation with retrieval: a job a pipeline of the configuration, the server of its index started inside the job.

Jobs that generate are timed, so each has the machine to itself.
"""


rule retrofit:
    """Train a frozen decoder to read neighbours, for a given wall-clock time, alone on the machine."""
    input:
        database=PATHS.gathered,
        index=PATHS.merged,
        model=PLAN.pipelines.retrofit_decoder,
    output:
        adapters=PATHS.adapters,
        curve=f"{PATHS.retrofit}/curve.jsonl",
    log:
        f"{PATHS.logs}/retrofit/{{database}}/{{index}}/{{model}}/{{form}}/{{minutes}}.log",
    conda:
        ENVIRONMENT
    threads: PLAN.cores
    resources:
        gpu=PLAN.pipelines.retrofit_gpus,
        mem_mb=grown(8000),
        runtime=720,
        slurm_extra=ALONE,
    params:
        options=PLAN.pipelines.retrofit_options,
        code=PLAN.pipelines.retrofit_code,
        database=PLAN.retrieval.folder,
        folder=PLAN.pipelines.retrofit_folder,
    shell:
        "ragauge retrofit {params.options:q} --database {params.database:q} --index {wildcards.index:q}"
        " --form {wildcards.form:q} --minutes {wildcards.minutes:q} --out {params.folder:q} 2>&1 | tee {log:q}"


rule export:
    """Write a decoder as ONNX, once for all pipelines that ONNX Runtime runs with the same weights."""
    input:
        model=PLAN.pipelines.retrofit_decoder,
        adapters=PLAN.pipelines.export_adapters,
    output:
        directory(PATHS.export),
    log:
        f"{PATHS.logs}/onnx/{{form}}/{{model}}/{{weights}}.log",
    wildcard_constraints:
        form=PLAN.pipelines.forms(own_model=False),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.pipelines.export_mb,
        runtime=60,
    params:
        options=PLAN.pipelines.export_options,
        code=PLAN.pipelines.export_code,
    shell:
        "ragauge export --form {wildcards.form:q} {params.options:q} --out {output:q} 2>&1 | tee {log:q}"


rule export_own_model:
    """Write the model that a form of reading neighbours has of its own as ONNX, for the vocabulary of a database."""
    input:
        database=PATHS.gathered,
        weights=PLAN.pipelines.own_weights,
    output:
        directory(PATHS.export_own),
    log:
        f"{PATHS.logs}/onnx/{{form}}/{{database}}/{{checkpoint}}.log",
    wildcard_constraints:
        form=PLAN.pipelines.forms(own_model=True),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=grown(12000),
        runtime=60,
    params:
        options=PLAN.pipelines.export_own_options,
        code=PLAN.pipelines.export_code,
        database=PLAN.retrieval.folder,
    shell:
        "ragauge export --form {wildcards.form:q} {params.options:q} --database {params.database:q} --out {output:q}"
        " 2>&1 | tee {log:q}"


rule pipeline:
    """Score or continue held-out text under one schedule of retrieval."""
    input:
        database=PLAN.pipelines.database,
        index=PLAN.pipelines.index,
        model=PLAN.pipelines.decoder,
        adapters=PLAN.pipelines.adapters,
        export=PLAN.pipelines.export,
    output:
        records=f"{PATHS.pipeline}.jsonl",
        meta=f"{PATHS.pipeline}.meta.json",
    log:
        f"{PATHS.logs}/pipelines/{{pipeline}}.log",
    wildcard_constraints:
        pipeline=PLAN.pipelines.labels(job=False),
    conda:
        ENVIRONMENT
    threads: PLAN.pipelines.threads
    resources:
        gpu=PLAN.pipelines.gpus,
        mem_mb=PLAN.pipelines.mem_mb,
        runtime=PLAN.pipelines.runtime,
        slurm_extra=PLAN.pipelines.node,
    params:
        config=PATHS.settings,
        settings=PLAN.pipelines.settings,
        options=PLAN.pipelines.options,
        folder=PLAN.pipelines.folder,
        code=PLAN.pipelines.code,
    shell:
        "ragauge pipeline --config {params.config:q} --entry {wildcards.pipeline:q} --database {params.folder:q}"
        " {params.options:q} --out {output.records:q} 2>&1 | tee {log:q}"
