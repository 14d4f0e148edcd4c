"""Generation with retrieval: a job a pipeline of the configuration, the server of its index started inside the job.

Jobs that generate are timed, so each has the machine to itself.
"""

from types import SimpleNamespace


rule retrofit:
    """Train a frozen decoder to read neighbours, for a given wall-clock time, alone on the machine."""
    input:
        database=PATHS.gathered,
        index=PATHS.merged,
        model=PLAN.pipelines.decoder,
    output:
        adapters=PATHS.adapters,
        curve=f"{PATHS.retrofit}/curve.jsonl",
    log:
        f"{PATHS.logs}/retrofit/{{database}}/{{index}}/{{model}}/{{mode}}/{{minutes}}.log",
    conda:
        ENVIRONMENT
    threads: PLAN.cores
    resources:
        gpu=PLAN.answers.gpus,
        mem_mb=grown(8000),
        runtime=720,
        slurm_extra=ALONE,
    params:
        options=PLAN.pipelines.retrofit_options,
        code=PLAN.pipelines.retrofit_code,
        database=filled(PATHS.database),
        folder=PATHS.retrofit,
    shell:
        "ragauge piperag retrofit {params.options:q} --database {params.database:q} --index {wildcards.index:q}"
        " --mode {wildcards.mode:q} --minutes {wildcards.minutes:q} --out {params.folder:q} 2>&1 | tee {log:q}"


rule export:
    """Write a decoder, or a mode's own model, as ONNX, once for all pipelines that ONNX Runtime runs with its weights."""
    input:
        PLAN.pipelines.export_inputs,
    output:
        directory(PATHS.export),
    log:
        f"{PATHS.logs}/onnx/{{export}}.log",
    wildcard_constraints:
        export=PLAN.pipelines.export_names(),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.pipelines.export_mb,
        runtime=60,
    params:
        options=PLAN.pipelines.export_options,
        code=PLAN.pipelines.export_code,
    shell:
        "ragauge piperag export {params.options:q} --out {output:q} 2>&1 | tee {log:q}"


rule pipeline:
    """Score or continue held-out text under one schedule of retrieval."""
    input:
        database=PLAN.index_path(PATHS.gathered),
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
        pipeline=PLAN.pipelines.label_pattern(job=False),
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
        specification=PLAN.pipelines.specification,
        options=PLAN.pipelines.options,
        folder=PLAN.index_path(PATHS.database),
        code=PLAN.pipelines.code,
    shell:
        "ragauge piperag run --config {params.config:q} --entry {wildcards.pipeline:q} --database {params.folder:q}"
        " {params.options:q} --out {output.records:q} 2>&1 | tee {log:q}"


for labels in PLAN.pipelines.interleaved():
    first, *_ = jobs = [SimpleNamespace(pipeline=label) for label in labels]

    rule:
        name:
            f"interleaved_{first.pipeline}"
        input:
            database=PLAN.index_path(PATHS.gathered)(first),
            index=[path for job in jobs if (path := PLAN.pipelines.index(job))],
            model=PLAN.pipelines.decoder(first),
            adapters=PLAN.pipelines.adapters(first),
            export=PLAN.pipelines.export(first),
        output:
            records=expand(f"{PATHS.pipeline}.jsonl", pipeline=labels),
            meta=expand(f"{PATHS.pipeline}.meta.json", pipeline=labels),
        log:
            f"{PATHS.logs}/pipelines/{first.pipeline}.log",
        conda:
            ENVIRONMENT
        threads: PLAN.cores
        resources:
            gpu=PLAN.pipelines.gpus(first),
            mem_mb=grown(PLAN.pipelines.mem_mb(first, 1)),
            runtime=PLAN.pipelines.runtime(first) * len(jobs),
            slurm_extra=ALONE,
        params:
            config=PATHS.settings,
            pipeline=first.pipeline,
            specification=[PLAN.pipelines.specification(job) for job in jobs],
            options=PLAN.pipelines.options(first),
            folder=PLAN.index_path(PATHS.database)(first),
            code=[PLAN.pipelines.code(job) for job in jobs],
        shell:
            "ragauge piperag run --config {params.config:q} --entry {params.pipeline:q} --database {params.folder:q}"
            " {params.options:q} --out {output.records[0]:q} 2>&1 | tee {log:q}"

    # What `snakemake --list-rules` shows.
    getattr(rules, f"interleaved_{first.pipeline}").rule.docstring = (
        "Time pipelines that differ in their schedule alone, in turns."
    )


rule staleness:
    """Compare the nearest chunks of stale and of fresh queries over held-out text."""
    input:
        index=PLAN.index_path(PATHS.merged),
        encoder=PLAN.asset("staleness/{staleness}/encoder"),
    output:
        PATHS.staleness,
    log:
        f"{PATHS.logs}/staleness/{{staleness}}.log",
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.retrieval.search_mb,
        runtime=PLAN.retrieval.staleness_runtime,
    params:
        config=PATHS.settings,
        settings=PLAN.entry("staleness/{staleness}"),
        folder=PLAN.index_path(PATHS.database),
        code=code_of("pipelines.retrieval.staleness"),
    shell:
        "ragauge piperag staleness --config {params.config:q} --entry {wildcards.staleness:q} --database {params.folder:q}"
        " --threads {threads} --out {output:q} 2>&1 | tee {log:q}"
