"""Makes `openhands/` with the real OpenHands SDK: tools that work, fail and do not exist, and an abandoned branch.

Run it in an empty folder with Python >= 3.12 and openhands-sdk 1.58.2.
"""

import json
import os
import shutil
import uuid

os.environ["OPENHANDS_SUPPRESS_BANNER"] = "1"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from openhands.sdk import Agent, Conversation, Tool
from openhands.sdk.llm import Message, MessageToolCall, TextContent
from openhands.sdk.testing import TestLLM
from openhands.sdk.tool import Action, Observation, ToolDefinition, ToolExecutor, register_tool


class AreaAction(Action):
    width: float
    height: float


class AreaObservation(Observation):
    pass


class AreaExecutor(ToolExecutor):
    def __call__(self, action, conversation=None):
        if action.width < 0:
            return AreaObservation.from_text("sides must be >= 0", is_error=True)
        return AreaObservation.from_text(str(action.width * action.height))


class AreaTool(ToolDefinition[AreaAction, AreaObservation]):
    @classmethod
    def create(cls, conv_state=None, **params):
        kinds = {"action_type": AreaAction, "observation_type": AreaObservation}
        return [cls(description="Area of a rectangle.", executor=AreaExecutor(), **kinds)]


class CountingLLM(TestLLM):
    def completion(self, *args, **kwargs):
        response = super().completion(*args, **kwargs)
        self.metrics.add_token_usage(
            prompt_tokens=100 + self.call_count,
            completion_tokens=7,
            cache_read_tokens=0,
            cache_write_tokens=0,
            context_window=0,
            response_id=response.raw_response.id,
        )
        return response


def say(text):
    return Message(role="assistant", content=[TextContent(text=text)])


def call(number, name, arguments, **fields):
    calls = [MessageToolCall(id=f"call_{number}", name=name, arguments=json.dumps(arguments), origin="completion")]
    return Message(role="assistant", tool_calls=calls, **fields)


register_tool("AreaTool", AreaTool)
script = [
    call(1, "area", {"width": 3, "height": 4}, content=[TextContent(text="I ask.")], reasoning_content="Let me see."),
    call(2, "area", {"width": -3, "height": 4}),
    call(3, "nothing", {"x": 1}),
    say("The area is 12."),
    say("abandoned answer"),
    say("kept answer"),
]
agent = Agent(
    llm=CountingLLM.from_messages(script),
    tools=[Tool(name="AreaTool")],
    include_default_tools=[],
    system_prompt="You measure.",
)
talk = Conversation(
    agent=agent,
    workspace="workspace",
    persistence_dir="openhands",
    conversation_id=uuid.UUID("0123456789abcdef0123456789abcdef"),
    visualizer=None,
)
talk.send_message("How large is 3 by 4?")
# The registry knows instances of LLM itself only, so that a scripted one enters its metrics here.
talk.state.stats.usage_to_metrics["policy"] = talk.state.agent.llm.metrics
talk.run()
leaf = talk.state.leaf_event_id
talk.send_message("Once more?")
talk.run()
talk.navigate_to(leaf)
talk.send_message("Again?")
talk.run()
talk.close()
shutil.rmtree("workspace", ignore_errors=True)
