"""A planner of known quality behind the fake service: mostly right specs and code, and faults at known places."""

import json
import random
import re
from dataclasses import dataclass, field
from typing import Any

from planner_server import Reply

WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "inlet", "jetty", "knoll", "lotus")
SAMPLES = ["", "a", "red sky", "one two three", "x y", "Hello", "ABC def", "42", "sea", "9 lives", "no", "the end"]
SAMPLES += ["Zoë", "!?", "a-b-c", "tab le"]


@dataclass
class PlannerModel:
    """Answers prompts of `planner.drafts`; what it says depends on the prompt and the seed alone."""

    faults: dict[str, int] = field(default_factory=dict[str, int])
    """Fault -> one spec in so many has it: `ambiguous`, `wrong_example`, `blocked`, `duplicate`, `broken_json`,
    `outside_schema`, `unavailable`, `internal_error`, `rate_limited`, `slow_drip`, `hang_up` (each
    once, then an answer).
    """
    bodies: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    seen: dict[str, int] = field(default_factory=dict[str, int])

    def __call__(self, prompt: str) -> Reply:
        """Return the answer to a prompt."""
        if "Write the body of each function" in prompt:
            return self._code(prompt, self._count(prompt))
        found = re.search(r"Variation (\d+).*Request: (.*)\n", prompt, re.DOTALL)
        assert found is not None
        mark = f"{found[2]}/{found[1]}"
        times = self._count(mark)
        number = random.Random(mark).randrange(10**6)
        has = {name: number % every == 0 for name, every in self.faults.items()}
        if has.get("blocked"):
            return Reply(text=None, blocks_prompt="SAFETY")
        if has.get("unavailable") and times == 1:
            return Reply(status=503, message="overloaded")
        if has.get("internal_error") and times == 1:
            return Reply(status=500, message="internal")
        if times == 1 and (how := {"slow_drip": "trickle", "hang_up": "hang_up"}.get(_first(has))):
            return Reply(text="x" * 400, how=how)
        if has.get("rate_limited") and times == 1:
            return Reply(status=429, message="slow down", retry_delay="0.05s", headers={"Retry-After": "0"})
        if has.get("broken_json") and times == 1:
            return Reply(text='{"name": "cut', finish="length")
        draft = self._draft(0 if has.get("duplicate") else number, has)
        if has.get("outside_schema") and times == 1:
            draft["difficulty"] = 9
        return Reply(text=json.dumps(draft))

    def _count(self, what: str) -> int:
        self.seen[what] = self.seen.get(what, 0) + 1
        return self.seen[what]

    def _draft(self, number: int, has: dict[str, bool]) -> dict[str, Any]:
        first, second = WORDS[number % 12], WORDS[number // 12 % 12]
        factor, name = number // 144 % 997, f"join_{first}_{second}_{number}"
        right = f"return '{first}' + text[::-1] + '{second}' + str(len(text) * {factor})"
        wrong = f"return '{first}' + text + '{second}' + str(len(text) * {factor})"
        self.bodies[name] = [right, right, wrong if has.get("ambiguous") else right]
        output = f"{first}cba{second}{3 * factor}"
        return {
            "name": f"agent_{name}",
            "description": "An agent that joins texts in its own way.",
            "difficulty": 1,
            "workflow": "single",
            "tools": [
                {
                    "name": name,
                    "arguments": [{"name": "text", "type": "str"}],
                    "returns": "str",
                    "description": f"Return {first}, the text backwards, {second} and {factor} times its length.",
                    "behaviour": [f"Nothing stands between the four parts of number {number}."],
                    "refuses_when": "",
                    "samples": [json.dumps(text) for text in SAMPLES],
                    "refused_samples": [],
                    "examples": [
                        {"input": '"abc"', "output": json.dumps("no" if has.get("wrong_example") else output)},
                        {"input": '"x"', "output": json.dumps(f"{first}x{second}{factor}")},
                    ],
                }
            ],
        }

    def _code(self, prompt: str, times: int) -> Reply:
        [name] = re.findall(r'"name": "(join_\w+)"', prompt)
        body = self.bodies[name][(times - 1) % 3]
        return Reply(text=json.dumps({"functions": [{"name": name, "body": body}]}))


def _first(has: dict[str, bool]) -> str:
    return next((name for name in ("slow_drip", "hang_up") if has.get(name)), "")
