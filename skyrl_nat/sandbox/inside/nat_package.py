"""The package under test as NAT sees it: imported, loaded, built."""

import importlib
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any


class Package:
    """A built workflow: finds the functions of the wanted types."""

    def __init__(self, config: Any, builder: Any, stack: AsyncExitStack) -> None:
        """Keep what NAT built."""
        self.config = config
        self.builder = builder
        self._stack = stack
        self._sessions: Any = None

    async def find(self, tool: str) -> Any:
        """Return the function of a type: from `functions:`, else the workflow itself, else built by defaults."""
        for name, config in self.config.functions.items():
            if getattr(config, "type", None) == tool:
                return await self.builder.get_function(name)
        if getattr(self.config.workflow, "type", None) == tool:
            return self.builder.get_workflow()
        return await self._stack.enter_async_context(build_alone(tool))

    async def run_workflow(self, value: Any) -> Any:
        """Return the workflow's result through NAT's session manager."""
        from nat.runtime.session import SessionManager

        if self._sessions is None:
            self._sessions = await SessionManager.create(
                config=self.config, shared_builder=self.builder, max_concurrency=1
            )
        async with self._sessions.run(value) as runner:
            return await runner.result()


@asynccontextmanager
async def build_alone(tool: str) -> AsyncIterator[Any]:
    """Build one registered function with its default options."""
    from nat.builder.workflow_builder import WorkflowBuilder
    from nat.cli.type_registry import GlobalTypeRegistry

    for registered in GlobalTypeRegistry.get().get_registered_functions():
        if registered.local_name == tool:
            async with WorkflowBuilder() as builder:
                yield await builder.add_function(tool, registered.config_type())
            return
    raise LookupError(f"no function of type {tool!r} is registered")


def import_package(arguments: dict, folder: str) -> None:
    """Import the module with the decorators; importing is registering."""
    from nat.cli.type_registry import GlobalTypeRegistry

    root = f"{folder}/{arguments['source_root']}" if arguments["source_root"] else folder
    if root not in sys.path:
        sys.path.insert(0, root)
    with GlobalTypeRegistry.get().pause_registration_changed_hooks():
        importlib.import_module(arguments["module"])


@asynccontextmanager
async def open_package(arguments: dict, folder: str) -> AsyncIterator[Package]:
    """Import, load and build; for the hidden tests."""
    from nat.builder.workflow_builder import WorkflowBuilder
    from nat.runtime.loader import load_config

    import_package(arguments, folder)
    config = load_config(Path(folder) / arguments["config"])
    async with AsyncExitStack() as stack:
        builder = await stack.enter_async_context(WorkflowBuilder.from_config(config=config))
        yield Package(config, builder, stack)
