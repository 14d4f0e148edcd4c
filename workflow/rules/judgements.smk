"""Whether evidence supports the answers, judged by a language model; the next run asks for what it did not answer."""


rule judgements:
    """Judge whether the evidence of a variant supports the answers, or the answers."""
    input:
        records=f"{PATHS.answers}.jsonl",
        judge=PLAN.judgements.judge,
        examples=PLAN.judgements.examples,
    output:
        update(PATHS.judgements),  # judgements of the same question remain
    log:
        f"{PATHS.logs}/judgements/{{dataset}}/{{model}}/{{variant}}.log",
    conda:
        ENVIRONMENT
    resources:
        gpu=PLAN.judgements.gpus,
        mem_mb=grown(8000),
        runtime=240,
    params:
        judge=PLAN.judgements.options,
        code=code_of("cli.judge", "evidence.judge"),
    shell:
        "ragauge judge {input.records:q} {params.judge:q} --threads {threads} --out {output:q} 2>&1 | tee {log:q}"
