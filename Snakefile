"""ragauge: compares ways of feeding retrieved documents to a language model.

snakemake --cores all                                          the default experiment, config.yaml
snakemake --cores all --configfile configs/ci/smoke.yaml       another experiment, in place of the default
snakemake --cores all --config seed=1                          the same experiment with a key changed
snakemake --list-rules                                         every table and figure is a rule

The rules are in workflow/rules, one file a stage: data, retrieval, pipeline, servers, training, answers, latency, items.
"""


include: "workflow/Snakefile"


# Snakemake takes rules from an included file, but not its default target; a module may have renamed the rule.
workflow.default_target = workflow.modifier.modify_rulename("all")
