"""PipeRAG's tables and figures: a rule each, as those of the other papers (items.smk)."""

PIPERAG = "PipeRAG"


use rule superposition_table_1 as piperag_table_1 with:
    """PipeRAG, Table 1: performance-driven retrieval (S3) beside no retrieval, one retrieval and RETRO."""
    input:
        **PLAN.item_inputs("piperag_table_1"),
    output:
        **rendered("piperag_table_1", PIPERAG),
    log:
        f"{LOGS}/items/piperag_table_1.log",
    params:
        **item_params("piperag_table_1"),


use rule superposition_table_1 as piperag_table_2 with:
    """PipeRAG, Table 2: what a stale query finds beside what a fresh one finds."""
    input:
        **PLAN.item_inputs("piperag_table_2"),
    output:
        **rendered("piperag_table_2", PIPERAG),
    log:
        f"{LOGS}/items/piperag_table_2.log",
    params:
        **item_params("piperag_table_2"),


use rule superposition_table_1 as piperag_figure_4 with:
    """PipeRAG, Figure 4: the size of the database against perplexity."""
    input:
        **PLAN.item_inputs("piperag_figure_4"),
    output:
        **rendered("piperag_figure_4", PIPERAG),
    log:
        f"{LOGS}/items/piperag_figure_4.log",
    params:
        **item_params("piperag_figure_4"),


use rule superposition_table_1 as piperag_figure_5 with:
    """PipeRAG, Figure 5: nprobe and retrieval interval against perplexity."""
    input:
        **PLAN.item_inputs("piperag_figure_5"),
    output:
        **rendered("piperag_figure_5", PIPERAG),
    log:
        f"{LOGS}/items/piperag_figure_5.log",
    params:
        **item_params("piperag_figure_5"),


use rule superposition_table_1 as piperag_figure_6 with:
    """PipeRAG, Figure 6: perplexity against latency, with the control."""
    input:
        **PLAN.item_inputs("piperag_figure_6"),
    output:
        **rendered("piperag_figure_6", PIPERAG),
    log:
        f"{LOGS}/items/piperag_figure_6.log",
    params:
        **item_params("piperag_figure_6"),


use rule superposition_table_1 as piperag_figure_7 with:
    """PipeRAG, Figure 7: projections to 4 and 16 times faster retrieval or inference."""
    input:
        **PLAN.item_inputs("piperag_figure_7"),
    output:
        **rendered("piperag_figure_7", PIPERAG),
    log:
        f"{LOGS}/items/piperag_figure_7.log",
    params:
        **item_params("piperag_figure_7"),


use rule superposition_table_1 as piperag_figure_8 with:
    """PipeRAG, Figure 8: RETRO+, a RETRO that may ask at any interval, against PipeRAG."""
    input:
        **PLAN.item_inputs("piperag_figure_8"),
    output:
        **rendered("piperag_figure_8", PIPERAG),
    log:
        f"{LOGS}/items/piperag_figure_8.log",
    params:
        **item_params("piperag_figure_8"),


use rule superposition_table_1 as piperag_figure_10 with:
    """PipeRAG, Figure 10: RETRO+ and PipeRAG interval by interval."""
    input:
        **PLAN.item_inputs("piperag_figure_10"),
    output:
        **rendered("piperag_figure_10", PIPERAG),
    log:
        f"{LOGS}/items/piperag_figure_10.log",
    params:
        **item_params("piperag_figure_10"),


use rule superposition_table_1 as piperag_control with:
    """Ours: RETRO-fit's forms, trained and not: retrieved neighbours against random ones."""
    input:
        **PLAN.item_inputs("piperag_control"),
    output:
        **rendered("piperag_control", PIPERAG),
    log:
        f"{LOGS}/items/piperag_control.log",
    params:
        **item_params("piperag_control"),
