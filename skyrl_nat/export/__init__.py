"""What leaves the trainer: HF folder, LoRA adapter, GGUF, Ollama, each with an equality test.

Start at `exporting.py`, which writes, tests and only then renames; `equality.py` holds the tolerances.
"""
