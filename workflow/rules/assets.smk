"""Models, encoders and corpora: fetched and verified once, kept in the user's cache; a manifest here says so."""


def manifest(source):
    """The manifest of an asset; a source's own characters that file names cannot bear become dashes."""
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in source)
    ASSET_SOURCES[name] = source
    return f"resources/assets/{name}.json"


ASSET_SOURCES = {}


def asset_source(wildcards):
    return ASSET_SOURCES[wildcards.asset]


def model_manifest(wildcards):
    return manifest(EXPERIMENT.models[wildcards.model].source)


def dataset_manifests(wildcards):
    """What a data set without a file of its own is made from."""
    entry = EXPERIMENT.datasets[wildcards.dataset]
    return (
        []
        if entry.data
        else [manifest(name) for name in dataset_kind(entry.dataset).assets]
    )


def encoder_manifests(*names):
    """The text encoders of method variants."""
    variants = [EXPERIMENT.methods[name] for name in names]
    dense = [
        variant.params.get("encoder", "minilm")
        for variant in variants
        if variant.method == "dense"
    ]
    return sorted({manifest(encoder) for encoder in dense})


rule asset:
    """Fetch an asset and write what it is, hash by hash."""
    output:
        "resources/assets/{asset}.json",
    log:
        "logs/assets/{asset}.log",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=4000,
        runtime=240,
    params:
        source=asset_source,
    shell:
        "ragauge fetch {params.source:q} --manifest {output} 2>&1 | tee {log}"
