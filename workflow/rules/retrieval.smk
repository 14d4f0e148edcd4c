"""Chunk databases and their indexes: one job a shard to cut, mark, embed and encode, then one to merge.

A shard that fails is made again alone, and a job that was cut off leaves nothing half done.
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
        config=PATHS.settings,
        settings=PLAN.entry("databases/{database}", exclude={"encoder", "engine", "evaluation_sets", "indexes"}),
        code=code_of("retrieval.chunking"),
        folder=PATHS.database,
    shell:
        "ragauge index chunks --config {params.config:q} --entry {wildcards.database:q} --shard {wildcards.shard:q}"
        " --database {params.folder:q} 2>&1 | tee {log:q}"


rule shards_cut:
    """Wait until all shards are cut: one file to depend on, where shards times shards would take minutes to plan."""
    input:
        PLAN.retrieval.of_shards(PATHS.shard),
    output:
        touch(PATHS.cut),
    localrule: True


rule evaluation_set:
    """Cut the text of another corpus that is predicted with a database."""
    input:
        PLAN.retrieval.evaluation_corpus,
    output:
        PATHS.evaluation_set,
    log:
        f"{PATHS.database_logs}/evaluation-{{evaluation}}.log",
    retries: 2
    conda:
        ENVIRONMENT
    resources:
        mem_mb=grown(2000),
        runtime=1440,
    params:
        config=PATHS.settings,
        settings=PLAN.entry("databases/{database}/evaluation_sets/{evaluation}"),
        code=code_of("retrieval.chunking"),
        folder=PATHS.database,
    shell:
        "ragauge index evaluation --config {params.config:q} --entry {wildcards.database:q}"
        " --evaluation {wildcards.evaluation:q} --database {params.folder:q} 2>&1 | tee {log:q}"


rule near_duplicates:
    """Mark the documents of one shard that are near-duplicates of any evaluation text, of shards and of sets."""
    input:
        cut=PATHS.cut,
        sets=PLAN.retrieval.evaluation_sets,
    output:
        PATHS.marked,
    log:
        f"{PATHS.database_logs}/near-duplicates-{{shard}}.log",
    retries: 2
    conda:
        ENVIRONMENT
    resources:
        mem_mb=grown(4000),
        runtime=240,
    params:
        config=PATHS.settings,
        code=code_of("retrieval.chunking"),
        folder=PATHS.database,
    shell:
        "ragauge index mark --config {params.config:q} --entry {wildcards.database:q} --shard {wildcards.shard:q}"
        " --database {params.folder:q} 2>&1 | tee {log:q}"


rule database:
    """Name the shards and their near-duplicates in order."""
    input:
        shards=PLAN.retrieval.of_shards(PATHS.shard),
        sets=PLAN.retrieval.evaluation_sets,
        marked=PLAN.retrieval.of_shards(PATHS.marked),
    output:
        PATHS.gathered,
    log:
        f"{PATHS.database_logs}/database.log",
    conda:
        ENVIRONMENT
    resources:
        mem_mb=grown(2000),
        runtime=60,
    params:
        config=PATHS.settings,
        code=code_of("retrieval.chunking"),
        folder=PATHS.database,
    shell:
        "ragauge index gather --config {params.config:q} --entry {wildcards.database:q}"
        " --database {params.folder:q} 2>&1 | tee {log:q}"


rule embeddings:
    """Embed the chunks of one shard."""
    input:
        shard=PATHS.shard,
        encoder=PLAN.asset("databases/{database}/encoder"),
    output:
        PATHS.embeddings,
    log:
        f"{PATHS.database_logs}/embeddings-{{shard}}.log",
    retries: 2
    conda:
        ENVIRONMENT
    resources:
        mem_mb=grown(3000),
        runtime=4320,
    params:
        config=PATHS.settings,
        settings=PLAN.entry("databases/{database}", include={"encoder", "engine"}),
        code=code_of("retrieval.embed"),
        folder=PATHS.database,
    shell:
        "ragauge index embed --config {params.config:q} --entry {wildcards.database:q} --shard {wildcards.shard:q}"
        " --threads {threads} --database {params.folder:q} 2>&1 | tee {log:q}"


rule index_training:
    """Train an index's centroids and quantisers on a sample of the vectors."""
    input:
        database=PATHS.gathered,
        embeddings=PLAN.retrieval.of_shards(PATHS.embeddings),
    output:
        f"{PATHS.index}/trained/manifest.json",
    log:
        f"{PATHS.database_logs}/{{index}}-train.log",
    retries: 2
    conda:
        ENVIRONMENT
    threads: PLAN.cores
    resources:
        mem_mb=PLAN.retrieval.train_mb,
        runtime=240,
        slurm_extra=ALONE,
    params:
        config=PATHS.settings,
        settings=PLAN.entry("databases/{database}/indexes/{index}"),
        code=PLAN.retrieval.index_code,
        folder=PATHS.database,
    shell:
        "ragauge index train --config {params.config:q} --entry {wildcards.database:q} --index {wildcards.index:q}"
        " --threads {threads} --database {params.folder:q} 2>&1 | tee {log:q}"


rule index_codes:
    """Encode the vectors of one shard, those that fill the index included."""
    input:
        trained=f"{PATHS.index}/trained/manifest.json",
        embeddings=PATHS.embeddings,
    output:
        PATHS.codes,
    log:
        f"{PATHS.database_logs}/{{index}}-add-{{shard}}.log",
    retries: 2
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.retrieval.add_mb,
        runtime=720,
    params:
        config=PATHS.settings,
        settings=PLAN.entry("databases/{database}/indexes/{index}"),
        code=PLAN.retrieval.index_code,
        folder=PATHS.database,
    shell:
        "ragauge index add --config {params.config:q} --entry {wildcards.database:q} --index {wildcards.index:q}"
        " --shard {wildcards.shard:q} --threads {threads} --database {params.folder:q} 2>&1 | tee {log:q}"


rule index:
    """Merge the shards' codes on disk into the index that is searched, and into the parts of several servers."""
    input:
        PLAN.retrieval.of_shards(PATHS.codes),
    output:
        PATHS.merged,
    log:
        f"{PATHS.database_logs}/{{index}}-merge.log",
    conda:
        ENVIRONMENT
    resources:
        mem_mb=grown(3000),
        runtime=240,
    params:
        config=PATHS.settings,
        settings=PLAN.entry("databases/{database}/indexes/{index}"),
        code=PLAN.retrieval.index_code,
        folder=PATHS.database,
        parts=PLAN.retrieval.parts,
    shell:
        "(for part in '' {params.parts:q}; do"
        "   ragauge index merge --config {params.config:q} --entry {wildcards.database:q} --index {wildcards.index:q}"
        '   ${{part:+--part "$part"}} --database {params.folder:q} || exit; done) 2>&1 | tee {log:q}'


rule index_recall:
    """Recall@k of an index against exact search, for held-out text."""
    input:
        index=PATHS.merged,
        encoder=PLAN.asset("databases/{database}/encoder"),
    output:
        PATHS.recall,
    log:
        f"{PATHS.database_logs}/{{index}}-recall.log",
    conda:
        ENVIRONMENT
    threads: 2
    resources:
        mem_mb=grown(4000),
        runtime=60,
    params:
        config=PATHS.settings,
        settings=PLAN.entry("databases/{database}/indexes/{index}"),
        code=code_of("cli.index"),
        folder=PATHS.database,
    shell:
        "ragauge index recall --config {params.config:q} --entry {wildcards.database:q} --index {wildcards.index:q}"
        " --threads {threads} --database {params.folder:q} 2>&1 | tee {log:q}"
