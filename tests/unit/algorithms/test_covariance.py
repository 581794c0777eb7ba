"""Which tokens are selected."""

import torch

from skyrl_nat.algorithms.covariance import clip_cov_selection, kl_cov_selection, token_covariances

LOGPROBS = torch.tensor([-1.0, -2.0, -3.0, -2.0])
ADVANTAGES = torch.tensor([1.0, 0.0, -1.0, 0.0])


def test_covariances_by_hand() -> None:
    assert token_covariances(LOGPROBS, ADVANTAGES).tolist() == [1.0, 0.0, 1.0, 0.0]


def test_kl_cov_takes_the_largest_and_rounds_down() -> None:
    covariances = torch.tensor([0.1, 3.0, -5.0, 2.0, 0.0])
    assert kl_cov_selection(covariances, share=0.4).tolist() == [False, True, False, True, False]
    assert not kl_cov_selection(covariances, share=0.19).any()


def test_clip_cov_draws_from_its_range_and_by_its_seed() -> None:
    covariances = torch.tensor([0.5, 1.5, 2.5, 9.0] * 25)

    def draw(seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return clip_cov_selection(covariances, share=0.1, low=1.0, high=5.0, generator=generator)

    chosen = draw(1)
    assert int(chosen.sum()) == 10
    assert set(covariances[chosen].tolist()) <= {1.5, 2.5}
    assert torch.equal(chosen, draw(1))
    assert not torch.equal(chosen, draw(2))


def test_both_sides_are_centred() -> None:
    """Means -2 and 2: (1 * -1, 0 * 2, -1 * -1)."""
    covariances = token_covariances(torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([1.0, 4.0, 1.0]))
    assert covariances.tolist() == [-1.0, 0.0, 1.0]
