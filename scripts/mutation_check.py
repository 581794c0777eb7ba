"""Put deliberate faults into copies of the package, one at a time, and show that tests notice each.

usage: mutation_check.py [--only NAME] [--jobs 2]

Every fault replaces one string of one file; the string must occur there exactly once. A fault counts as caught where
one of the named test files fails with an assertion or a wrong result, not with a program that cannot run. Prints JSON
on stdout and progress on stderr; exits 1 if a fault survives, 2 if the check itself is broken.
"""

import argparse
import importlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("skyrl_nat", "conf", "tests", "pyproject.toml")
PRELOADED = (
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint",
    "torch.multiprocessing",
    "transformers.models.llama.modeling_llama",
    "transformers.models.auto.modeling_auto",
    "hydra",
)
"""What is slow to import, and no part of what is tested."""
OUTPUT = "output.txt"
NO_FAULT = "no-fault"
WRONG_PACKAGE = 97
BROKEN = re.compile(r"^(?:FAILED|ERROR) .* - (?:NameError|SyntaxError|ImportError|ModuleNotFound|UnboundLocal)", re.M)


class CheckError(Exception):
    """The check itself cannot go on."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One deliberate fault."""

    path: str
    """Below `skyrl_nat`; empty for no fault at all."""
    tests: tuple[str, ...]
    """Test files below `tests/unit` that should notice."""
    name: str
    old: str
    new: str


def in_file(path: str, tests: str, *faults: tuple[str, str, str]) -> list[Fault]:
    """Return faults of one file as `(name, old, new)` that the same test files, split by blanks, should notice."""
    return [Fault(path, tuple(tests.split()), *fault) for fault in faults]


# fmt: off
FAULTS = [
    *in_file("algorithms/advantages.py", "algorithms/test_advantages.py",
        ("population-deviation", "(centred / (values.std(correction=1)", "(centred / (values.std(correction=0)"),
        ("large-epsilon", "STD_EPS = 1e-6", "STD_EPS = 1e-3"),
        ("rounding-is-signal", "<= ZERO_SPREAD_TOLERANCE * scale", "<= 0.0"),
        ("group-of-one-has-signal", "numel() < 2:\n        return True", "numel() < 2:\n        return False"),
        ("advantage-sign", "centred = values - values.mean()", "centred = values.mean() - values"),
        ("no-baseline", "centred = values - values.mean()", "centred = values"),
        ("dr-grpo-divided", " (values - values.mean()).to(", " ((values - values.mean()) / values.std()).to("),
        ("rloo-counts-itself", "(values.sum() - values) / (values.numel() - 1)", "values.sum() / values.numel()"),
        ("maxrl-by-deviation", "- values.mean()) / values.mean())", "- values.mean()) / values.std())"),
        ("gamma-ignored", "rewards[index] + gamma * running", "rewards[index] + running"),
        ("return-across-sequences", "in pairwise(borders):", "in [(borders[0], borders[-1])]:"),
        ("return-lost-at-observation", ".nonzero()[:, 0] + start\n", ".nonzero()[-2:, 0] + start\n"),
        ("whitened-by-population", "(wide.std(correction=1)", "(wide.std(correction=0)"),
        ("overlong-without-buffer", "num_tokens - (limit - buffer)", "num_tokens - limit")),
    *in_file("algorithms/coefficients.py", "algorithms/test_coefficients.py",
        ("kl-coefficient-wrong-way", "(1.0 + error *", "(1.0 - error *"),
        ("entropy-bonus-wrong-way", "if measured < target else", "if measured > target else")),
    *in_file("algorithms/covariance.py", "algorithms/test_covariance.py",
        ("covariance-not-centred", "(advantages - advantages.mean())", "advantages"),
        ("smallest-covariances", "(share * covariances.numel()))", "(share * covariances.numel()), largest=False)"),
        ("covariance-without-range", "(covariances >= low) & (covariances <= high)", "covariances >= low")),
    *in_file("algorithms/kl.py", "algorithms/test_kl.py",
        ("kl-direction", "logprobs - ref_logprobs.detach(), 0.0", "ref_logprobs.detach() - logprobs, 0.0"),
        ("kl-without-gradient", "logprobs - ref_logprobs.detach(), 0.0", "logprobs.detach() - ref_logprobs, 0.0"),
        ("reference-not-detached", "- ref_logprobs.detach(), 0.0", "- ref_logprobs, 0.0"),
        ("kl-of-masked-tokens", "torch.where(loss_mask, logprobs - ref_logprobs.detach(), 0.0)",
         "logprobs - ref_logprobs.detach()"),
        ("k2-without-half", "0.5 * k1(", "1.0 * k1("),
        ("k3-exponent-sign", "torch.expm1(-difference) + difference", "torch.expm1(difference) - difference"),
        ("abs-is-k1", "k1(logprobs, ref_logprobs, loss_mask).abs()", "k1(logprobs, ref_logprobs, loss_mask)"),
        ("kl-weight-inverse", "return log_ratio.exp() * kl", "return (-log_ratio).exp() * kl"),
        ("kl-weight-detached", "return log_ratio.exp() * kl", "return log_ratio.detach().exp() * kl")),
    *in_file("algorithms/losses.py", "algorithms/test_losses.py",
        ("loss-sign", "plain = -ratio * kept", "plain = ratio * kept"),
        ("ratio-inverse", "logprobs - old_logprobs.detach(), 0.0", "old_logprobs.detach() - logprobs, 0.0"),
        ("old-not-detached", "- old_logprobs.detach(), 0.0", "- old_logprobs, 0.0"),
        ("clip-sides-swapped", "-ratio.clamp(1.0 - constants.clip_low, 1.0 + constants.clip_high)",
         "-ratio.clamp(1.0 - constants.clip_high, 1.0 + constants.clip_low)"),
        ("upper-clip-missing", "-ratio.clamp(1.0 - constants.clip_low, 1.0 + constants.clip_high)",
         "-ratio.clamp(min=1.0 - constants.clip_low)"),
        ("optimistic-clip", "torch.maximum(plain, clipped)", "torch.minimum(plain, clipped)"),
        ("dual-clip-ignored", "if constants.dual_clip > 0:", "if constants.dual_clip > 1e9:"),
        ("dual-clip-of-good-tokens", "(kept < 0) & (losses > ceiling)", "losses > ceiling"),
        ("masked-nan-in-the-loss", "torch.where(tokens.loss_mask, values, 0.0)", "values * tokens.loss_mask"),
        ("unbounded-ratio", ".clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()", ".exp()"),
        ("gspo-product", "means = sequence_means(", "means = sequence_sums("),
        ("mean-over-padding", ".ones_like(values), loss_mask,", ".ones_like(values), torch.ones_like(loss_mask),"),
        ("cispo-ratio-has-gradient", "ratio = _ratio(tokens).detach()", "ratio = _ratio(tokens)"),
        ("sapo-temperatures-swapped", "masked_fill(advantages > 0,", "masked_fill(advantages <= 0,"),
        ("clip-cov-keeps-gradient", "loss.losses.detach(), loss.losses)", "loss.losses, loss.losses)"),
        ("kl-cov-without-abs", "* log_ratio.abs(), 0.0)", "* log_ratio, 0.0)"),
        ("kto-baseline-sign", "(rewards - constants.kto_baseline)", "(rewards + constants.kto_baseline)"),
        ("kto-label-ignored", ") * advantages.sign()", ")")),
    *in_file("algorithms/off_policy.py", "algorithms/test_off_policy.py",
        ("tis-inverse", " log_ratio.exp().clamp(max=bounds.high)", " (-log_ratio).exp().clamp(max=bounds.high)"),
        ("tis-without-cap", "return log_ratio.exp().clamp(max=bounds.high)", "return log_ratio.exp()"),
        ("icepop-cuts", " = log_ratio.exp()\n    ", " = log_ratio.exp().clamp(bounds.low, bounds.high)\n    "),
        ("geometric-product", "sequence_means(log_ratio, loss_mask, ", "sequence_sums(log_ratio, loss_mask, "),
        ("outlier-on-one-side", "log_ratio.abs() > -torch", "-log_ratio > -torch")),
    *in_file("algorithms/reduction.py", "algorithms/test_reduction.py",
        ("mean-of-means", "[1.0 if count else 0.0", "[1.0 / count if count else 0.0"),
        ("masked-in-denominator", "float(sum(total > 0 for total in totals.values()))", "float(len(totals))"),
        ("divisor-of-the-batch", "1.0 / max_tokens_divisor if", "1.0 / max(num_loss_tokens) if"),
        ("segments-count-alone", "return _mean_per(rollout_ids, num_loss_tokens)\n",
         "return _mean_per([str(i) for i in range(len(rollout_ids))], num_loss_tokens)\n"),
        ("sequences-by-length", "[1.0 / totals[name] if", "[1.0 if")),
    *in_file("batching/advantages.py", "batching/test_advantages.py",
        ("advantage-on-context", "[value if is_sampled else 0.0 for is_sampled in rollout", "[value for _ in rollout"),
        ("filter-sees-penalty", "has_zero_spread(_totals(group.valid_rollouts))",
         "has_zero_spread(_totals(all := group.valid_rollouts) - torch.tensor([len(r.token_ids) for r in all]))"),
        ("penalty-as-bonus", "return config.overlong_penalty *", "return -config.overlong_penalty *"),
        ("turn-reward-one-late", "places[max(end - 1, 0)]", "places[min(end, len(places) - 1)]"),
        ("reward-counted-twice", "else:\n        rewards[places[-1]] += rollout.", "rewards[places[-1]] += rollout."),
        ("kto-label-inverted", "if is_desirable else", "if not is_desirable else")),
    *in_file("batching/samples.py", "batching/test_samples.py",
        ("truncated-kept", "if mask_truncated and", "if not mask_truncated and"),
        ("segments-are-rollouts", "rollout_id=rollout.rollout_id,", 'rollout_id=f"{rollout.rollout_id}#{number}",'),
        ("mask-shifted", "=rollout.loss_mask[start:end]", "=[False, *rollout.loss_mask[start : end - 1]]"),
        ("nan-logprob-trained", "not math.isfinite(value)", "math.isinf(value)")),
    *in_file("batching/packing.py", "batching/test_packing.py",
        ("filler-has-weight", "token_weights=torch.zeros(2)", "token_weights=torch.ones(2)"),
        ("positions-go-on", "torch.cat([torch.arange(n, dtype=torch.int64) for n in lengths])",
         "torch.arange(sum(lengths), dtype=torch.int64)"),
        ("weights-of-others", "[token_weights[i] for i in b]", "list(token_weights[: len(b)])"),
        ("context-has-weight", "token_weights=torch.where(mask, weights, 0.0)", "token_weights=weights"),
        ("all-but-first-is-loss", "[m for s in samples for m in s.loss_mask]",
         "[i > 0 for s in samples for i in range(s.num_tokens)]"),
        ("unequal-micro-batches", "for _ in range(length - len(row))", "for _ in range(0)"),
        ("sample-dropped", "place.indices.extend(bundle.indices)", "place.indices = place.indices or bundle.indices"),
        ("bf16-logprobs", ".tensor(rollout, dtype=torch.float32)", ".tensor(rollout, dtype=torch.bfloat16).float()"),
        ("group-torn-apart", "groups.setdefault(sample.group_id, [])", "groups.setdefault(sample.sample_id, [])")),
    *in_file("batching/prefixes.py", "batching/test_prefixes.py",
        ("last-token-shared", "len(sequence) - 1)", "len(sequence))"),
        ("prefix-one-too-long", "high = middle\n    return low", "high = middle\n    return high"),
        ("prefix-of-the-first", "sequences[index - 1]) if index", "sequences[0]) if index")),
    *in_file("batching/shaping.py", "batching/test_shaping.py",
        ("whitened-per-micro-batch", 'tokens.put("advantages", whiten(tokens.get("advantages")))',
         '[t.put("advantages", whiten(t.get("advantages"))) for m in micro_batches for t in [_BatchTokens([m])]]'),
        ("kl-rewarded", "- coefficient * to_go", "+ coefficient * to_go"),
        ("kl-not-to-go", "coefficient * to_go", "coefficient * kl"),
        ("values-to-other-samples", "packed[self._order] = values", "packed[:] = values"),
        ("kl-stays-in-its-segment", 'rollout, _, segment = name.partition("#")', 'rollout, segment = name, ""')),
    *in_file("batching/mismatch.py", "batching/test_mismatch.py",
        ("pairs-that-match", "members[place - 1][number", "members[place][number"),
        ("pairs-of-any-length", "other_start + longest - start", "other_start + longest"),
        ("negative-kl", "max(total / count, 0.0)", "(total / count)")),
    *in_file("workers/objective.py", "workers/test_objective.py",
        ("correction-ignored", "(weights * correction * policy.losses)", "(weights * policy.losses)"),
        ("correction-inverse", "(old, micro_batch.rollout_logprobs, mask", "(micro_batch.rollout_logprobs, old, mask"),
        ("outliers-kept", "lowest_ratio=config.outlier_ratio", "lowest_ratio=0.0"),
        ("entropy-sign", "numerator - constants.entropy_coefficient", "numerator + constants.entropy_coefficient"),
        ("kl-twice", "and not config.kl_in_reward", ""),
        ("kl-weight-ignored", " if config.kl_importance_weighted else", " if False else"),
        ("clip-high-not-passed", "clip_high=config.clip_high", "clip_high=config.clip_low"),
        ("dual-clip-not-passed", "dual_clip=config.dual_clip", "dual_clip=0.0"),
        ("kto-baseline-not-passed", "kto_baseline=constants.kto_baseline", "kto_baseline=0.0"),
        ("entropy-of-observations", " = torch.where(mask, entropies, 0.0)", " = torch.nan_to_num(entropies)"),
        ("metric-by-weights", 'clip_fraction": value["clipped"] / tokens', 'clip_fraction": value["clipped"] / scale'),
        ("ratio-metric-cut", "(logprobs, old, mask).double()", "(logprobs, old, mask).double().clamp(-20.0, 20.0)")),
    *in_file("workers/logprobs.py", "workers/test_logprobs.py",
        ("temperature-ignored", "logits.div_(temperature)", "logits"),
        ("gradient-without-temperature", "grad_logits.div_(ctx.temperature)", "grad_logits"),
        ("entropy-gradient-sign", ".mul_(-grad_entropies", ".mul_(grad_entropies"),
        ("last-chunk-lost", " start in range(0, targets.numel(), ctx", " start in range(0, targets.numel() - 1, ctx")),
    *in_file("workers/model.py", "workers/test_model.py workers/test_policy.py",
        ("dropout-on", "setattr(hf_config, name, 0.0)", "setattr(hf_config, name, 0.5)"),
        ("shifted-by-one", "hidden[source[places - 1]]", "hidden[source[places]]"),
        ("mean-over-ranks", "part.set_gradient_divide_factor(1.0)", "part.set_gradient_divide_factor(2.0)")),
    *in_file("workers/policy.py", "workers/test_policy.py",
        ("rank-dropped", "dist.all_reduce(sums)", "sums.mul_(2.0)"),
        ("divided-by-accumulation", ", constants, ", ", StepConstants(denominator=denominator * len(micro_batches)), "),
        ("nan-applied", "is_applied = math.isfinite(grad_norm)", "is_applied = True"),
        ("schedule-steps-on-load", '.num_steps = counters["num_steps"]', '.num_steps = counters["num_steps"] + 1')),
    *in_file("workers/attention.py", "workers/test_attention.py",
        ("not-causal", "attn_mask=mask, is_causal=mask is None,", "attn_mask=mask, is_causal=False,"),
        ("prefix-misaligned", ".tril(num_keys - num_queries)", ".tril()")),
    *in_file("controller/update.py", "controller/test_update.py",
        ("denominator-of-a-rank", "denominator=denominator,", "denominator=denominator / run.policy.size,"),
        ("old-logprobs-as-reference", 'needs_old_logprobs:\n            await _attach(run.policy, grid, "old',
         'needs_old_logprobs:\n            await _attach(run.policy, grid, "ref'),
        ("last-update-for-all", "sum(values) / len(values)", "values[-1]"),
        ("first-ratio-of-the-last", 'results[0]["loss/log_ratio_mean"]', 'results[-1]["loss/log_ratio_mean"]'),
        ("truncated-tokens-expected", " not (algorithm.mask_truncated and", " not (not algorithm.mask_truncated and"),
        ("coefficient-not-adapted", ".coefficients.kl,\n        ", ".config.algorithm.kl_coefficient,\n        ")),
    *in_file("rollouts/producer.py", "rollouts/test_producer.py",
        ("one-batch-too-far", "(self._trained_batches + 1 +", "(self._trained_batches + 2 +"),
        ("one-version-too-old", "oldest > self._limits.staleness", "oldest > self._limits.staleness + 1"),
        ("staleness-at-start", "._trained_batches += 1\n        self._version = version", "._trained_batches += 1"),
        ("stale-group-trained", "stale_groups += 1\n            return False", "stale_groups += 1"),
        ("position-one-short", "group.index + 1", "group.index"),
        ("drops-not-counted", "self.counts.dropped_groups += 1", "self.counts.dropped_groups += 0")),
    *in_file("types.py", "rollouts/test_producer.py batching/test_advantages.py monitoring/test_metrics.py",
        ("newest-member-counts", "return min((r.oldest_version", "return max((r.oldest_version"),
        ("newest-token-counts", " min((v for v in self.token_versions", " max((v for v in self.token_versions"),
        ("rejected-in-statistics", "if r.outcome.is_trainable and r.reward is not None", "if r.reward is not None"),
        ("reward-zero-is-missing", " and r.reward is not None", " and r.reward and r.reward.total")),
    *in_file("rollouts/runner.py", "rollouts/test_runner.py",
        ("equal-seeds", '{run_seed}/{rollout_id}/{turn}"', '{run_seed}/{turn}"'),
        ("end-token-masked", "([True] * len(", "([True] * (len(completion.token_ids) - 1) + [False] * bool("),
        ("observation-trained", "extend([False] * missing)", "extend([True] * missing)"),
        ("abort-accepted", "if completion.finish_reason is FinishReason.ABORT:", "if False:"),
        ("cut-turn-goes-on", "elif completion.finish_reason is FinishReason.LENGTH:", "elif False:"),
        ("failure-is-truncation", "Outcome.INFRASTRUCTURE_FAILURE, str(error)", "Outcome.TRUNCATED, str(error)"),
        ("budget-ignored", "=min(room, self._config.max_new_tokens)", "=self._config.max_new_tokens"),
        ("rewritten-history-merged", "if token_ids[: len(context)] == context:", "if True:")),
    *in_file("rollouts/chat.py", "rollouts/test_chat.py",
        ("second-start-token", "text, add_special_tokens=False", "text, add_special_tokens=True"),
        ("separator-lost", "return tail[at + len(eos) :]", "return tail[at + len(eos) :].lstrip()")),
    *in_file("weight_sync/manifest.py", "weight_sync/test_manifest.py",
        ("missing-tensor-allowed", "if name not in seen | optional)", "if name in optional)"),
        ("wrong-shape-allowed", "elif shape is not None and tuple(spec.shape) != shape:", "elif False:")),
    *in_file("engines/decoder.py", "engines/test_decoder.py",
        ("prefix-cache-kept", "        self.slots.clear()\n", ""),
        ("version-not-raised", "        self.version = version\n", "")),
    *in_file("engines/hf.py", "engines/test_hf_weights.py",
        ("last-tensor-kept", " in payload.items():", " in list(payload.items())[:-1]:")),
    *in_file("checkpoint/sharded.py", "checkpoint/test_sharded.py",
        ("optimizer-state-lost", "load(_tensors(parameters, optimizer)", "load(_tensors(parameters, None)")),
    *in_file("data/prompts.py", "data/test_prompts.py",
        ("position-lost", "self.position = position", "self.position = 0")),
    *in_file("rewards/worker.py", "rewards/test_worker.py",
        ("failing-validator-unnoticed", "outcome=Outcome.VALIDATOR_FAILURE, reason", "reason")),
    *in_file("rewards/rubric.py", "rewards/test_rubric.py",
        ("reward-without-weights", "sum(self.weights[name] * value for", "sum(value for")),
    *in_file("engines/pool.py", "engines/test_pool.py",
        ("restarted-engine-serves", '.setdefault(index, "replaced, not yet marked healthy")', ".pop(index, None)")),
    *in_file("engines/vllm.py", "engines/test_vllm.py",
        ("first-logprob", "float(entry[token].logprob) for", "float(next(iter(entry.values())).logprob) for"),
        ("unknown-reason-is-a-stop", 'reason or "", FinishReason.ABORT)', 'reason or "", FinishReason.STOP)'),
        ("cache-refusal-accepted", "if not is_dropped and self.config.prefix_caching:", "if False:"),
        ("awake-without-weights", '._lifecycle.fault = "weights were given back by sleep()', '._lifecycle.fault = "')),
]
# fmt: on


def apply(fault: Fault, folder: Path) -> None:
    """Put a fault into the copy below a folder.

    Raises:
        CheckError: Its string does not occur exactly once.
    """
    if not fault.path:
        return
    path = folder / "skyrl_nat" / fault.path
    text = path.read_text(encoding="utf-8")
    if (count := text.count(fault.old)) != 1:
        raise CheckError(f"{fault.name}: {fault.old!r} must occur once in {fault.path}, it occurs {count} times")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")


def copy_package(folder: Path) -> None:
    """Copy everything that tests need."""
    for item in COPIED:
        source = ROOT / item
        if source.is_dir():
            shutil.copytree(source, folder / item, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / item)


def preload() -> None:
    """Import what is slow once, so that every forked process has it; the package itself is not among it."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in PRELOADED:
        importlib.import_module(name)
    if "skyrl_nat" in sys.modules:
        raise CheckError("skyrl_nat must be imported from a copy, it is imported already")


def run_tests(folder: Path, tests: Sequence[str]) -> int:
    """Run test files of a copy in a forked process and return its id; its output goes to a file."""
    sys.stderr.flush()
    if process := os.fork():
        return process
    output = os.open(folder / OUTPUT, os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    code = WRONG_PACKAGE
    try:
        if Path(str(importlib.import_module("skyrl_nat").__file__)).is_relative_to(folder):
            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *(f"tests/unit/{test}" for test in tests)]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def judge(name: str, code: int, output: str) -> bool:
    """Return whether tests noticed a fault.

    Raises:
        CheckError: The tests did not run, or the fault is no wrong result but a broken program.
    """
    if code == WRONG_PACKAGE:
        raise CheckError(f"{name}: tests must import the copy of the package, they import another one")
    broken = BROKEN.search(output)
    if code not in (0, 1) or broken:
        cause = broken[0] if broken else f"pytest ended with {code}:\n{output[-1000:]}"
        raise CheckError(f"{name} must give wrong results, not a broken program: {cause}")
    return code == 1


def run_all(faults: Sequence[Fault], jobs: int) -> list[str]:
    """Run the tests of every fault and return the names of those whose tests failed.

    Raises:
        CheckError: A fault cannot be put in or judged.
    """
    waiting, running, failed = list(reversed(faults)), dict[int, tuple[str, Path]](), list[str]()
    with tempfile.TemporaryDirectory(prefix="mutation-") as parent:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    fault = waiting.pop()
                    folder = Path(parent).resolve() / fault.name
                    copy_package(folder)
                    apply(fault, folder)
                    running[run_tests(folder, fault.tests)] = (fault.name, folder)
                process, status = os.wait()
                name, folder = running.pop(process)
                output = (folder / OUTPUT).read_text(encoding="utf-8", errors="replace")
                has_failed = judge(name, os.waitstatus_to_exitcode(status), output)
                shutil.rmtree(folder)
                failed += [name] * has_failed
                print(f"{name}: tests {'failed' if has_failed else 'PASSED'}", file=sys.stderr, flush=True)
        finally:
            for process in running:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
    return failed


def check(faults: Sequence[Fault], jobs: int) -> dict[str, object]:
    """Return what became of the faults.

    Raises:
        CheckError: The tests fail without any fault, or a fault cannot be judged.
    """
    preload()
    tests = tuple(sorted({test for fault in faults for test in fault.tests}))
    if run_all([Fault("", tests, NO_FAULT, "", "")], 1):
        raise CheckError("the tests must pass without a fault, they fail")
    failed = run_all(faults, jobs)
    survivors = [fault.name for fault in faults if fault.name not in failed]
    return {"faults": len(faults), "caught": len(failed), "survivors": survivors}


def main() -> int:
    """Check all faults, or one; 0 if all were caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", help="one fault alone")
    parser.add_argument("--jobs", type=int, default=2, help="faults at once")
    arguments = parser.parse_args()
    faults = [fault for fault in FAULTS if arguments.only in (None, fault.name)]
    if not faults:
        parser.error(f"--only must name a fault, got {arguments.only}; there are {', '.join(f.name for f in FAULTS)}")
    try:
        result = check(faults, arguments.jobs)
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(result))
    return 1 if result["survivors"] else 0


if __name__ == "__main__":
    sys.exit(main())
