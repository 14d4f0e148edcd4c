"""The page that people open, from the rendered items and the records behind them."""


rule report_page:
    """Write the run's report: one self-contained page, with what to choose for a latency target and a memory."""
    input:
        rendered=item_files,
        answers=answer_files,
        latency=latency_files,
        pipelines=pipeline_files,
        provenance=f"{REPORTS}/provenance.json",
        parts=page_parts,
    output:
        report(PAGE, caption="../report/page.rst", category="The report"),
    log:
        f"{LOGS}/report.log",
    localrule: True
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=grown(4000),
        runtime=20,
    params:
        config=SETTINGS,
        code=page_code(),
        experiment=EXPERIMENT.model_dump(),
    shell:
        "ragauge report --run-config {params.config} 2>&1 | tee {log}"
