"""Times: measured alone on the machine, whose own rates are measured first."""

LATENCY = EXPERIMENT.latency
TIMED = LATENCY.methods if LATENCY else []
latency_files = (
    [f"{RESULTS}/latency/{model}.json" for model in EXPERIMENT.models]
    if LATENCY
    else []
)


def latency_settings(wildcards):
    """Everything of the configuration that the times of a model depend on."""
    return {
        "model": EXPERIMENT.models[wildcards.model].model_dump(),
        "protocol": LATENCY.model_dump(),
        "variants": {
            name: EXPERIMENT.methods[name].model_dump(exclude={"datasets", "limit"})
            for name in TIMED
        },
    }


def latency_code(wildcards):
    return code_of(
        "costing", *(f"methods.{EXPERIMENT.methods[name].method}" for name in TIMED)
    )


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
            settings=ancient(SETTINGS),
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
            settings=latency_settings,
            code=latency_code,
            dataset=LATENCY.dataset,
            threads=LATENCY.threads or workflow.cores,
        shell:
            "ragauge time --config {input.settings} --dataset {params.dataset} --examples {input.examples}"
            " --model {wildcards.model} --machine {input.machine} --threads {params.threads} --out {output}"
            " 2>&1 | tee {log}"
