"""The prompt that a server makes of messages must be, token by token, the one that training makes."""

from collections.abc import Sequence

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.deploy.policy_client import PolicyClient
from skyrl_nat.environments.registry import open_family
from skyrl_nat.errors import ConfigError
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.types import GenerationRequest, Message, SamplingParams, Task

SHOWN_TOKENS = 12


async def check_prompts(client: PolicyClient, codec: ChatCodec, dialogues: Sequence[Sequence[Message]]) -> int:
    """Return how many prompts were compared, all of them equal.

    Two ways lead to a prompt: tokens, which episodes use and which the server must take as they are, and messages, of
    which the server's chat template makes a prompt for everybody else.

    Raises:
        ConfigError: A prompt differs; with the first place.
        EngineError: The server does not say which tokens it used.
    """
    for number, messages in enumerate(dialogues):
        trained = codec.prompt_tokens(messages)
        request = GenerationRequest(
            request_id=f"prompt-{number}",
            prompt_token_ids=trained,
            sampling=SamplingParams(max_new_tokens=1, temperature=0.0),
        )
        await client.generate(request)  # refuses what was added to the prompt
        _require_equal(codec, number, trained, await client.prompt_ids(messages))
    return len(dialogues)


def first_dialogues(tasks: Sequence[Task], config: EnvironmentConfig, *, max_turns: int) -> list[list[Message]]:
    """Return the first messages of tasks, as their environment gives them in training."""
    family = open_family(config.family, config)
    try:
        environments = [(task, family.make_environment(task.visible(), max_turns)) for task in tasks]
        prompts = [made.init(list(task.payload.get("prompt", [])))[0] for task, made in environments]
    finally:
        family.close()
    return [[Message(role=str(item["role"]), content=str(item["content"])) for item in prompt] for prompt in prompts]


def _require_equal(codec: ChatCodec, number: int, trained: list[int], served: list[int]) -> None:
    if trained == served:
        return
    pairs = zip(trained, served, strict=False)
    place = next((i for i, (one, other) in enumerate(pairs) if one != other), min(len(trained), len(served)))
    shown = [repr(codec.show(ids[place : place + SHOWN_TOKENS])) for ids in (trained, served)]
    raise ConfigError(
        f"The served prompt must be the training prompt, prompt {number} differs from token {place} on: training has "
        f"{len(trained)} tokens and goes on with {shown[0]}, the server has {len(served)} and goes on with {shown[1]}. "
        "Serve the chat template of the checkpoint"
    )
