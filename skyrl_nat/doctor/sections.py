"""What examines each section of a config; each imports what it needs when it is asked."""

import subprocess
import tempfile
from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

from skyrl_nat.config.cluster import Device
from skyrl_nat.config.run import RunConfig
from skyrl_nat.doctor.check import Check, skipped
from skyrl_nat.doctor.examination import Section
from skyrl_nat.errors import SkyRLNatError

NUM_PROMPTS = 4
"""Dialogues that the template's checks begin with."""
NVIDIA_SMI_S = 20.0


class Sections:
    """Everything that is known of one config, section by section."""

    def __init__(self, config: RunConfig) -> None:
        """Take the config; nothing is opened."""
        from skyrl_nat.doctor.subject import Subject

        self._config = config
        self._subject = Subject(config)

    def chosen(self, names: Collection[Section]) -> dict[Section, Callable[[], list[Check]]]:
        """Return what examines these sections, in order."""
        return {section: getattr(self, f"_{section}") for section in Section if section in names}

    def close(self) -> None:
        """Close what was opened."""
        self._subject.close()

    def _environment(self) -> list[Check]:
        from skyrl_nat.doctor.environment import check_environment, check_gpus
        from skyrl_nat.planning.gpus import Gpus, find_gpus

        is_gpu = self._config.cluster.device is Device.cuda
        gpus = find_gpus(Path("/")) if is_gpu else Gpus("none")
        return [*check_environment(self._config), *check_gpus(self._config, gpus, _nvidia_smi() if is_gpu else "")]

    def _cluster(self) -> list[Check]:
        from skyrl_nat.doctor.cluster import check_cluster

        return check_cluster(self._config)

    def _sandbox(self) -> list[Check]:
        from skyrl_nat.doctor.sandbox import check_sandbox

        return check_sandbox(self._config.environment.sandbox, runs_code=self._subject.family.runs_code)

    def _data(self) -> list[Check]:
        from skyrl_nat.doctor.dataset import check_splits

        subject = self._subject
        return [*check_splits(self._config, subject.train, subject.held_out), self._prompt_lengths()]

    def _prompt_lengths(self) -> Check:
        from skyrl_nat.doctor.dataset import PROMPTS, check_prompts

        subject = self._subject
        if not subject.tasks:
            return skipped(PROMPTS, "there is no task")
        try:
            lengths = {task.task_id: len(subject.codec.prompt_tokens(subject.prompt(task))) for task in subject.tasks}
        except (SkyRLNatError, ImportError, OSError) as error:
            return skipped(PROMPTS, f"it cannot be counted: {error}")
        return check_prompts(self._config, lengths)

    def _template(self) -> list[Check]:
        from skyrl_nat.doctor.template import check_template

        subject = self._subject
        codec, prompts = subject.codec, [subject.prompt(task) for task in subject.tasks[:NUM_PROMPTS]]
        return check_template(codec, prompts, self._config.rollout.history)

    def _rewards(self) -> list[Check]:
        from skyrl_nat.doctor.rewards import check_rewards

        return check_rewards(self._subject.family, self._subject.tasks, name=self._config.environment.family)

    def _engine(self) -> list[Check]:
        return examine_model(self._config)


def examine_model(config: RunConfig) -> list[Check]:
    """Return the checks of engines and trainer: all workers are started, in a folder that is removed again."""
    from skyrl_nat.controller.opening import open_run
    from skyrl_nat.controller.stop_signals import run_until_stopped
    from skyrl_nat.doctor.examine import examine

    found: list[Check] = []

    async def look(own: RunConfig) -> None:
        async with open_run(own) as run:
            found.extend(await examine(run))

    with tempfile.TemporaryDirectory(prefix="skyrl-nat-doctor-") as folder:
        own = replace(deepcopy(config), root_dir=folder, name="doctor", resume="never")
        own.tracking.backends = []
        # Few prompts are made and nothing is judged: what starts such workers takes longer than what they do here.
        own.cluster.num_environment_workers = own.cluster.num_reward_workers = 1
        run_until_stopped(look(own), config.recovery.grace_s)
    return found


def _nvidia_smi() -> str:
    try:
        ran = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=False, timeout=NVIDIA_SMI_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout
