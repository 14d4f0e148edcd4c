"""Times: measured alone on the machine, whose own rates are measured first."""


rule machine:
    """Measure memory bandwidth and matrix rates, alone on the machine."""
    output:
        f"{RESULTS}/machine.json",
    log:
        f"{LOGS}/machine.log",
    conda:
        ENVIRONMENT
    threads: ALL_CORES
    resources:
        gpu=int(ON_GPU),
        mem_mb=grown(4000),
        runtime=10,
        slurm_extra=ALONE,
    params:
        device="cuda" if ON_GPU else "cpu",
        code=code_of("cost.machine"),
    shell:
        "ragauge machine --device {params.device} --threads {threads} --out {output} 2>&1 | tee {log}"


rule latency:
    """Time the method variants of a protocol side by side with a model, alone on the machine."""
    input:
        examples=f"{RESULTS}/data/{{dataset}}.jsonl",
        machine=f"{RESULTS}/machine.json",
        model=model_manifests,
        encoders=latency_encoders,
    output:
        LATENCY,
    log:
        f"{LOGS}/latency/{{dataset}}/{{model}}.log",
    conda:
        ENVIRONMENT
    threads: ALL_CORES
    resources:
        gpu=job_gpus,
        mem_mb=job_mem_mb,
        runtime=job_runtime,
        slurm_extra=ALONE,
    params:
        config=SETTINGS,
        settings=latency_settings,
        code=latency_code,
    shell:
        "ragauge time --config {params.config} --dataset {wildcards.dataset} --examples {input.examples}"
        " --model {wildcards.model} --machine {input.machine} --out {output}"
        " 2>&1 | tee {log}"
