"""Fine-tuning of CFIC's evidence finder: its data, its loop over transformers' Trainer, its checkpoints.

RETRO-fit, the training of PipeRAG's decoders, belongs to `pipelines`.
"""
