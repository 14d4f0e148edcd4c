"""Chunk databases and their indexes: one job a shard to cut, embed and encode, then one to merge.

A shard that fails is made again alone, and a job that was cut off leaves nothing half done.
"""

from glob import glob

from ragauge import assets

DATABASE = f"{RESULTS}/databases/{{database}}"
SHARD = f"{DATABASE}/shards/{{shard}}/manifest.json"
EMBEDDINGS = f"{DATABASE}/embeddings/{{shard}}/manifest.json"
GATHERED = f"{DATABASE}/database/manifest.json"
INDEX = f"{DATABASE}/indexes/{{index}}"
CODES = f"{INDEX}/shards/{{shard}}/manifest.json"
DATABASE_LOGS = f"{LOGS}/databases/{{database}}"
recall_files = [
    f"{INDEX}/recall.json".format(database=label, index=index)
    for label, database in EXPERIMENT.databases.items()
    if database.evaluation != "none"
    for index in database.indexes
]


wildcard_constraints:
    database="[^/]+",
    index="[^/]+",
    shard=r"\d{5}",


def database_of(wildcards):
    return EXPERIMENT.databases[wildcards.database]


def index_of(wildcards):
    return database_of(wildcards).indexes[wildcards.index]


def shard_number(wildcards):
    return int(wildcards.shard)


def of_shards(path, count, wildcards):
    """The path of each of the first shards."""
    return [path.format(shard=f"{shard:05d}", **wildcards) for shard in range(count)]


def corpus_inputs(wildcards):
    """The corpus's files and assets; a data set of the hub is read as it streams."""
    named = [source for source in database_of(wildcards).sources if source in assets.entries()]
    files = [path for source in database_of(wildcards).sources for path in sorted(glob(source))]
    return [manifest(name) for name in named] + files


def tokenizer_manifest(wildcards):
    return manifest(database_of(wildcards).tokenizer)


def database_encoder(wildcards):
    return manifest(database_of(wildcards).encoder)


def all_shards(wildcards):
    return of_shards(SHARD, database_of(wildcards).shards, wildcards)


def indexed_shards(wildcards):
    return index_of(wildcards).shards or database_of(wildcards).shards


def indexed_embeddings(wildcards):
    return of_shards(EMBEDDINGS, indexed_shards(wildcards), wildcards)


def indexed_codes(wildcards):
    return of_shards(CODES, indexed_shards(wildcards), wildcards)


def database_settings(wildcards):
    """What the chunks depend on; encoder and indexes are parameters of their own rules."""
    return database_of(wildcards).model_dump(exclude={"encoder", "engine", "indexes"})


def encoder_settings(wildcards):
    return [database_of(wildcards).encoder, database_of(wildcards).engine]


def index_settings(wildcards):
    return index_of(wildcards).model_dump()


def train_mb(wildcards, attempt):
    """The sample in float32, twice while it is gathered, and what k-means takes; more when that was not enough."""
    return attempt * (2000 + index_of(wildcards).train_vectors * 768 * 4 * 3 // 10**6)


def add_mb(wildcards, attempt):
    """The codes of one shard, twice while they grow and are written; more when that was not enough."""
    index = index_of(wildcards)
    vectors = (index.filled or 0) // indexed_shards(wildcards)
    return attempt * (3000 + vectors * (index.pq_bytes + 8) * 2 // 10**6)


def parts_of(wildcards):
    """The numbers I/N of an index's parts, where servers share it."""
    count = index_of(wildcards).parts
    return [f"{number}/{count}" for number in range(count)] if count > 1 else []


rule chunks:
    """Cut the documents of one shard into chunks, held-out text apart."""
    input:
        corpus=corpus_inputs,
        tokenizer=tokenizer_manifest,
    output:
        SHARD,
    log:
        f"{DATABASE_LOGS}/chunks-{{shard}}.log",
    retries: 1
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=3000,
        runtime=240,
    params:
        config=SETTINGS,
        settings=database_settings,
        code=code_of("retrieval.database"),
        folder=DATABASE,
        shard=shard_number,
    shell:
        "ragauge index chunks --config {params.config} --database {wildcards.database} --shard {params.shard}"
        " --out {params.folder} 2>&1 | tee {log}"


rule database:
    """Name the shards in order and mark near-duplicates of evaluation text."""
    input:
        all_shards,
    output:
        GATHERED,
    log:
        f"{DATABASE_LOGS}/database.log",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        config=SETTINGS,
        code=code_of("retrieval.database"),
        folder=DATABASE,
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
    retries: 1
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=3000,
        runtime=720,
    params:
        config=SETTINGS,
        settings=encoder_settings,
        code=code_of("retrieval.embed"),
        folder=DATABASE,
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
    retries: 1
    conda:
        ENVIRONMENT
    threads: 4
    resources:
        mem_mb=train_mb,
        runtime=240,
    params:
        config=SETTINGS,
        settings=index_settings,
        code=code_of("retrieval.index"),
        folder=DATABASE,
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
    retries: 1
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
        folder=DATABASE,
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
        mem_mb=3000,
        runtime=240,
    params:
        config=SETTINGS,
        settings=index_settings,
        code=code_of("retrieval.index"),
        folder=DATABASE,
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
        mem_mb=4000,
        runtime=60,
    params:
        config=SETTINGS,
        settings=index_settings,
        code=code_of("verbs.index"),
        folder=DATABASE,
    shell:
        "ragauge index recall --config {params.config} --database {wildcards.database} --index {wildcards.index}"
        " --threads {threads} --out {params.folder} 2>&1 | tee {log}"
