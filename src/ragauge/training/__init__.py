"""Fine-tuning of decoders: the data it is done on, the loop, and the checkpoint that comes out of it."""
