"""What machines bring: data sheets for peaks, measurements for how much of a peak this trainer reaches.

Every constant names its source in `benchmarks/results/`. Those that set constants are P3 (the trainer alone at 1.5B),
P1 of 2026-11-30 with one engine, P2 of SmolLM2, P4, and P5 with staleness 0; for a CPU cpu_step.json. None was fitted
to another result: `benchmarks/plan_against_reality.py` holds predictions against all of them and says which are which.
"""

from dataclasses import dataclass

from skyrl_nat.monitoring.cards import CARDS, Card

GIB = 2**30

CAPACITY_GIB = {
    "NVIDIA H100 80GB HBM3": 79.6,
    "NVIDIA H200": 140.4,
    "NVIDIA A100-SXM4-80GB": 80.0,
    "NVIDIA A100-SXM4-40GB": 40.0,
}
"""What nvidia-smi calls the memory of each card in `monitoring/cards.py`."""
SHORT_NAMES = {
    "h100": "NVIDIA H100 80GB HBM3",
    "h200": "NVIDIA H200",
    "a100-80": "NVIDIA A100-SXM4-80GB",
    "a100-40": "NVIDIA A100-SXM4-40GB",
}
"""As `--card` takes them."""
USUAL_PRICES = {
    "NVIDIA H100 80GB HBM3": 3.0,
    "NVIDIA H200": 3.5,
    "NVIDIA A100-SXM4-80GB": 2.0,
    "NVIDIA A100-SXM4-40GB": 1.5,
}
"""Dollars for an hour, round figures to begin with; `--price` says what is paid."""
NETWORK_BYTES = 50e9
"""Per GPU between nodes: one 400 Gb/s adapter each."""
HOST_LINK_BYTES = 55e9
"""Between a GPU and host memory over PCIe 5 x16, of 64 GB/s on the data sheet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerRates:
    """How training spends its time on a GPU."""

    matmul_share: float = 0.71
    """Of the peak that matrix products reach. P3 compiled (16k to 49k tokens, without and with checkpointing) and P2
    SmolLM2 are three equations for this number and `layer_s_per_token`; they leave 1 %."""
    layer_s_per_token: float = 0.215e-6
    """Seconds of small kernels per token and layer. Same source."""
    compiled_traffic: float = 2.0
    """Bytes that cross the memory for each byte of activations kept, compiled: written once, read once."""
    eager_traffic: float = 17.1
    """The same without `model.compile`. P3 not compiled."""
    optimizer_bytes: float = 52.0
    """Per trained parameter and step: AdamW reads 16 and writes 12, clipping 12, casts of gathering and reducing 12."""
    optimizer_share: float = 0.5
    """Of the memory's bandwidth that those reach: P3, what is left at 0 tokens."""
    host_s_per_token: float = 3.7e-6
    """In the controller, over all tokens of a step: P1, the wait for training less the GPU's seconds in it."""
    network_share: float = 0.7
    """Of a link that gathering and reducing reach. Not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRates:
    """How vLLM spends its time."""

    step_s: float = 1.5e-3
    """Of a decoding step, whatever is in it. P1 with one engine, P5 with staleness 0."""
    sequence_s: float = 39.5e-6
    """Of a decoding step, per sequence in it; on the engine's processor. P1 with one engine."""
    several_factor: float = 1.14
    """Engines of one GPU wait for each other's kernels: P2 SmolLM2 with three."""
    prefill_share: float = 0.4
    """Of the peak. Not measured alone."""
    bandwidth_share: float = 0.85
    """Of the memory's bandwidth. Not measured alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRates:
    """How long a push takes: `fixed_s` plus bytes over `bytes_per_s`."""

    colocated_s: float = 0.38
    """Waking and pausing included: between P4, where nothing but pushes happens (0.31 s), and the pushes within steps
    of P1 and P2 (0.49 and 0.46 s)."""
    beside_s: float = 0.30
    """With engines that keep their memory: P4 colocated less its sleep and wake."""
    apart_s: float = 0.24
    """P4 on two cards: 0.36 s for 3.1 GB, at the rate below."""
    colocated_bytes: float = 100e9
    apart_bytes: float = 26e9
    host_bytes: float = 1e9
    """Through the object store: cpu_step.json, 0.38 s for 0.54 GB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuRates:
    """How a CPU spends its time; peaks are cores x clock x the vectors' width (`hardware.py`)."""

    matmul_share: float = 0.56
    """Of the peak. cpu_step.json: 5.3 s for 1,212 computed tokens of SmolLM2 on two cores. Cores of one
    description differ: another day's were half as fast."""
    decode_s: float = 57e-3
    """Of a decoding step of the embedded engine, whatever is in it. cpu_step.json: 7.1 s for 64 steps of 16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a GPU, or a whole machine without one, brings."""

    name: str
    card: Card
    capacity_gib: float
    is_gpu: bool = True


def machine_of(short_name: str) -> Machine:
    """Return a card by its short name, a key of `SHORT_NAMES`."""
    name = SHORT_NAMES[short_name]
    return Machine(name=name, card=CARDS[name], capacity_gib=CAPACITY_GIB[name])
