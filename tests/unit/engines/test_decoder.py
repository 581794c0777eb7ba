"""The decode loop with a model whose logits are a known function of the last token."""

import math
import random
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from skyrl_nat.engines.decoder import Decoder, DecodingRequest
from skyrl_nat.engines.kv_slots import KvShape, KvSlots
from skyrl_nat.engines.stop_words import StopWatch
from skyrl_nat.types import FinishReason

SHAPE = KvShape(num_layers=1, num_kv_heads=1, head_dim=1, dtype=torch.float32, device="cpu")


class TableModel:
    """Logits of the next token are row `last token` of a table."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.num_tokens: list[tuple[int, int]] = []

    def __call__(self, *, input_ids: Tensor, **kwargs: Any) -> SimpleNamespace:
        self.num_tokens.append(tuple(input_ids.shape))  # type: ignore[arg-type]
        return SimpleNamespace(logits=self.table[input_ids[:, -1:]])


def make_decoder(table: Tensor, *, max_rows: int = 8, is_alone: bool = False) -> Decoder:
    slots = KvSlots(SHAPE, max_rows, 1 << 30)
    return Decoder(TableModel(table), slots, [0], shares_prefixes=True, is_alone=is_alone)


def make_request(prompt: list[int], *, seed: int = 0, temperature: float = 1.0, num_new: int = 5) -> DecodingRequest:
    return DecodingRequest(
        tokens=list(prompt),
        num_prompt_tokens=len(prompt),
        max_tokens=len(prompt) + num_new,
        temperature=temperature,
        stream=random.Random(seed),
    )


def finish(decoder: Decoder) -> None:
    for _ in range(100):
        if not decoder.has_work:
            return
        decoder.step()
    raise AssertionError("the decoder does not come to an end")


def cycle_table(size: int = 6) -> Tensor:
    """Token t is surely followed by t + 1, the last one by 0."""
    return 50.0 * torch.eye(size).roll(1, dims=1)


def test_an_end_token_is_returned_and_ends_the_completion() -> None:
    decoder = make_decoder(cycle_table())
    request = make_request([1, 2], num_new=9)
    decoder.waiting.append(request)
    finish(decoder)
    answer = request.completion()
    assert answer.token_ids == [3, 4, 5, 0]
    assert answer.finish_reason is FinishReason.STOP
    assert answer.token_versions == [0, 0, 0, 0]


def test_the_limit_ends_a_completion_without_an_end_token() -> None:
    decoder = make_decoder(cycle_table())
    request = make_request([1], num_new=2)
    decoder.waiting.append(request)
    finish(decoder)
    assert request.completion().token_ids == [2, 3]
    assert request.completion().finish_reason is FinishReason.LENGTH


def test_a_stop_word_ends_a_completion_with_the_token_that_completes_it() -> None:
    decoder = make_decoder(cycle_table())
    words = SimpleNamespace(decode=lambda tokens: "".join(map(str, tokens)))
    requests = [make_request([1], num_new=9), make_request([2], num_new=2), make_request([1], num_new=9)]
    for request, word in zip(requests, ["34", "4", "50"], strict=True):
        request.watch = StopWatch(words, [word])
    decoder.waiting.extend(requests)
    finish(decoder)
    answers = [request.completion() for request in requests]
    assert [answer.token_ids for answer in answers] == [[2, 3, 4], [3, 4], [2, 3, 4, 5, 0]]
    assert [answer.finish_reason for answer in answers] == [
        FinishReason.STOP_WORD,
        FinishReason.STOP_WORD,  # not cut, though the limit is reached too
        FinishReason.STOP,  # an end token belongs to no word
    ]
    assert len(answers[0].logprobs) == len(answers[0].token_versions) == 3


def test_logprobs_are_those_at_the_sampling_temperature() -> None:
    """Row 33."""
    decoder = make_decoder(torch.tensor([[2.0, 0.0], [2.0, 0.0]]))
    half, greedy = make_request([1], temperature=0.5, num_new=1), make_request([1], temperature=0)
    decoder.waiting.extend([half, greedy])
    finish(decoder)
    sharp, flat = 1 / (1 + math.exp(-4)), 1 / (1 + math.exp(-2))
    expected = {0: math.log(sharp), 1: math.log(1 - sharp)}[half.completion().token_ids[0]]
    assert abs(half.logprobs[0] - expected) < 1e-6
    assert greedy.completion().token_ids == [0]
    assert abs(greedy.logprobs[0] - math.log(flat)) < 1e-6


def test_samples_follow_the_distribution() -> None:
    probabilities = torch.tensor([0.0, 0.2, 0.5, 0.3])
    decoder = make_decoder(probabilities.log().expand(4, 4), max_rows=64)
    requests = [make_request([1], seed=seed, num_new=50) for seed in range(64)]
    decoder.waiting.extend(requests)
    finish(decoder)
    tokens = torch.tensor([r.completion().token_ids for r in requests]).flatten()
    frequencies = torch.bincount(tokens, minlength=4) / len(tokens)
    assert frequencies[0] == 0
    # Three standard deviations of 3200 draws.
    assert (frequencies - probabilities).abs().max() < 3 * math.sqrt(0.25 / 3200)


def test_what_a_request_samples_depends_on_its_own_seed_only() -> None:
    """Row 64."""
    table = torch.randn(7, 7, generator=torch.Generator().manual_seed(0))
    table[:, 0] = -torch.inf  # no end tokens

    def sample(seeds: list[int], prompts: list[list[int]], max_rows: int) -> list[list[int]]:
        decoder = make_decoder(table, max_rows=max_rows)
        requests = [make_request(p, seed=s) for p, s in zip(prompts, seeds, strict=True)]
        decoder.waiting.extend(requests)
        finish(decoder)
        return [request.completion().token_ids for request in requests]

    prompts = [[1, 2], [3], [1, 2], [4, 5, 6]]
    crowd = sample([1, 2, 3, 4], prompts, 8)
    assert crowd == sample([1, 2, 3, 4], prompts, 1)
    for seed, prompt, tokens in zip([1, 2, 3, 4], prompts, crowd, strict=True):
        assert sample([seed], [prompt], 8) == [tokens]
    assert crowd[0] != crowd[2]


def test_equal_prompts_are_computed_once_and_decode_together() -> None:
    decoder = make_decoder(cycle_table())
    decoder.waiting.extend(make_request([1, 1, 1], seed=s, num_new=3) for s in range(4))
    finish(decoder)
    assert decoder.model.num_tokens == [(1, 3), (4, 1), (4, 1)]


def test_requests_that_do_not_fit_wait_and_none_is_lost() -> None:
    decoder = make_decoder(cycle_table(), max_rows=2)
    requests = [make_request([1, i], num_new=3) for i in range(1, 4)] + [make_request([1, 1])]
    decoder.waiting.extend(requests)
    decoder.step()
    assert len(decoder.active) <= 2
    finish(decoder)
    assert [r.completion().token_ids for r in requests] == [
        [2, 3, 4],
        [3, 4, 5],
        [4, 5, 0],
        [2, 3, 4, 5, 0],
    ]


def test_alone_means_one_request_at_a_time() -> None:
    decoder = make_decoder(cycle_table(), is_alone=True)
    decoder.waiting.extend(make_request([1, 1], num_new=2) for _ in range(3))
    while decoder.has_work:
        decoder.step()
        assert len(decoder.active) <= 1
    assert {rows for rows, _ in decoder.model.num_tokens} == {1}


def test_new_weights_recompute_running_requests_and_label_later_tokens() -> None:
    """Rows 56, 59 and 61: no cached prefix survives, and every token is labelled with what sampled it."""
    decoder = make_decoder(cycle_table())
    request, waiting = make_request([1], num_new=4), make_request([2], num_new=2)
    decoder.waiting.append(request)
    decoder.step()
    decoder.step()
    sampled = len(request.logprobs)
    decoder.waiting.append(waiting)
    decoder.restart(7)
    decoder.model.num_tokens.clear()
    finish(decoder)
    assert request.completion().token_ids == [2, 3, 4, 5]
    assert request.token_versions == [0] * sampled + [7] * (4 - sampled)
    assert waiting.token_versions == [7, 7]
    assert decoder.model.num_tokens[0] == (
        1,
        1 + sampled,
    )  # all its tokens again, before the newcomer


def test_cancelled_requests_leave_and_the_others_go_on() -> None:
    decoder = make_decoder(cycle_table())
    requests = [make_request([i], num_new=3) for i in (1, 2)]
    late = make_request([3])
    decoder.waiting.extend(requests)
    decoder.step()
    decoder.waiting.append(late)
    decoder.cancel(requests[0])
    decoder.cancel(late)
    finish(decoder)
    assert requests[0].completion().finish_reason is FinishReason.ABORT
    assert late.completion().token_ids == []
    assert requests[1].completion().token_ids == [3, 4, 5]


def test_logprobs_of_a_bf16_model_are_computed_in_fp32() -> None:
    """Row 37: of two equal logits ln 0.5 = -0.6931 in fp32; bf16 would give -0.6914."""
    decoder = make_decoder(torch.zeros(2, 2, dtype=torch.bfloat16))
    request = make_request([1], num_new=1)
    decoder.waiting.append(request)
    finish(decoder)
    assert abs(request.logprobs[0] - math.log(0.5)) < 1e-6


def test_logprobs_of_older_weights_are_kept_when_newer_ones_arrive() -> None:
    """Row 56: 0.5 under the first weights, 0.9 under the second; the prefix is computed again, not scored again."""
    decoder = make_decoder(torch.tensor([[-50.0, 0.0, 0.0]] * 3))
    request = make_request([1], num_new=3, temperature=0.0)
    decoder.waiting.append(request)
    decoder.step()
    sampled = len(request.logprobs)
    decoder.model.table = torch.tensor([[-50.0, math.log(0.9), math.log(0.1)]] * 3)
    decoder.restart(4)
    finish(decoder)
    assert request.logprobs[:sampled] == [request.logprobs[0]] * sampled
    assert abs(request.logprobs[0] - math.log(0.5)) < 1e-6
    assert abs(request.logprobs[-1] - math.log(0.9)) < 1e-6
    assert request.token_versions == [0] * sampled + [4] * (3 - sampled)
