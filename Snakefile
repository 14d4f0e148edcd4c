"""ragauge: every method of the papers on one engine, from downloads to tables and figures.

snakemake --cores all                                          the default experiment
snakemake --cores all --configfile configs/smoke.yaml          another experiment, in place of the default
snakemake --cores all --config generation='{max_new_tokens: 20}'   the same with a key changed
"""

from snakemake.utils import min_version

min_version("9.0")


# An experiment named on the command line stands for itself: it is not merged into the default one.
if not workflow.configfiles:

    configfile: "config.yaml"


# Made from envs/ragauge.def; every job runs in it where --sdm apptainer is given (docs/clusters.md).
container: "ragauge.sif"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/assets.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/retrieval.smk"
include: "workflow/rules/pipeline.smk"
include: "workflow/rules/staleness.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/answers.smk"
include: "workflow/rules/latency.smk"
include: "workflow/rules/judgements.smk"
include: "workflow/rules/predictions.smk"
include: "workflow/rules/items.smk"
include: "workflow/rules/report.smk"


rule all:
    """Every table and figure of the experiment, and what stands behind them."""
    default_target: True
    input:
        PLAN.items.all_files(),
        PLAN.retrieval.recall_files(),
        PLAN.pipelines.files(),
        PLAN.retrieval.staleness_files(),
        PATHS.provenance,
        PATHS.page,


onstart:
    begin()
