"""The models that are fine-tuned here: what they are trained on, and the training, which goes on where it was cut off."""


rule sft_data:
    """Draw spans of long articles, have a model write their questions, and keep evaluation documents out."""
    input:
        corpora=PLAN.training.corpora,
        writer=PLAN.training.writer,
        base=PLAN.asset("training/{training}/model"),
        evaluation=PLAN.training.evaluation,
    output:
        train=f"{PATHS.training}/data/train.jsonl",
        held_out=f"{PATHS.training}/data/held_out.jsonl",
        manifest=f"{PATHS.training}/data/manifest.json",
    log:
        f"{PATHS.logs}/training/{{training}}/data.log",
    conda:
        TRAINING_ENVIRONMENT
    threads: PLAN.training.threads
    resources:
        mem_mb=grown(4000),
        runtime=PLAN.training.data_runtime,
        slurm_extra=PLAN.training.node,
    params:
        config=PATHS.settings,
        settings=PLAN.training.data_settings,
        limits=PLAN.training.limits,
        code=code_of("cli.sft", "training.data"),
        folder=f"{PATHS.training}/data",
    shell:
        "ragauge sft data --config {params.config:q} --entry {wildcards.training:q} --evaluation {input.evaluation:q}"
        " --threads {threads} --out {params.folder:q} 2>&1 | tee {log:q}"


rule sft_train:
    """Fine-tune a decoder to CFIC's request for evidence, with DeepSpeed ZeRO-2."""
    input:
        data=rules.sft_data.output,
        base=PLAN.asset("training/{training}/model"),
    output:
        model=directory(PATHS.trained),
        loss=f"{PATHS.trained}.loss.csv",
        manifest=f"{PATHS.trained}.json",
    log:
        f"{PATHS.logs}/training/{{training}}/train.log",
    conda:
        TRAINING_ENVIRONMENT
    threads: PLAN.training.threads
    resources:
        mem_mb=PLAN.training.mem_mb,
        runtime=PLAN.training.runtime,
        gpu=PLAN.training.gpus,
        slurm_extra=PLAN.training.node,
    params:
        config=PATHS.settings,
        settings=PLAN.entry("training/{training}"),
        code=code_of("cli.sft", "training.finetuning"),
        data=filled(f"{PATHS.training}/data"),
        checkpoints=f"{PATHS.training}/checkpoints",
    shell:
        "ragauge sft train --config {params.config:q} --entry {wildcards.training:q} --data {params.data:q} --gpus {resources.gpu}"
        " --checkpoints {params.checkpoints:q} --threads {threads} --out {output.model:q} 2>&1 | tee {log:q}"
