"""The questions of each data set, checked and in their final order."""


rule data:
    """Write a data set's questions."""
    input:
        file=dataset_file,
        assets=dataset_manifests,
    output:
        f"{RESULTS}/data/{{dataset}}.jsonl",
    log:
        f"{LOGS}/data/{{dataset}}.log",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=grown(4000),
        runtime=60,
    params:
        config=SETTINGS,
        settings=dataset_settings,
        code=dataset_code,
    shell:
        "ragauge data --config {params.config} --dataset {wildcards.dataset} --out {output} 2>&1 | tee {log}"
