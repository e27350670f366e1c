"""What lets a run resume: its state, the two checkpoint files, and reading and writing both."""
