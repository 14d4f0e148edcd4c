"""Trainings over transformers' Trainer and DeepSpeed: CFIC's fine-tuning and RETRO-fit, their data
and checkpoints.

What is trained is defined elsewhere: evidence in `methods`, decoders that read neighbours in
`pipelines`.
"""
