"""Every table and figure: a rule each, named after its file below src/ragauge/items and rendered from records alone."""


rule provenance:
    """The settings, data, code and machine behind everything in the report."""
    input:
        answers=answer_files,
        latency=latency_files,
        pipelines=pipeline_files,
    output:
        f"{REPORTS}/provenance.json",
    log:
        f"{LOGS}/items/provenance.log",
    localrule: True
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=grown(2000),
        runtime=10,
    params:
        config=SETTINGS,
        code=code_of("results.provenance"),
    shell:
        "ragauge provenance --run-config {params.config} 2>&1 | tee {log}"


for item in registry.names("item"):

    rule:
        name:
            item
        input:
            **PLAN.item_inputs(item),
        output:
            **rendered(item),
        log:
            f"{LOGS}/items/{item}.log",
        localrule: True
        conda:
            ENVIRONMENT
        threads: 1
        resources:
            mem_mb=grown(2000),
            runtime=10,
        params:
            item=item,
            about=PLAN.about(item),
            code=PLAN.item_code(item),
            config=SETTINGS,
            experiment=EXPERIMENT.model_dump(),
        shell:
            "ragauge render {params.item} --run-config {params.config} 2>&1 | tee {log}"

    workflow.get_rule(item).docstring = PLAN.title(item)  # what `snakemake --list-rules` shows
