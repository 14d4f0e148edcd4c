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


for protocol, verb in PLAN.timing.verbs.items():

    rule:
        name:
            protocol
        input:
            examples=PATHS.data,
            machine=PLAN.timing.machine(protocol),
            model=PLAN.answers.models,
            encoders=PLAN.timing.encoders(protocol),
            answers=ancient(PLAN.timing.answers(protocol)),
        output:
            getattr(PATHS, protocol),
        log:
            f"{PATHS.logs}/{protocol}/{{dataset}}/{{model}}.log",
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
            verb=verb,
            machine=[f"--machine={path}" for path in PLAN.timing.machine(protocol)],
            settings=PLAN.timing.settings(protocol),
            code=PLAN.timing.code(protocol),
        shell:
            "ragauge {params.verb:q} --config {params.config:q} --dataset {wildcards.dataset:q}"
            " --examples {input.examples:q} --model {wildcards.model:q} {params.machine:q} --out {output:q}"
            " 2>&1 | tee {log:q}"

    # What `snakemake --list-rules` shows.
    getattr(rules, protocol).rule.docstring = (
        f"Measure method variants by the {protocol} protocol, alone on the machine."
    )
