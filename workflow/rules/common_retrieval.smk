"""Paths and parameters of chunk databases and their indexes."""

from glob import glob

from ragauge import assets

DATABASE = f"{RESULTS}/databases/{{database}}"
SHARD = f"{DATABASE}/shards/{{shard}}/manifest.json"
MARKED = f"{DATABASE}/near_duplicates/{{shard}}/manifest.json"
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
    return [path.format(**{**dict(wildcards.items()), "shard": f"{shard:05d}"}) for shard in range(count)]


def corpus_inputs(wildcards):
    """The corpus's files and assets; a data set of the hub is read as it streams."""
    named = [source for source in database_of(wildcards).sources if source in assets.entries()]
    files = [path for source in database_of(wildcards).sources for path in sorted(glob(source))]
    return [manifest(name) for name in named] + files


def tokenizer_manifest(wildcards):
    return manifest(database_of(wildcards).tokenizer)


def database_encoder(wildcards):
    return manifest(database_of(wildcards).encoder)


def database_folder(wildcards):
    return DATABASE.format(**wildcards)


def index_folder(wildcards):
    return INDEX.format(**wildcards)


def all_shards(wildcards):
    return of_shards(SHARD, database_of(wildcards).shards, wildcards)


def all_marked(wildcards):
    return of_shards(MARKED, database_of(wildcards).shards, wildcards)


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
