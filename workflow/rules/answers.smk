"""The answers: one job a data set, model and method variant. A job that was cut off goes on where it was.

Where a data set has `jobs`, its questions are dealt to so many, and their records are gathered in order.
"""


rule answers:
    """Answer a data set's questions with a model under a method variant."""
    input:
        examples=f"{RESULTS}/data/{{dataset}}.jsonl",
        model=model_manifests,
        encoders=answer_encoders,
    output:
        records=update(f"{ANSWERS}.jsonl"),  # what is there and still valid is not asked again
        meta=update(f"{ANSWERS}.meta.json"),
    log:
        f"{LOGS}/answers/{{dataset}}/{{model}}/{{variant}}.log",
    wildcard_constraints:
        dataset=datasets_of(several_jobs=False),
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        gpu=job_gpus,
        mem_mb=job_mem_mb,
        runtime=job_runtime,
    params:
        config=SETTINGS,
        settings=answer_settings,
        code=answer_code,
        part=answer_part,
        documents=f"{RESULTS}/documents",
    shell:
        "ragauge run --config {params.config} --method {wildcards.variant} --dataset {wildcards.dataset}"
        " --examples {input.examples} --model {wildcards.model} --threads {threads}"
        " --documents {params.documents} {params.part} --overwrite --out {output.records}"
        " 2>&1 | tee {log}"


use rule answers as answers_part with:
    output:
        records=update(f"{PART}.jsonl"),
        meta=update(f"{PART}.meta.json"),
    log:
        f"{LOGS}/answers/{{dataset}}/{{model}}/{{variant}}/{{part}}-of-{{jobs}}.log",
    wildcard_constraints:
        dataset=datasets_of(several_jobs=True),
        part="[0-9]+",
        jobs="[0-9]+",


rule gathered_answers:
    """Put the records of a variant's jobs into one file, in the order of the questions."""
    input:
        answer_parts,
    output:
        records=f"{ANSWERS}.jsonl",
        meta=f"{ANSWERS}.meta.json",
    log:
        f"{LOGS}/answers/{{dataset}}/{{model}}/{{variant}}.log",
    wildcard_constraints:
        dataset=datasets_of(several_jobs=True),
    localrule: True
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=grown(1000),
        runtime=30,
    shell:
        "ragauge gather {input} --out {output.records} 2>&1 | tee {log}"
