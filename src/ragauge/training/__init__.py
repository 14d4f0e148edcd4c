"""Fine-tuning of decoders: its data, its loop, and the checkpoint that it writes."""
