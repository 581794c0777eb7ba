"""The commands of a deployment: serve, agents, create, flag, feedback; imports late."""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyrl_nat.errors import ConfigError

if TYPE_CHECKING:
    from skyrl_nat.deploy.running import Limits, Subject

DEFAULT_PORT = 8080
GRACE_S = 60.0
"""What a deployment has to end in order once it is told to stop."""
KEY_ENV = "SKYRL_NAT_DEPLOY_KEY"


def add_commands(commands: Any) -> None:
    """Add `deploy` to the subparsers of `skyrl-nat`."""
    deploy = commands.add_parser("deploy", help="serve a policy, and let it create NAT agents on request")
    actions = deploy.add_subparsers(required=True, metavar="action")
    serve = actions.add_parser("serve", help="serve a model with OpenAI's protocol, proved to see training's prompts")
    _add_subject(serve)
    serve.set_defaults(function=_serve, goes_on="the same command")
    agents = actions.add_parser("agents", help="serve a model and, over HTTP, agents that it creates")
    _add_subject(agents)
    _add_limits(agents)
    agents.add_argument("--host", default="127.0.0.1", help="where to listen; others than this machine need a key")
    agents.add_argument("--port", type=int, default=DEFAULT_PORT, help="0 takes any that is free")
    agents.add_argument("--key-env", default=KEY_ENV, help="environment variable that holds the service's key")
    agents.add_argument("--max-running", type=int, default=4, help="creations at once")
    agents.add_argument("--max-waiting", type=int, default=16, help="creations that wait; more get 429")
    agents.set_defaults(function=_agents, goes_on="the same command")
    create = actions.add_parser("create", help="create one agent and end")
    _add_subject(create)
    _add_limits(create)
    create.add_argument("--request", required=True, help="what the agent must do, in words")
    create.add_argument("--user", default="command line", help="decides, with the flag, who writes the agent")
    create.add_argument("--difficulty", type=int, default=3, choices=range(1, 6), help="from 4 on with tests and MCP")
    create.set_defaults(function=_create, goes_on="the same command")
    _add_flag(actions.add_parser("flag", help="say for which share of the users the trained policy writes"))
    feedback = actions.add_parser("feedback", help="add what was created and what users said to a store of traces")
    feedback.add_argument("folder", type=Path, help="of the deployment")
    feedback.add_argument("traces", type=Path, help="folder of a trace store, made where it is not there")
    feedback.set_defaults(function=_feedback, goes_on="the same command")
    _add_engine(actions.add_parser("engine", help="the embedded engine behind OpenAI's protocol; serve starts it"))


def _add_subject(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", help="folder of a run, a checkpoint, a model or a LoRA adapter, or a GGUF file")
    parser.add_argument("--checkpoint", default="latest", help="of a run: folder or URL of one, best or latest")
    parser.add_argument("--folder", type=Path, default=Path("deployment"), help="of the deployment, made if needed")
    parser.add_argument("--probation", type=float, default=10.0, metavar="S", help="before a server gets the traffic")
    parser.add_argument("overrides", nargs="*", help="config overrides, e.g. engine=vllm planner.backend=openai")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--deadline", type=float, default=900.0, metavar="S", help="of one creation, its wait included")
    parser.add_argument("--policy-timeout", type=float, default=600.0, metavar="S", help="then the planner's code")
    parser.add_argument("--max-repairs", type=int, default=3, help="times that the policy may mend its package")
    parser.add_argument("--max-plans", type=int, default=3, help="specs asked for until one is sound")


def _add_flag(flag: argparse.ArgumentParser) -> None:
    flag.add_argument("folder", type=Path, help="of the deployment; a running one reads it for every request")
    state = flag.add_mutually_exclusive_group(required=True)
    state.add_argument("--percent", type=float, help="of the users, the same ones every time")
    state.add_argument("--off", action="store_true", help="the planner's code for everybody, at once")
    flag.set_defaults(function=_flag, goes_on="the same command")


def _add_engine(engine: argparse.ArgumentParser) -> None:
    engine.add_argument("model", type=Path, help="folder with weights, or of a GGUF file's tokenizer")
    engine.add_argument("--config", type=Path, required=True, help="saved configuration of a run")
    engine.add_argument("--host", default="127.0.0.1", help="the server has no key")
    engine.add_argument("--port", type=int, default=0, help="0 takes any that is free")
    engine.set_defaults(function=_engine, goes_on="the same command")


def _serve(options: argparse.Namespace) -> None:
    from skyrl_nat.controller.stop_signals import run_until_stopped
    from skyrl_nat.deploy.log import logging_to
    from skyrl_nat.deploy.running import LOG, serve_model

    with logging_to(options.folder / LOG):
        run_until_stopped(serve_model(_subject(options), options.folder, probation_s=options.probation), GRACE_S)


def _agents(options: argparse.Namespace) -> None:
    from skyrl_nat.controller.stop_signals import run_until_stopped
    from skyrl_nat.deploy.app import require_safe
    from skyrl_nat.deploy.log import logging_to
    from skyrl_nat.deploy.running import LOG, serve_agents

    key = os.environ.get(options.key_env, "")
    require_safe(options.host, key)
    limits = _limits(options, max_running=options.max_running, max_waiting=options.max_waiting)
    with logging_to(options.folder / LOG):
        serving = serve_agents(_subject(options), options.folder, limits, host=options.host, port=options.port, key=key)
        run_until_stopped(serving, GRACE_S)


def _create(options: argparse.Namespace) -> None:
    from skyrl_nat.controller.stop_signals import run_until_stopped
    from skyrl_nat.deploy.log import logging_to
    from skyrl_nat.deploy.pipeline import AgentRequest
    from skyrl_nat.deploy.running import LOG, create_one

    request = AgentRequest(text=options.request, user_id=options.user, difficulty=options.difficulty)

    async def create() -> None:
        record = await create_one(_subject(options), options.folder, _limits(options), request)
        print(json.dumps(record, indent=1))

    with logging_to(options.folder / LOG):
        run_until_stopped(create(), GRACE_S)


def _flag(options: argparse.Namespace) -> None:
    from skyrl_nat.deploy.flag import FlagFile, FlagState
    from skyrl_nat.deploy.running import FLAG

    state = FlagState(is_on=False) if options.off else FlagState(percent=options.percent)
    FlagFile(options.folder / FLAG).write(state)
    print(f"{options.folder / FLAG}: {'off' if options.off else f'{state.percent:g} % of the users'}")


def _feedback(options: argparse.Namespace) -> None:
    from skyrl_nat.deploy.feedback import export_feedback

    print(json.dumps(export_feedback(options.folder, options.traces), indent=1))


def _engine(options: argparse.Namespace) -> None:
    from skyrl_nat.config.load import config_from_file
    from skyrl_nat.controller.stop_signals import run_until_stopped
    from skyrl_nat.deploy.engine_server import serve_engine

    config = config_from_file(options.config)
    run_until_stopped(serve_engine(options.model, config, host=options.host, port=options.port), GRACE_S)


def _subject(options: argparse.Namespace) -> "Subject":
    from skyrl_nat.deploy.running import subject_of

    return subject_of(options.subject, options.checkpoint, options.overrides)


def _limits(options: argparse.Namespace, **more: int) -> "Limits":
    from skyrl_nat.deploy.pipeline import PipelineSettings
    from skyrl_nat.deploy.running import Limits

    if options.max_repairs < 0 or options.max_plans < 1:
        raise ConfigError(
            f"--max-repairs must be >= 0 and --max-plans >= 1, got {options.max_repairs} and {options.max_plans}. "
            "Leave them out for 3 of each"
        )
    return Limits(
        deadline_s=options.deadline,
        policy_timeout_s=options.policy_timeout,
        probation_s=options.probation,
        pipeline=PipelineSettings(max_plans=options.max_plans, max_repairs=options.max_repairs),
        **more,
    )
