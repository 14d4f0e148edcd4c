"""Models, encoders and corpora, fetched and verified once into the user's cache; and the questions of each data set."""


rule asset:
    """Fetch an asset and write what it is, hash by hash."""
    input:
        PLAN.asset_files,
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
        entry=PLAN.asset_entry,
        contents=PLAN.asset_contents,
    shell:
        "ragauge fetch --out {output:q} -- {params.source:q} 2>&1 | tee {log:q}"


rule data:
    """Write a data set's questions."""
    input:
        file=PLAN.data.file,
        assets=PLAN.data.assets,
    output:
        PATHS.data,
    log:
        f"{PATHS.logs}/data/{{dataset}}.log",
    conda:
        ENVIRONMENT
    resources:
        mem_mb=grown(4000),
        runtime=60,
    params:
        config=PATHS.settings,
        settings=PLAN.data.settings,
        code=PLAN.data.code,
    shell:
        "ragauge fetch --config {params.config:q} --dataset {wildcards.dataset:q} --out {output:q} 2>&1 | tee {log:q}"
