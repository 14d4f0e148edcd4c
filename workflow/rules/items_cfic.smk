"""CFIC's tables and figures: a rule each, as those of the other papers (items.smk)."""

CFIC = "CFIC"


use rule superposition_table_1 as cfic_table_1 with:
    """CFIC, Table 1: the data sets and the length of their documents."""
    input:
        **PLAN.item_inputs("cfic_table_1"),
    output:
        **rendered("cfic_table_1", CFIC),
    log:
        f"{LOGS}/items/cfic_table_1.log",
    params:
        **item_params("cfic_table_1"),


use rule superposition_table_1 as cfic_table_3 with:
    """CFIC, Table 3: evidence without chunking against chunk-and-rank, free extraction and the full article."""
    input:
        **PLAN.item_inputs("cfic_table_3"),
    output:
        **rendered("cfic_table_3", CFIC),
    log:
        f"{LOGS}/items/cfic_table_3.log",
    params:
        **item_params("cfic_table_3"),


use rule superposition_table_1 as cfic_table_4 with:
    """CFIC, Table 4: without prefix decoding, without skip decoding, without both, without fine-tuning."""
    input:
        **PLAN.item_inputs("cfic_table_4"),
    output:
        **rendered("cfic_table_4", CFIC),
    log:
        f"{LOGS}/items/cfic_table_4.log",
    params:
        **item_params("cfic_table_4"),


use rule superposition_table_1 as cfic_table_6 with:
    """CFIC, Table 6: the time to find evidence, by stage."""
    input:
        **PLAN.item_inputs("cfic_table_6"),
    output:
        **rendered("cfic_table_6", CFIC),
    log:
        f"{LOGS}/items/cfic_table_6.log",
    params:
        **item_params("cfic_table_6"),


use rule superposition_table_1 as cfic_table_7 with:
    """CFIC, Table 7: whether evidence stands in its document and supports the answer."""
    input:
        **PLAN.item_inputs("cfic_table_7"),
    output:
        **rendered("cfic_table_7", CFIC),
    log:
        f"{LOGS}/items/cfic_table_7.log",
    params:
        **item_params("cfic_table_7"),


use rule superposition_table_1 as cfic_table_8 with:
    """CFIC, Table 8: the number of prefixes k."""
    input:
        **PLAN.item_inputs("cfic_table_8"),
    output:
        **rendered("cfic_table_8", CFIC),
    log:
        f"{LOGS}/items/cfic_table_8.log",
    params:
        **item_params("cfic_table_8"),


use rule superposition_table_1 as cfic_figure_3 with:
    """CFIC, Figure 3: how far evidence may run on, d."""
    input:
        **PLAN.item_inputs("cfic_figure_3"),
    output:
        **rendered("cfic_figure_3", CFIC),
    log:
        f"{LOGS}/items/cfic_figure_3.log",
    params:
        **item_params("cfic_figure_3"),
