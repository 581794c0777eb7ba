"""Deliberate faults in what leaves the trainer; see `deliberate_faults.py`."""

from fault import Fault, in_file

# fmt: off
EXPORT_FAULTS: list[Fault] = [
    *in_file("export/equality.py", "export/test_equality.py",
        ("differences-allowed", "if limit is not None and not (difference <= limit and same[-1]):", "if False:"),
        ("mean-without-limit", "if not mean <= tolerance.mean:", "if mean < 0:"),
        ("other-tokens-allowed", "if agreement < tolerance.agreement:", "if False:"),
        ("nan-is-equal", "if not math.isfinite(logprob):", "if False:"),
        ("every-token-a-tie", "and loss <= limit)", "and loss <= math.inf)"),
        ("played-from-its-own-token", "if token != expected[len(found) - 1]:", "if False:"),
        ("strictest-of-formats", "mean=max(each.mean", "mean=min(each.mean")),
    *in_file("export/hf.py", "export/test_hf.py",
        ("empty-file-passes", "elif not path.stat().st_size:", "elif False:"),
        ("nan-passes", "or bool(torch.isfinite(tensor).all())", "or True"),
        ("fewer-rows-than-tokens", "if highest >= rows:", "if False:"),
        ("other-template-wins", "chosen = inside if apart is None else apart",
         "chosen = inside if isinstance(inside, str) else apart"),
        ("drifted-tie-passes", "torch.equal(one, other):", "one.numel():")),
    *in_file("export/lora.py", "export/test_lora.py",
        ("unknown-tensor-passes", "or target not in weights.files:", "or False:"),
        ("half-an-adapter-passes", "if len(matrices) < 2]", "if len(matrices) < 1]")),
    *in_file("checkpoint/adapters.py", "export/test_lora.py",
        ("merged-twice", "if digest in known:", "if False:"),
        ("tied-under-another-name", " if name not in merged.all_tied_weights_keys", "")),
    *in_file("export/ollama_template.py", "export/test_ollama_template.py",
        ("unproved-template", "if made != expected:", "if False:"),
        ("start-token-twice", '{"head": found.head.removeprefix(bos)', '{"head": found.head')),
    *in_file("export/ollama.py", "export/test_ollama.py",
        ("prompt-not-compared", "if shown not in (expected, expected.removeprefix(bos)):", "if False:"),
        ("count-not-compared", "if count != wanted:", "if False:"),
        ("failed-model-stays", "await client.delete(name)", "pass")),
    *in_file("checkpoint/pretrained.py", "checkpoint/test_pretrained.py",
        ("all-tensors-in-memory", "for name, tensor in coming:", "for name, tensor in list(coming):")),
    *in_file("checkpoint/tensor_file.py", "checkpoint/test_pretrained.py",
        ("every-tensor-at-the-beginning", "offsets[name], end = end, end +", "offsets[name], end = 0, end +")),
]
