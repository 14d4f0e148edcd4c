"""The questions of each data set, checked and in their final order."""


rule settings:
    """The experiment's effective configuration, command-line changes included."""
    output:
        SETTINGS,
    log:
        f"{LOGS}/settings.log",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=100,
        runtime=1,
    params:
        text=yaml.safe_dump(EXPERIMENT.model_dump(exclude_none=True), sort_keys=False),
    shell:
        "printf '%s' {params.text:q} > {output} 2> {log}"


rule data:
    """Write a data set's questions."""
    input:
        settings=ancient(SETTINGS),
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
        mem_mb=4000,
        runtime=60,
    params:
        settings=dataset_settings,
        code=dataset_code,
    shell:
        "ragauge data --config {input.settings} --dataset {wildcards.dataset} --out {output} 2>&1 | tee {log}"
