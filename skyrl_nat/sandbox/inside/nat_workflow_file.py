"""The workflow file by itself: loaded and built by NAT where no code of the package is.

The package's functions are stood in for by stubs of their names, so what is said here about the file was said
by NAT alone.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import nat_llm
from forked_worker import Emit, run_worker
from values import describe, encode

PYTHON_TYPES = {"int": int, "float": float, "str": str, "bool": bool}


def check_workflow_file(arguments: dict, folder: str, deadline: float) -> dict:
    """Return `{"stages": [...], "end": ...}` with stages `schema`, `options`, `values` and `build`.

    Args:
        arguments: `config` (path), `functions` (type -> documented option -> `[Python type, default]`).
        folder: The work folder; it holds the file and nothing else.
        deadline: Monotonic time by which the answer must be there.
    """
    stages, end = run_worker(lambda emit: asyncio.run(_check(emit, arguments, folder)), deadline)
    return {"stages": stages, "end": end}


async def _check(emit: Emit, arguments: dict, folder: str) -> None:
    from nat.builder.workflow_builder import WorkflowBuilder
    from nat.cli.type_registry import GlobalTypeRegistry
    from nat.runtime.loader import load_config

    with GlobalTypeRegistry.get().pause_registration_changed_hooks():
        for name, options in arguments["functions"].items():
            _register_stub(name, options)
    path = Path(folder) / arguments["config"]
    stage = "schema"
    try:
        config = load_config(path)
        emit({"stage": stage, "ok": True, "error": ""})
        stage = "options"
        refuse_stray_options(path, config)
        emit({"stage": stage, "ok": True, "error": ""})
        functions = [*config.functions.values(), config.workflow]
        values = {item.type: {key: encode(value) for key, value in item.model_dump().items()} for item in functions}
        emit({"stage": "values", "values": values})
        nat_llm.replace_llms(config)
        stage = "build"
        async with AsyncExitStack() as stack:
            builder = await stack.enter_async_context(WorkflowBuilder.from_config(config=config))
            builder.get_workflow()
            emit({"stage": stage, "ok": True, "error": ""})
    except Exception as error:  # noqa: BLE001 - whatever NAT says of the file is the finding
        emit({"stage": stage, "ok": False, "error": schema_problem(error)})


def _register_stub(name: str, options: dict) -> None:
    """Register a function that takes the documented options, and others too: their owner is not here."""
    from nat.plugin_api import FunctionBaseConfig, FunctionInfo, register_function
    from pydantic import ConfigDict

    fields = {option: default for option, (_, default) in options.items()}
    annotations = {option: PYTHON_TYPES.get(kind, Any) for option, (kind, _) in options.items()}
    body = {"model_config": ConfigDict(extra="allow"), "__annotations__": annotations, "__module__": __name__, **fields}
    config_type = type("StubConfig", (FunctionBaseConfig,), body, name=name)

    async def build(config: Any, builder: Any) -> Any:
        del config, builder

        async def run(text: str) -> str:
            return text

        yield FunctionInfo.from_fn(run, description=name)

    register_function(config_type=config_type)(build)


def schema_problem(error: BaseException) -> str:
    """Return what is wrong, every field of a schema error with its path."""
    for candidate in (error, error.__cause__, error.__context__):
        listed = getattr(candidate, "errors", None)
        if type(candidate).__name__ == "ValidationError" and callable(listed):
            texts = [f"{'.'.join(map(str, item['loc']))}: {item['msg'][:160]}" for item in listed()[:12]]
            return "; ".join(texts)[:1500]
    return describe(error)


def refuse_stray_options(path: Path, config: Any) -> bool:
    """NAT ignores unknown options of a function; a misspelt one must not pass."""
    import yaml

    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    entries = [("workflow", written.get("workflow"), config.workflow)]
    for section in ("functions", "llms"):
        for name, entry in (written.get(section) or {}).items():
            entries.append((f"{section}.{name}", entry, getattr(config, section).get(name)))
    stray = []
    for path_name, entry, parsed in entries:
        known = {"_type"}
        for name, field in type(parsed).model_fields.items():
            known |= {name, field.alias or name, *_aliases(field.validation_alias)}
        allows_more = type(parsed).model_config.get("extra") == "allow"
        stray += [f"{path_name}.{key}" for key in entry or {} if key not in known and not allows_more]
    if stray:
        raise ValueError(f"unknown option {', '.join(stray)}")
    return True


def _aliases(alias: Any) -> list[str]:
    choices = getattr(alias, "choices", [alias])
    return [choice for choice in choices if isinstance(choice, str)]
