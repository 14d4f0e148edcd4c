"""Every table and figure: a rule each, named after it, rendered from records alone."""


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


rule superposition_table_1:
    """Superposition Prompting, Table 1: every method on NQ-Open, accuracy against compute."""
    input:
        **PLAN.item_inputs("superposition_table_1"),
    output:
        **rendered("superposition_table_1", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_table_1.log",
    localrule: True
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=grown(2000),
        runtime=10,
    params:
        **item_params("superposition_table_1"),
    shell:
        "ragauge render {params.item} --run-config {params.config} 2>&1 | tee {log}"


use rule superposition_table_1 as superposition_table_2 with:
    """Superposition Prompting, Table 2: iterative superposition on MuSiQue."""
    input:
        **PLAN.item_inputs("superposition_table_2"),
    output:
        **rendered("superposition_table_2", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_table_2.log",
    params:
        **item_params("superposition_table_2"),


use rule superposition_table_1 as superposition_table_3 with:
    """Superposition Prompting, Table 3: left-aligned against equilibrium positions."""
    input:
        **PLAN.item_inputs("superposition_table_3"),
    output:
        **rendered("superposition_table_3", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_table_3.log",
    params:
        **item_params("superposition_table_3"),


use rule superposition_table_1 as superposition_table_4 with:
    """Superposition Prompting, Table 4: what path saliency is measured by."""
    input:
        **PLAN.item_inputs("superposition_table_4"),
    output:
        **rendered("superposition_table_4", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_table_4.log",
    params:
        **item_params("superposition_table_4"),


use rule superposition_table_1 as superposition_table_5 with:
    """Superposition Prompting, Table 5: the number of documents kept."""
    input:
        **PLAN.item_inputs("superposition_table_5"),
    output:
        **rendered("superposition_table_5", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_table_5.log",
    params:
        **item_params("superposition_table_5"),


use rule superposition_table_1 as superposition_table_6 with:
    """Superposition Prompting, Table 6: path pruning, caching and parallelization, each on and off."""
    input:
        **PLAN.item_inputs("superposition_table_6"),
    output:
        **rendered("superposition_table_6", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_table_6.log",
    params:
        **item_params("superposition_table_6"),


use rule superposition_table_1 as superposition_table_7 with:
    """Superposition Prompting, Table 7: measured speedup against accuracy."""
    input:
        **PLAN.item_inputs("superposition_table_7"),
    output:
        **rendered("superposition_table_7", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_table_7.log",
    params:
        **item_params("superposition_table_7"),


use rule superposition_table_1 as superposition_figure_1 with:
    """Superposition Prompting, Figure 1: speedup against accuracy."""
    input:
        **PLAN.item_inputs("superposition_figure_1"),
    output:
        **rendered("superposition_figure_1", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_figure_1.log",
    params:
        **item_params("superposition_figure_1"),


use rule superposition_table_1 as superposition_figure_5 with:
    """Superposition Prompting, Figure 5: the superposition factor."""
    input:
        **PLAN.item_inputs("superposition_figure_5"),
    output:
        **rendered("superposition_figure_5", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_figure_5.log",
    params:
        **item_params("superposition_figure_5"),


use rule superposition_table_1 as superposition_dataset_statistics with:
    """Superposition Prompting, data set statistics: how long the documents are, and how uneven."""
    input:
        **PLAN.item_inputs("superposition_dataset_statistics"),
    output:
        **rendered("superposition_dataset_statistics", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_dataset_statistics.log",
    params:
        **item_params("superposition_dataset_statistics"),


use rule superposition_table_1 as frontier with:
    """Ours: all methods of all papers on one plane, quality against cost, with the chance of being on the frontier."""
    input:
        **PLAN.item_inputs("frontier"),
    output:
        **rendered("frontier", "All papers"),
    log:
        f"{LOGS}/items/frontier.log",
    params:
        **item_params("frontier"),


use rule superposition_table_1 as documents_reuse with:
    """Ours: what keeping documents' keys and values on disk costs and saves, over hit rates."""
    input:
        **PLAN.item_inputs("documents_reuse"),
    output:
        **rendered("documents_reuse", "All papers"),
    log:
        f"{LOGS}/items/documents_reuse.log",
    params:
        **item_params("documents_reuse"),
