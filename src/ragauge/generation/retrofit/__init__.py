"""What RETRO-fit adds to a decoder, as it is read from files; `ragauge.training.retrofit` trains it."""
