"""Models, encoders and corpora: fetched and verified once, kept in the user's cache; a manifest here says so."""


rule asset:
    """Fetch an asset and write what it is, hash by hash."""
    output:
        ASSET,
    log:
        "logs/assets/{asset}.log",
    localrule: True  # computing nodes of many clusters reach no other network
    conda:
        ENVIRONMENT
    resources:
        mem_mb=grown(4000),
        runtime=240,
    params:
        source=PLAN.asset_source,
    shell:
        "ragauge fetch --out {output:q} -- {params.source:q} 2>&1 | tee {log:q}"
