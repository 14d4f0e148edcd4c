"""Chunk databases and their indexes: one job a shard to cut, mark, embed and encode, then one to merge.

A shard that fails is made again alone. Every step runs the command of the first rule; the others say what differs.
"""


rule chunks:
    """Cut the documents of one shard into chunks, held-out text apart."""
    input:
        corpus=PLAN.retrieval.corpus,
        tokenizer=PLAN.asset("databases/{database}/tokenizer"),
    output:
        PATHS.shard,
    log:
        f"{PATHS.database_logs}/chunks-{{shard}}.log",
    retries: 2
    conda:
        ENVIRONMENT
    resources:
        mem_mb=grown(3000),
        runtime=240,
    params:
        step="chunks",
        config=PATHS.settings,
        settings=PLAN.retrieval.chunk_settings,
        code=code_of("pipelines.database.chunking"),
        folder=filled(PATHS.database),
        labels=PLAN.retrieval.label_options,
    shell:
        "ragauge index {params.step:q} --config {params.config:q} --entry {wildcards.database:q} {params.labels:q}"
        " --threads {threads} --database {params.folder:q} 2>&1 | tee {log:q}"


rule shards_cut:
    """Wait until all shards are cut: one file to depend on, where shards times shards would take minutes to plan."""
    input:
        PLAN.retrieval.shard_files(PATHS.shard),
    output:
        touch(PATHS.cut),
    localrule: True


use rule chunks as evaluation_set with:
    """Cut the text of another corpus that is predicted with a database."""
    input:
        PLAN.retrieval.evaluation_corpus,
    output:
        PATHS.evaluation_set,
    log:
        f"{PATHS.database_logs}/evaluation-{{evaluation}}.log",
    resources:
        mem_mb=grown(2000),
        runtime=1440,
    params:
        step="evaluation",
        settings=PLAN.retrieval.evaluation_settings,


use rule chunks as near_duplicates with:
    """Mark the documents of one shard that contain a piece of any evaluation text, of shards and of sets."""
    input:
        cut=PATHS.cut,
        tokenizer=PLAN.asset("databases/{database}/tokenizer"),
        sets=PLAN.retrieval.evaluation_sets,
    output:
        PATHS.marked,
    log:
        f"{PATHS.database_logs}/near-duplicates-{{shard}}.log",
    resources:
        mem_mb=grown(4000),
        runtime=240,
    params:
        step="mark",


use rule chunks as database with:
    """Name the shards and their near-duplicates in order."""
    input:
        shards=PLAN.retrieval.shard_files(PATHS.shard),
        sets=PLAN.retrieval.evaluation_sets,
        marked=PLAN.retrieval.shard_files(PATHS.marked),
    output:
        PATHS.gathered,
    log:
        f"{PATHS.database_logs}/database.log",
    resources:
        mem_mb=grown(2000),
        runtime=60,
    params:
        step="gather",


use rule chunks as embeddings with:
    """Embed the chunks of one shard."""
    input:
        shard=PATHS.shard,
        encoder=PLAN.asset("databases/{database}/encoder"),
    output:
        PATHS.embeddings,
    log:
        f"{PATHS.database_logs}/embeddings-{{shard}}.log",
    resources:
        gpu=PLAN.retrieval.embed_gpus,
        mem_mb=grown(3000),
        runtime=4320,
    params:
        step="embed",
        settings=PLAN.entry("databases/{database}", include=PLAN.retrieval.EMBEDDING),
        code=code_of("pipelines.database.embed"),


use rule chunks as index_training with:
    """Train an index's centroids and quantisers on a sample of the vectors."""
    input:
        database=PATHS.gathered,
        embeddings=PLAN.retrieval.shard_files(PATHS.embeddings),
    output:
        f"{PATHS.index}/trained/manifest.json",
    log:
        f"{PATHS.database_logs}/{{index}}-train.log",
    threads: PLAN.retrieval.train_threads
    resources:
        mem_mb=PLAN.retrieval.train_mb,
        runtime=240,
        slurm_extra=PLAN.retrieval.train_node,
    params:
        step="train",
        settings=PLAN.entry("databases/{database}/indexes/{index}"),
        code=PLAN.retrieval.index_code,


use rule index_training as index_codes with:
    """Encode the vectors of one shard, those that fill the index included."""
    input:
        trained=f"{PATHS.index}/trained/manifest.json",
        embeddings=PATHS.embeddings,
    output:
        PATHS.codes,
    log:
        f"{PATHS.database_logs}/{{index}}-add-{{shard}}.log",
    threads: 1
    resources:
        mem_mb=PLAN.retrieval.add_mb,
        runtime=720,
    params:
        step="add",


use rule chunks as index with:
    """Merge the shards' codes on disk into the index that is searched, and into the parts of several servers."""
    input:
        PLAN.retrieval.shard_files(PATHS.codes),
    output:
        PATHS.merged,
    log:
        f"{PATHS.database_logs}/{{index}}-merge.log",
    params:
        step="merge",
        settings=PLAN.entry("databases/{database}/indexes/{index}"),
        code=PLAN.retrieval.index_code,


use rule index_codes as index_recall with:
    """Recall@k of an index against exact search, for held-out text."""
    input:
        index=PATHS.merged,
        encoder=PLAN.asset("databases/{database}/encoder"),
    output:
        PATHS.recall,
    log:
        f"{PATHS.database_logs}/{{index}}-recall.log",
    threads: 2
    resources:
        mem_mb=PLAN.retrieval.search_mb,
        runtime=720,
    params:
        step="recall",
        code=code_of("pipelines.retrieval.recall"),
