"""Chunk databases and their indexes: one job a shard to cut, mark, embed and encode, then one to merge.

A shard that fails is made again alone, and a job that was cut off leaves nothing half done.
"""


rule chunks:
    """Cut the documents of one shard into chunks, held-out text apart."""
    input:
        corpus=corpus_inputs,
        tokenizer=tokenizer_manifest,
    output:
        SHARD,
    log:
        f"{DATABASE_LOGS}/chunks-{{shard}}.log",
    retries: 2
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=grown(3000),
        runtime=240,
    params:
        config=SETTINGS,
        settings=database_settings,
        code=code_of("retrieval.database"),
        folder=database_folder,
        shard=shard_number,
    shell:
        "ragauge index chunks --config {params.config} --database {wildcards.database} --shard {params.shard}"
        " --out {params.folder} 2>&1 | tee {log}"


rule near_duplicates:
    """Mark the documents of one shard that are near-duplicates of any shard's evaluation text."""
    input:
        all_shards,
    output:
        MARKED,
    log:
        f"{DATABASE_LOGS}/near-duplicates-{{shard}}.log",
    retries: 2
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=grown(4000),
        runtime=240,
    params:
        config=SETTINGS,
        code=code_of("retrieval.database"),
        folder=database_folder,
        shard=shard_number,
    shell:
        "ragauge index mark --config {params.config} --database {wildcards.database} --shard {params.shard}"
        " --out {params.folder} 2>&1 | tee {log}"


rule database:
    """Name the shards and their near-duplicates in order."""
    input:
        shards=all_shards,
        marked=all_marked,
    output:
        GATHERED,
    log:
        f"{DATABASE_LOGS}/database.log",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=grown(2000),
        runtime=60,
    params:
        config=SETTINGS,
        code=code_of("retrieval.database"),
        folder=database_folder,
    shell:
        "ragauge index gather --config {params.config} --database {wildcards.database}"
        " --out {params.folder} 2>&1 | tee {log}"


rule embeddings:
    """Embed the chunks of one shard."""
    input:
        shard=SHARD,
        encoder=database_encoder,
    output:
        EMBEDDINGS,
    log:
        f"{DATABASE_LOGS}/embeddings-{{shard}}.log",
    retries: 2
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=grown(3000),
        runtime=4320,
    params:
        config=SETTINGS,
        settings=encoder_settings,
        code=code_of("retrieval.embed"),
        folder=database_folder,
        shard=shard_number,
    shell:
        "ragauge index embed --config {params.config} --database {wildcards.database} --shard {params.shard}"
        " --threads {threads} --out {params.folder} 2>&1 | tee {log}"


rule index_training:
    """Train an index's centroids and quantisers on a sample of the vectors."""
    input:
        database=GATHERED,
        embeddings=indexed_embeddings,
    output:
        f"{INDEX}/trained/manifest.json",
    log:
        f"{DATABASE_LOGS}/{{index}}-train.log",
    retries: 2
    conda:
        ENVIRONMENT
    threads: ALL_CORES
    resources:
        mem_mb=train_mb,
        runtime=240,
        slurm_extra=ALONE,
    params:
        config=SETTINGS,
        settings=index_settings,
        code=code_of("retrieval.index"),
        folder=database_folder,
    shell:
        "ragauge index train --config {params.config} --database {wildcards.database} --index {wildcards.index}"
        " --threads {threads} --out {params.folder} 2>&1 | tee {log}"


rule index_codes:
    """Encode the vectors of one shard, those that fill the index included."""
    input:
        trained=f"{INDEX}/trained/manifest.json",
        embeddings=EMBEDDINGS,
    output:
        CODES,
    log:
        f"{DATABASE_LOGS}/{{index}}-add-{{shard}}.log",
    retries: 2
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=add_mb,
        runtime=720,
    params:
        config=SETTINGS,
        settings=index_settings,
        code=code_of("retrieval.index"),
        folder=database_folder,
        shard=shard_number,
    shell:
        "ragauge index add --config {params.config} --database {wildcards.database} --index {wildcards.index}"
        " --shard {params.shard} --threads {threads} --out {params.folder} 2>&1 | tee {log}"


rule index:
    """Merge the shards' codes on disk into the index that is searched, and into the parts of several servers."""
    input:
        indexed_codes,
    output:
        f"{INDEX}/merged/manifest.json",
    log:
        f"{DATABASE_LOGS}/{{index}}-merge.log",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=grown(3000),
        runtime=240,
    params:
        config=SETTINGS,
        settings=index_settings,
        code=code_of("retrieval.index"),
        folder=database_folder,
        parts=parts_of,
    shell:
        "(for part in '' {params.parts}; do"
        "   ragauge index merge --config {params.config} --database {wildcards.database} --index {wildcards.index}"
        "   ${{part:+--part $part}} --out {params.folder} || exit; done) 2>&1 | tee {log}"


rule index_recall:
    """Recall@k of an index against exact search, for held-out text."""
    input:
        index=f"{INDEX}/merged/manifest.json",
        encoder=database_encoder,
    output:
        f"{INDEX}/recall.json",
    log:
        f"{DATABASE_LOGS}/{{index}}-recall.log",
    conda:
        ENVIRONMENT
    threads: 2
    resources:
        mem_mb=grown(4000),
        runtime=60,
    params:
        config=SETTINGS,
        settings=index_settings,
        code=code_of("verbs.index"),
        folder=database_folder,
    shell:
        "ragauge index recall --config {params.config} --database {wildcards.database} --index {wildcards.index}"
        " --threads {threads} --out {params.folder} 2>&1 | tee {log}"
