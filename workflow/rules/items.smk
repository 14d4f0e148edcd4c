"""Every table and figure, a rule each, named after its file below src/ragauge/report/items; and the page that shows them all."""


rule provenance:
    """The settings, data, code and machine behind everything in the report, and the score of each question."""
    input:
        answers=PLAN.answers.files(),
        latency=PLAN.timing.files("latency"),
        load=PLAN.timing.files("load"),
        stream=PLAN.timing.files("stream"),
        pipelines=PLAN.pipelines.files(),
    output:
        provenance=PATHS.provenance,
        scores=PATHS.scores,
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
        code=code_of("report.figures.writing", components=PLAN.items.metrics()),
    shell:
        "ragauge report provenance --config {params.config:q} 2>&1 | tee {log:q}"


for item in PLAN.items.names():

    rule:
        name:
            item
        input:
            **PLAN.items.inputs(item),
            published=PLAN.items.package_files("results/published/*.csv"),
            facts=PLAN.items.package_files(
                "report/figures/*.yaml", "cost/*.yaml", "assets/catalog.yaml"
            ),
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
            settings=PLAN.items.settings(item),
        shell:
            "ragauge report item {params.item:q} --config {params.config:q} 2>&1 | tee {log:q}"

    # What `snakemake --list-rules` shows.
    getattr(rules, item).rule.docstring = PLAN.items.about(item).partition("\n")[0]


for paper, files in PLAN.items.papers().items():

    rule:
        name:
            paper
        input:
            files,
        localrule: True

    getattr(rules, paper).rule.docstring = (
        f"Every table and figure of one paper of the experiment: {paper}."
    )


rule predictions:
    """Predict the paper's compute cycles from the shapes of its models."""
    input:
        PLAN.items.package_files("results/published/*.csv", "cost/*.yaml"),
    output:
        PATHS.predictions,
    log:
        f"{PATHS.logs}/predictions.log",
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=grown(2000),
        runtime=10,
    params:
        code=code_of("measure.predictions"),
    shell:
        "ragauge cost --published --out {output:q} 2>&1 | tee {log:q}"


rule report_page:
    """Write the run's report: one self-contained page, with what to choose for a latency target and a memory."""
    input:
        rendered=PLAN.items.all_files(),
        answers=PLAN.answers.files(),
        latency=PLAN.timing.files("latency"),
        pipelines=PLAN.pipelines.files(),
        provenance=PATHS.provenance,
        parts=PLAN.items.package_files(
            "report/page/*.html",
            "report/page/*.css",
            "report/page/*.js",
            "report/figures/*.yaml",
            "cost/*.yaml",
        ),
    output:
        report(PATHS.page, caption="../report/page.rst", category="The report"),
    log:
        f"{PATHS.logs}/report.log",
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=grown(4000),
        runtime=20,
    params:
        config=PATHS.settings,
        code=code_of("report.page.page", components=PLAN.items.metrics()),
        experiment=PLAN.config.model_dump(),
    shell:
        "ragauge report page --config {params.config:q} 2>&1 | tee {log:q}"
