"""Every table and figure: a rule each, named after its file below src/ragauge/items and rendered from records alone."""


rule provenance:
    """The settings, data, code and machine behind everything in the report."""
    input:
        answers=PLAN.answers.files(),
        latency=PLAN.timing.files("latency"),
        load=PLAN.timing.files("load"),
        stream=PLAN.timing.files("stream"),
        pipelines=PLAN.pipelines.files(),
    output:
        PATHS.provenance,
    log:
        f"{PATHS.logs}/items/provenance.log",
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=grown(2000),
        runtime=10,
    params:
        config=PATHS.settings,
        code=code_of("results.provenance"),
    shell:
        "ragauge report provenance --config {params.config:q} 2>&1 | tee {log:q}"


for item in PLAN.items.names():

    rule:
        name:
            item
        input:
            **PLAN.items.inputs(item),
        output:
            **rendered(item),
        log:
            f"{PATHS.logs}/items/{item}.log",
        localrule: True
        conda:
            ENVIRONMENT
        resources:
            mem_mb=grown(2000),
            runtime=10,
        params:
            item=item,
            about=PLAN.items.about(item),
            code=PLAN.items.code(item),
            config=PATHS.settings,
            experiment=PLAN.config.model_dump(),
        shell:
            "ragauge report item {params.item:q} --config {params.config:q} 2>&1 | tee {log:q}"

    getattr(rules, item).rule.docstring = PLAN.items.about(item).partition("\n")[
        0
    ]  # what `snakemake --list-rules` shows
