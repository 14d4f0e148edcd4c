"""The page that people open, from the rendered items and the records behind them."""


rule report_page:
    """Write the run's report: one self-contained page, with what to choose for a latency target and a memory."""
    input:
        rendered=PLAN.items.all_files(),
        answers=PLAN.answers.files(),
        latency=PLAN.timing.files("latency"),
        pipelines=PLAN.pipelines.files(),
        provenance=PATHS.provenance,
        parts=PLAN.items.page_parts(),
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
        code=PLAN.items.page_code(),
        experiment=PLAN.config.model_dump(),
    shell:
        "ragauge report page --config {params.config:q} 2>&1 | tee {log:q}"


rule reproduction:
    """Write what became of every number that the papers print, from committed tables and the papers' configuration."""
    input:
        "configs/papers/paper.yaml",
    output:
        "reports/reproduction.md",
    log:
        f"{PATHS.logs}/reproduction.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        code=code_of("report.reproduction", "results.planned"),
    shell:
        "ragauge report reproduction --config {input:q} --out {output:q} 2>&1 | tee {log:q}"
