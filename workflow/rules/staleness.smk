"""What stale queries find beside what fresh ones find, for PipeRAG's Table 2."""


rule staleness:
    """Compare the nearest chunks of stale and of fresh queries over held-out text."""
    input:
        index=PLAN.retrieval.staleness(PATHS.merged),
        encoder=PLAN.asset("staleness/{staleness}/encoder"),
    output:
        PATHS.staleness,
    log:
        f"{PATHS.logs}/staleness/{{staleness}}.log",
    conda:
        ENVIRONMENT
    resources:
        mem_mb=grown(4000),
        runtime=60,
    params:
        config=PATHS.settings,
        settings=PLAN.entry("staleness/{staleness}"),
        folder=PLAN.retrieval.staleness(PATHS.database),
        code=code_of("cli._piperag_staleness"),
    shell:
        "ragauge piperag staleness --config {params.config:q} --entry {wildcards.staleness:q} --database {params.folder:q}"
        " --threads {threads} --out {output:q} 2>&1 | tee {log:q}"
