"""Running methods on questions: with real models, timed, and from shapes alone."""
