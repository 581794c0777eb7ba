"""What leaves the trainer: HF folder, LoRA adapter, GGUF, Ollama, each with an equality test.

Start at `command_line.py`.
"""
