"""Retrieval servers that are jobs of their own, where pipelines have `server: job`: on a cluster, on nodes of theirs.

A server runs at the same time as its pipelines, so that neither is an input of the other: they find each other by files.
"""


rule server_credentials:
    """Make a certificate and a token for servers that nobody but the pipelines of this folder may ask."""
    output:
        cert=CREDENTIALS.format("cert.pem"),
        key=CREDENTIALS.format("key.pem"),
        token=CREDENTIALS.format("token"),
    log:
        "logs/servers/credentials.log",
    localrule: True
    conda:
        ENVIRONMENT
    shell:
        "(umask 077; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650"
        " -subj /CN=ragauge-server -addext subjectAltName=DNS:ragauge-server -keyout {output.key:q} -out {output.cert:q}"
        " && openssl rand -hex -out {output.token:q} 32) 2>&1 | tee {log:q}"


rule server_needs:
    """Wait until everything is made that the pipelines of a server read."""
    input:
        PLAN.servers.needs,
    output:
        touch(PATHS.server_needs),
    localrule: True


rule retrieval_server:
    """Serve an index until the pipelines of the run that ask it have ended."""
    input:
        PATHS.server_needs,
    output:
        temp(touch(PATHS.server_ended)),  # the next run that needs it begins it again
    log:
        f"{PATHS.logs}/servers/{{database}}/{{index}}.log",
    priority: 100  # a pipeline that started first would wait for it
    conda:
        ENVIRONMENT
    threads: PLAN.servers.threads
    resources:
        mem_mb=PLAN.servers.mem_mb,
        runtime=PLAN.servers.runtime,
    params:
        folder=PATHS.database,
        options=PLAN.servers.options,
        clients=PATHS.server_clients,
        address=PATHS.server_address,
        failed=f"{PATHS.server_address}.failed",
        code=PLAN.servers.code,
    shell:
        "rm -f {params.failed:q}; (ragauge serve --database {params.folder:q} --index {wildcards.index:q} --port 0"
        " --threads {threads} {params.options:q} --address-file {params.address:q} --until {params.clients:q}"
        " || {{ touch {params.failed:q}; exit 1; }}) 2>&1 | tee {log:q}"


rule served_pipeline:
    """As `pipeline`, with the server of a job."""
    input:
        needs=ancient(PLAN.index_path(PATHS.server_needs)),
        database=PLAN.index_path(PATHS.gathered),
        index=PLAN.pipelines.index,
        model=PLAN.pipelines.decoder,
        adapters=PLAN.pipelines.adapters,
        export=PLAN.pipelines.export,
    output:
        records=f"{PATHS.served}.jsonl",
        meta=f"{PATHS.served}.meta.json",
    log:
        f"{PATHS.logs}/pipelines/{{pipeline}}.log",
    wildcard_constraints:
        pipeline=PLAN.pipelines.label_pattern(job=True),
    priority: 50  # as long as they wait, their server does nothing
    conda:
        ENVIRONMENT
    threads: PLAN.pipelines.threads
    resources:
        gpu=PLAN.pipelines.gpus,
        mem_mb=PLAN.pipelines.mem_mb,
        runtime=PLAN.pipelines.runtime,
        slurm_extra=PLAN.servers.begin,
    params:
        config=PATHS.settings,
        specification=PLAN.pipelines.specification,
        options=PLAN.servers.pipeline_options,
        folder=PLAN.index_path(PATHS.database),
        failed=f"{PATHS.served}.jsonl.failed",
        code=PLAN.pipelines.code,
    shell:
        "rm -f {params.failed:q}; (ragauge piperag run --config {params.config:q} --entry {wildcards.pipeline:q}"
        " --database {params.folder:q} {params.options:q} --out {output.records:q}"
        " || {{ touch {params.failed:q}; exit 1; }}) 2>&1 | tee {log:q}"


rule gathered_pipeline:
    """Take over a pipeline's records when its server has ended."""
    input:
        records=f"{PATHS.served}.jsonl",
        meta=f"{PATHS.served}.meta.json",
        ended=PLAN.index_path(PATHS.server_ended),
    output:
        records=f"{PATHS.pipeline}.jsonl",
        meta=f"{PATHS.pipeline}.meta.json",
    log:
        f"{PATHS.logs}/pipelines/{{pipeline}}-gathered.log",
    wildcard_constraints:
        pipeline=PLAN.pipelines.label_pattern(job=True),
    localrule: True
    conda:
        ENVIRONMENT
    shell:
        "(cp {input.records:q} {output.records:q} && cp {input.meta:q} {output.meta:q}) 2>&1 | tee {log:q}"
