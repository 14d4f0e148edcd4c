"""RETRO-fit: a decoder that reads retrieved neighbours while it generates; its schedules, training and export."""
