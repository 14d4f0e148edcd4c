"""The answers: one job a data set, model and method variant. A job that was cut off goes on where it was.

Where a data set has `jobs`, its questions are dealt to so many, and their records are gathered in order.
"""


rule answers:
    """Answer a data set's questions with a model under a method variant."""
    input:
        examples=PATHS.data,
        model=PLAN.answers.models,
        encoders=PLAN.answers.encoders,
    output:
        records=update(f"{PATHS.answers}.jsonl"),  # records that are still valid remain
        meta=update(f"{PATHS.answers}.meta.json"),
    log:
        f"{PATHS.logs}/answers/{{dataset}}/{{model}}/{{variant}}.log",
    wildcard_constraints:
        dataset=PLAN.answers.labels_of_datasets(several_jobs=False),
    conda:
        ENVIRONMENT
    resources:
        gpu=PLAN.answers.gpus,
        mem_mb=PLAN.answers.mem_mb,
        runtime=PLAN.answers.runtime,
    params:
        config=PATHS.settings,
        specification=PLAN.answers.specification,
        limit=PLAN.config.limit,
        code=PLAN.answers.code,
        part=PLAN.answers.part_option,
        documents=PATHS.documents,
    shell:
        "ragauge run --config {params.config:q} --method {wildcards.variant:q} --dataset {wildcards.dataset:q}"
        " --examples {input.examples:q} --model {wildcards.model:q} --threads {threads}"
        " --document-store {params.documents:q} {params.part:q} --overwrite --allow-failed --out {output.records:q}"
        " 2>&1 | tee {log:q}"


use rule answers as answers_part with:
    output:
        records=update(f"{PATHS.part}.jsonl"),
        meta=update(f"{PATHS.part}.meta.json"),
    log:
        f"{PATHS.logs}/answers/{{dataset}}/{{model}}/{{variant}}/{{part}}-of-{{jobs}}.log",
    wildcard_constraints:
        dataset=PLAN.answers.labels_of_datasets(several_jobs=True),
        part="[0-9]+",
        jobs="[0-9]+",


rule gathered_answers:
    """Put the records of a variant's jobs into one file, in the order of the questions."""
    input:
        PLAN.answers.parts,
    output:
        records=f"{PATHS.answers}.jsonl",
        meta=f"{PATHS.answers}.meta.json",
    log:
        f"{PATHS.logs}/answers/{{dataset}}/{{model}}/{{variant}}.log",
    wildcard_constraints:
        dataset=PLAN.answers.labels_of_datasets(several_jobs=True),
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=grown(1000),
        runtime=30,
    shell:
        "ragauge run --gather {input:q} --out {output.records:q} 2>&1 | tee {log:q}"


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
        code=code_of("measure.judging"),
    shell:
        "ragauge judge {input.records:q} {params.judge:q} --threads {threads} --out {output:q} 2>&1 | tee {log:q}"
