"""The questions of each data set, checked and in their final order."""


rule data:
    """Write a data set's questions."""
    input:
        file=PLAN.data.file,
        assets=PLAN.data.assets,
    output:
        PATHS.data,
    log:
        f"{PATHS.logs}/data/{{dataset}}.log",
    conda:
        ENVIRONMENT
    resources:
        mem_mb=grown(4000),
        runtime=60,
    params:
        config=PATHS.settings,
        settings=PLAN.data.settings,
        code=PLAN.data.code,
    shell:
        "ragauge fetch --config {params.config:q} --dataset {wildcards.dataset:q} --out {output:q} 2>&1 | tee {log:q}"
