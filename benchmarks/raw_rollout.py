"""Generate with one raw `vllm.LLM` at its best settings and print one JSON line. Started by `against_peers.py`.

usage: raw_rollout.py MODEL_FOLDER [--tasks 64] [--rollouts 8] [--tokens 256] [--repeats 4]
"""

import argparse
import json
import os
import time
from typing import Any

import torch
from bars import add_work
from story_family import SUBJECTS, prompt
from transformers import AutoTokenizer

from skyrl_nat.engines.vllm_arguments import set_environment

DECODE_GRAPHS = {
    "mode": 0,
    "cudagraph_mode": "FULL_DECODE_ONLY",
    "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512],
}
"""The fastest of those tried, and the product's own preset."""


def story_prompts(options: Any) -> list[Any]:
    """Return the prompts of the work, one `TokensPrompt` per rollout."""
    from vllm import TokensPrompt

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    prompts: list[Any] = []
    for number in range(options.tasks):
        messages = [{"role": "user", "content": prompt(SUBJECTS[number % (len(SUBJECTS) - 1)])}]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
        prompts += [TokensPrompt(prompt_token_ids=ids)] * options.rollouts
    return prompts


def main() -> None:
    """Generate the same work several times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_work(parser)
    parser.add_argument("--repeats", type=int, default=4)
    options = parser.parse_args()
    is_gpu = torch.cuda.is_available()
    set_environment(is_cpu=not is_gpu, num_threads=os.cpu_count() or 1)

    from vllm import LLM, SamplingParams

    settings: dict[str, Any] = {"gpu_memory_utilization": 0.85, "compilation_config": DECODE_GRAPHS}
    if not is_gpu:
        settings = {"dtype": "float32", "enforce_eager": True, "kv_cache_memory_bytes": 2**30}
    started = time.perf_counter()
    llm = LLM(
        options.model,
        max_model_len=options.tokens + 256,
        max_num_seqs=512,
        generation_config="vllm",
        disable_log_stats=True,
        **settings,
    )
    start_s = time.perf_counter() - started
    prompts = story_prompts(options)
    sampling = SamplingParams(temperature=1.0, max_tokens=options.tokens, logprobs=0, detokenize=False)
    rows: list[dict[str, float]] = []
    for _ in range(options.repeats):
        llm.reset_prefix_cache()
        started = time.perf_counter()
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - started
        tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
        rows.append({"seconds": seconds, "tokens": tokens, "tokens_per_s": tokens / seconds})
    print(json.dumps({"start_s": start_s, "repeats": rows}))


if __name__ == "__main__":
    main()
