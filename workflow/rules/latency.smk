"""Times: measured alone on the machine, whose own rates are measured first."""


rule machine:
    """Measure memory bandwidth and matrix rates, alone on the machine."""
    output:
        PATHS.machine,
    log:
        f"{PATHS.logs}/machine.log",
    conda:
        ENVIRONMENT
    threads: PLAN.cores
    resources:
        gpu=int(PLAN.on_gpu),
        mem_mb=grown(4000),
        runtime=10,
        slurm_extra=ALONE,
    params:
        device="cuda" if PLAN.on_gpu else "cpu",
        code=code_of("cost.machine"),
    shell:
        "ragauge doctor machine --device {params.device:q} --threads {threads} --out {output:q} 2>&1 | tee {log:q}"


rule latency:
    """Time the method variants of a protocol side by side with a model, alone on the machine."""
    input:
        examples=PATHS.data,
        machine=PATHS.machine,
        model=PLAN.answers.models,
        encoders=PLAN.answers.latency_encoders,
    output:
        PATHS.latency,
    log:
        f"{PATHS.logs}/latency/{{dataset}}/{{model}}.log",
    conda:
        ENVIRONMENT
    threads: PLAN.cores
    resources:
        gpu=PLAN.answers.gpus,
        mem_mb=PLAN.answers.mem_mb,
        runtime=PLAN.answers.runtime,
        slurm_extra=ALONE,
    params:
        config=PATHS.settings,
        settings=PLAN.answers.latency_settings,
        code=PLAN.answers.latency_code,
    shell:
        "ragauge time --config {params.config:q} --dataset {wildcards.dataset:q} --examples {input.examples:q}"
        " --model {wildcards.model:q} --machine {input.machine:q} --out {output:q}"
        " 2>&1 | tee {log:q}"


rule load:
    """Send requests to a model by the load protocol, a method variant after another, alone on the machine."""
    input:
        examples=PATHS.data,
        model=PLAN.answers.models,
        encoders=PLAN.answers.load_encoders,
    output:
        PATHS.load,
    log:
        f"{PATHS.logs}/load/{{dataset}}/{{model}}.log",
    conda:
        ENVIRONMENT
    threads: PLAN.cores
    resources:
        gpu=PLAN.answers.gpus,
        mem_mb=PLAN.answers.mem_mb,
        runtime=PLAN.answers.runtime,
        slurm_extra=ALONE,
    params:
        config=PATHS.settings,
        settings=PLAN.answers.load_settings,
        code=PLAN.answers.load_code,
    shell:
        "ragauge load --config {params.config:q} --dataset {wildcards.dataset:q} --examples {input.examples:q}"
        " --model {wildcards.model:q} --out {output:q}"
        " 2>&1 | tee {log:q}"


rule stream:
    """Ask a model a stream of questions whose documents come back, with a store, alone on the machine."""
    input:
        examples=PATHS.data,
        model=PLAN.answers.models,
        encoders=PLAN.answers.stream_encoders,
    output:
        PATHS.stream,
    log:
        f"{PATHS.logs}/stream/{{dataset}}/{{model}}.log",
    conda:
        ENVIRONMENT
    threads: PLAN.cores
    resources:
        gpu=PLAN.answers.gpus,
        mem_mb=PLAN.answers.mem_mb,
        runtime=PLAN.answers.runtime,
        slurm_extra=ALONE,
    params:
        config=PATHS.settings,
        settings=PLAN.answers.stream_settings,
        code=PLAN.answers.stream_code,
    shell:
        "ragauge stream --config {params.config:q} --dataset {wildcards.dataset:q} --examples {input.examples:q}"
        " --model {wildcards.model:q} --out {output:q}"
        " 2>&1 | tee {log:q}"
