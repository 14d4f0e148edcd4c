"""The questions of each data set, checked and in their final order."""

from ragauge import datasets


def dataset_kind(name):
    return registry.component("dataset", name, datasets.Dataset)


def dataset_settings(wildcards):
    entry = EXPERIMENT.datasets[wildcards.dataset].model_dump(exclude={"limit"})
    return {**entry, "seed": EXPERIMENT.dataset_seed(wildcards.dataset)}


def dataset_code(wildcards):
    return code_of(
        "datasets._examples",
        f"datasets.{EXPERIMENT.datasets[wildcards.dataset].dataset}",
    )


def dataset_file(wildcards):
    """The data set's official file where the configuration names one."""
    data = EXPERIMENT.datasets[wildcards.dataset].data
    return [data] if data else []


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
