"""The plan of jobs: what each reads, what its result depends on, and the resources it takes."""
