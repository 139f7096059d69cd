"""Fuzzing: what is run (`targets`), what it starts from (`seeds`), and who runs it (`__main__`, by atheris)."""
