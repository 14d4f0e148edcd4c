"""The models that are fine-tuned here: what they are trained on, and the training, which goes on where it was cut off."""


rule sft_data:
    """Draw spans of long articles, have a model write their questions, and keep evaluation documents out."""
    input:
        corpora=training_corpora,
        writer=training_writer,
        base=training_base,
        evaluation=training_evaluation,
    output:
        train=f"{TRAINING}/data/train.jsonl",
        held_out=f"{TRAINING}/data/held_out.jsonl",
        manifest=f"{TRAINING}/data/manifest.json",
    log:
        f"{LOGS}/training/{{training}}/data.log",
    conda:
        TRAINING_ENVIRONMENT
    threads: training_threads
    resources:
        mem_mb=grown(4000),
        runtime=240,
        slurm_extra=training_node,
    params:
        config=SETTINGS,
        settings=training_data_settings,
        limits=training_limits,
        code=code_of("verbs.sft", "training.data"),
        folder=f"{TRAINING}/data",
    shell:
        "ragauge sft data --config {params.config} --training {wildcards.training} --evaluation {input.evaluation}"
        " --threads {threads} --out {params.folder} 2>&1 | tee {log}"


rule sft_train:
    """Fine-tune a decoder to CFIC's request for evidence, with DeepSpeed ZeRO-2."""
    input:
        train=f"{TRAINING}/data/train.jsonl",
        held_out=f"{TRAINING}/data/held_out.jsonl",
        manifest=f"{TRAINING}/data/manifest.json",
        base=training_base,
    output:
        model=directory(f"{MODELS}/{{training}}"),
        loss=f"{MODELS}/{{training}}.loss.csv",
        manifest=f"{MODELS}/{{training}}.json",
    log:
        f"{LOGS}/training/{{training}}/train.log",
    conda:
        TRAINING_ENVIRONMENT
    threads: training_threads
    resources:
        mem_mb=grown(8000),
        runtime=720,
        gpu=training_gpus,
        slurm_extra=training_node,
    params:
        config=SETTINGS,
        settings=training_settings,
        code=code_of("verbs.sft", "training.loop"),
        data=training_data_folder,
        checkpoints=f"{TRAINING}/checkpoints",
    shell:
        "ragauge sft train --config {params.config} --training {wildcards.training} --data {params.data}"
        " --checkpoints {params.checkpoints} --threads {threads} --out {output.model} 2>&1 | tee {log}"
