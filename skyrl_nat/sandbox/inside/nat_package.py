"""The package under test as NAT sees it: imported, loaded, built."""

import importlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

_OWN_FOLDER = os.path.realpath(Path(__file__).parent)
_OWN_MODULES = ["__main__", *(path.stem for path in Path(_OWN_FOLDER).glob("*.py"))]


class Package:
    """A built workflow: finds the functions of the wanted types."""

    def __init__(self, config: Any, builder: Any, stack: AsyncExitStack) -> None:
        """Keep what NAT built."""
        self.config = config
        self.builder = builder
        self._stack = stack
        self._found: dict[str, Any] = {}
        self._sessions: Any = None

    def name_of(self, tool: str) -> str:
        """Return the name under which the workflow file has a function type; the type itself if it has not."""
        for name, config in self.config.functions.items():
            if getattr(config, "type", None) == tool:
                return name
        return tool

    async def find(self, tool: str) -> Any:
        """Return the function of a type: from `functions:`, else the workflow itself, else built by defaults."""
        if tool not in self._found:
            self._found[tool] = await self._find(tool)
        return self._found[tool]

    async def _find(self, tool: str) -> Any:
        name = self.name_of(tool)
        if name in self.config.functions:
            return await self.builder.get_function(name)
        if getattr(self.config.workflow, "type", None) == tool:
            return self.builder.get_workflow()
        return await self._stack.enter_async_context(build_alone(tool, {}))

    async def run_workflow(self, value: Any) -> Any:
        """Return the workflow's result through NAT's session manager."""
        from nat.runtime.session import SessionManager

        if self._sessions is None:
            self._sessions = await SessionManager.create(
                config=self.config, shared_builder=self.builder, max_concurrency=1
            )
        async with self._sessions.run(value) as runner:
            return await runner.result()


class Alone:
    """Functions of a package whose workflow file cannot be used, each built by itself."""

    def __init__(self, options: dict[str, dict], stack: AsyncExitStack) -> None:
        """Keep what to build them with."""
        self._options = options
        self._stack = stack
        self._found: dict[str, Any] = {}

    async def find(self, tool: str) -> Any:
        """Return the function of a type."""
        if tool not in self._found:
            built = build_alone(tool, self._options.get(tool, {}))
            self._found[tool] = await self._stack.enter_async_context(built)
        return self._found[tool]


@asynccontextmanager
async def build_alone(tool: str, options: dict) -> AsyncIterator[Any]:
    """Build one registered function."""
    from nat.builder.workflow_builder import WorkflowBuilder
    from nat.cli.type_registry import GlobalTypeRegistry

    for registered in GlobalTypeRegistry.get().get_registered_functions():
        if registered.local_name == tool:
            async with WorkflowBuilder() as builder:
                yield await builder.add_function(tool, registered.config_type(**options))
            return
    raise LookupError(f"no function of type {tool!r} is registered")


def import_package(arguments: dict, folder: str) -> None:
    """Import the module with the decorators; importing is registering."""
    from nat.cli.type_registry import GlobalTypeRegistry

    hide_judge()
    root = f"{folder}/{arguments['source_root']}" if arguments["source_root"] else folder
    if root not in sys.path:
        sys.path.insert(0, root)
    with GlobalTypeRegistry.get().pause_registration_changed_hooks():
        importlib.import_module(arguments["module"])


def hide_judge() -> None:
    """Take the checks' own modules out of reach of an import: what they are called must not be there to be replaced."""
    sys.path[:] = [path for path in sys.path if os.path.realpath(path) != _OWN_FOLDER]
    for name in _OWN_MODULES:
        if str(getattr(sys.modules.get(name), "__file__", None) or "").startswith(_OWN_FOLDER):
            del sys.modules[name]
