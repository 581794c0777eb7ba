"""What is examined: a config, and what is opened of it only where a check asks for it."""

import functools
from typing import TYPE_CHECKING

from skyrl_nat.config.run import RunConfig
from skyrl_nat.doctor.dataset import Split, read_split
from skyrl_nat.types import Message, Task

if TYPE_CHECKING:
    from skyrl_nat.environments.family import Family
    from skyrl_nat.rollouts.chat import ChatCodec


class Subject:
    """One config; each part is opened once, and raises again where it could not be."""

    def __init__(self, config: RunConfig) -> None:
        """Take the config."""
        self.config = config

    @functools.cached_property
    def family(self) -> "Family":
        """The task family, opened.

        Raises:
            ConfigError: There is none of this name.
        """
        from skyrl_nat.environments.registry import open_family

        return open_family(self.config.environment.family, self.config.environment)

    @functools.cached_property
    def codec(self) -> "ChatCodec":
        """The model's tokenizer and template.

        Raises:
            ConfigError: The model's folder is not whole, or its template cannot be used.
        """
        from skyrl_nat.checkpoint.pretrained import resolve_model  # torch
        from skyrl_nat.rollouts.chat import ChatCodec

        return ChatCodec.from_folder(resolve_model(self.config.model.path))

    @functools.cached_property
    def held_out(self) -> Split:
        """The held-out tasks."""
        return self._read(self.config.environment.validation_files)

    @functools.cached_property
    def train(self) -> Split | None:
        """The training tasks; None where recorded rollouts are learned from."""
        environment = self.config.environment
        return None if environment.recorded_files else self._read(environment.train_files)

    @property
    def tasks(self) -> list[Task]:
        """A sample of all tasks, held-out ones and others in turn."""
        others = self.train.sample if self.train else []
        longest = max(len(others), len(self.held_out.sample))
        return [split[at] for at in range(longest) for split in (self.held_out.sample, others) if at < len(split)]

    def prompt(self, task: Task) -> list[Message]:
        """Return the first messages of a task, made by its own environment."""
        environment = self.family.make_environment(task.visible(), self.config.rollout.max_turns)
        try:
            messages, _ = environment.init(list(task.payload.get("prompt", [])))
        finally:
            environment.close()
        return [Message(role=str(item["role"]), content=str(item["content"])) for item in messages]

    def close(self) -> None:
        """Close what was opened; safe to call twice."""
        if "family" in self.__dict__:
            self.family.close()

    def _read(self, names: list[str]) -> Split:
        environment = self.config.environment
        return read_split(names, family=environment.family, max_difficulty=environment.max_difficulty)
