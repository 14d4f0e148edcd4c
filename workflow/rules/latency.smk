"""Times: measured alone on the machine, whose own rates are measured first."""


rule machine:
    """Measure memory bandwidth and matrix rates, alone on the machine."""
    output:
        f"{RESULTS}/machine.json",
    log:
        f"{LOGS}/machine.log",
    conda:
        ENVIRONMENT
    threads: workflow.cores
    resources:
        mem_mb=4000,
        runtime=10,
    params:
        device="cuda" if ON_GPU else "cpu",
        code=code_of("cost.machine"),
    shell:
        "ragauge machine --device {params.device} --threads {threads} --out {output} 2>&1 | tee {log}"


if LATENCY:

    rule latency:
        """Time the method variants side by side with a model, alone on the machine."""
        input:
            examples=f"{RESULTS}/data/{LATENCY.dataset}.jsonl",
            machine=f"{RESULTS}/machine.json",
            model=model_manifest,
            encoders=encoder_manifests(*TIMED),
        output:
            f"{RESULTS}/latency/{{model}}.json",
        log:
            f"{LOGS}/latency/{{model}}.log",
        conda:
            ENVIRONMENT
        threads: workflow.cores
        resources:
            mem_mb=6000,
            runtime=240,
        params:
            config=SETTINGS,
            settings=latency_settings,
            code=latency_code,
            dataset=LATENCY.dataset,
        shell:
            "ragauge time --config {params.config} --dataset {params.dataset} --examples {input.examples}"
            " --model {wildcards.model} --machine {input.machine} --out {output}"
            " 2>&1 | tee {log}"
