"""What the tables say of the paper's own models without their weights."""


rule predictions:
    """Predict the paper's compute cycles from the shapes of its models."""
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
