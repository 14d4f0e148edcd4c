"""Every table and figure: a rule each, named after it, rendered from records alone."""


def rendered(item, category):
    """The files of an item; the report shows the figure and the table."""
    shown = dict(caption=f"../report/{item}.rst", category=category, subcategory=item)
    return {
        "table": report(f"{REPORTS}/{item}.csv", labels={"file": "table"}, **shown),
        "figure": report(f"{REPORTS}/{item}.svg", labels={"file": "figure"}, **shown),
        "pdf": f"{REPORTS}/{item}.pdf",
        "png": f"{REPORTS}/{item}.png",
    }


def item_code(item):
    """Metrics are found by name, so no import shows them."""
    return code_of(
        f"paper.{item}",
        "paper._write",
        *(f"metrics.{name}" for name in registry.names("metric")),
    )


ITEMS = EXPERIMENT.item_names()
item_files = [
    f"{REPORTS}/{item}.{suffix}"
    for item in ITEMS
    for suffix in ("csv", "svg", "pdf", "png")
]
SUPERPOSITION = "Superposition Prompting"


rule superposition_table_1:
    """Superposition Prompting, Table 1: every method on NQ-Open, accuracy against compute."""
    input:
        settings=SETTINGS,
        answers=answer_files,
        latency=latency_files,
    output:
        **rendered("superposition_table_1", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_table_1.log",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        code=item_code("superposition_table_1"),
        results=RESULTS,
        reports=REPORTS,
    shell:
        "ragauge render {rule} --run-config {input.settings} --results {params.results} --out-dir {params.reports}"
        " 2>&1 | tee {log}"


use rule superposition_table_1 as superposition_table_2 with:
    """Superposition Prompting, Table 2: iterative superposition on MuSiQue."""
    output:
        **rendered("superposition_table_2", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_table_2.log",
    params:
        code=item_code("superposition_table_2"),
        results=RESULTS,
        reports=REPORTS,


use rule superposition_table_1 as superposition_table_3 with:
    """Superposition Prompting, Table 3: left-aligned against equilibrium positions."""
    output:
        **rendered("superposition_table_3", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_table_3.log",
    params:
        code=item_code("superposition_table_3"),
        results=RESULTS,
        reports=REPORTS,


use rule superposition_table_1 as superposition_table_4 with:
    """Superposition Prompting, Table 4: what path saliency is measured by."""
    output:
        **rendered("superposition_table_4", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_table_4.log",
    params:
        code=item_code("superposition_table_4"),
        results=RESULTS,
        reports=REPORTS,


use rule superposition_table_1 as superposition_table_5 with:
    """Superposition Prompting, Table 5: the number of documents kept."""
    output:
        **rendered("superposition_table_5", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_table_5.log",
    params:
        code=item_code("superposition_table_5"),
        results=RESULTS,
        reports=REPORTS,


use rule superposition_table_1 as superposition_table_6 with:
    """Superposition Prompting, Table 6: path pruning, caching and parallelization, each on and off."""
    output:
        **rendered("superposition_table_6", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_table_6.log",
    params:
        code=item_code("superposition_table_6"),
        results=RESULTS,
        reports=REPORTS,


use rule superposition_table_1 as superposition_table_7 with:
    """Superposition Prompting, Table 7: measured speedup against accuracy."""
    output:
        **rendered("superposition_table_7", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_table_7.log",
    params:
        code=item_code("superposition_table_7"),
        results=RESULTS,
        reports=REPORTS,


use rule superposition_table_1 as superposition_figure_1 with:
    """Superposition Prompting, Figure 1: speedup against accuracy."""
    output:
        **rendered("superposition_figure_1", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_figure_1.log",
    params:
        code=item_code("superposition_figure_1"),
        results=RESULTS,
        reports=REPORTS,


use rule superposition_table_1 as superposition_figure_5 with:
    """Superposition Prompting, Figure 5: the superposition factor."""
    output:
        **rendered("superposition_figure_5", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_figure_5.log",
    params:
        code=item_code("superposition_figure_5"),
        results=RESULTS,
        reports=REPORTS,


use rule superposition_table_1 as superposition_dataset_statistics with:
    """Superposition Prompting, data set statistics: how long the documents are, and how uneven."""
    output:
        **rendered("superposition_dataset_statistics", SUPERPOSITION),
    log:
        f"{LOGS}/items/superposition_dataset_statistics.log",
    params:
        code=item_code("superposition_dataset_statistics"),
        results=RESULTS,
        reports=REPORTS,


use rule superposition_table_1 as frontier with:
    """Ours: all methods of all papers on one plane, quality against cost, with the chance of being on the frontier."""
    output:
        **rendered("frontier", "All papers"),
    log:
        f"{LOGS}/items/frontier.log",
    params:
        code=item_code("frontier"),
        results=RESULTS,
        reports=REPORTS,
