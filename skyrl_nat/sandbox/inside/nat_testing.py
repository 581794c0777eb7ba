"""What hidden tests import: calls to the package under test through NAT's own loader and builder.

Set up by the job before pytest starts. Holds no expected value.
"""

import asyncio
from typing import Any

from nat_package import open_package

_package: dict[str, Any] = {}


def use(arguments: dict, folder: str) -> None:
    """Choose the package under test."""
    _package.update(arguments=arguments, folder=folder)


def call(tool: str, value: Any) -> Any:
    """Return what a tool of the built workflow answers; its exceptions pass through."""

    async def work() -> Any:
        async with open_package(_package["arguments"], _package["folder"]) as package:
            return await (await package.find(tool)).ainvoke(value)

    return asyncio.run(work())


def workflow(value: Any) -> Any:
    """Return what the workflow answers, run by NAT's session manager."""

    async def work() -> Any:
        async with open_package(_package["arguments"], _package["folder"]) as package:
            return await package.run_workflow(value)

    return asyncio.run(work())
