import pytest
from task_plans import GOOD, TASK, artifact, node

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.task_dag.baseline import plan_by_rules
from skyrl_nat.environments.task_dag.episodes import reference_answers
from skyrl_nat.environments.task_dag.graph import Node
from skyrl_nat.environments.task_dag.payload import node_json, parse_hidden, parse_request
from skyrl_nat.environments.task_dag.task_types import GROUP
from skyrl_nat.environments.task_dag.validator import TaskDagValidator
from skyrl_nat.errors import ConfigError, DataError
from skyrl_nat.rewards.validators import SAMPLED_TOKENS
from skyrl_nat.types import Task

VALIDATOR = TaskDagValidator(EnvironmentConfig())
TASKS = load_tasks(["builtin:task_dag/validation"])[::9]


def total(task: Task, nodes: list[Node], num_turns: int = 0) -> float:
    turns = num_turns or len(task.hidden["reference"]) + 1
    return VALIDATOR.validate(task, artifact(nodes, turns), seed=3).total


def sensible(task: Task) -> list[Node]:
    """The reference with a needless wait: what a planner does who is careful, but not clever."""
    nodes = parse_hidden(task.hidden).reference_nodes
    leaves = [item for item in nodes if item.type != GROUP]
    first, last = leaves[0], leaves[-1]
    waits = tuple(dict.fromkeys([*last.depends_on, first.id]))
    return [*nodes[:-1], node(last.id, *waits, type=last.type, parent=last.parent, description=last.description)]


def leaves_of(task: Task) -> list[Node]:
    return [item for item in parse_hidden(task.hidden).reference_nodes if item.type != GROUP]


def identical(task: Task) -> list[Node]:
    first = leaves_of(task)[0]
    return [node(f"n{i}", type=first.type, description=first.description) for i in range(5)]


def all_words_once(task: Task) -> list[Node]:
    return [node("all", description="; ".join(task.payload["needs"])[:200]), node("rest", description="Do the rest")]


def all_words_everywhere(task: Task) -> list[Node]:
    words = " ".join(word for item in task.hidden["requirements"] for word in item["keywords"])
    return [node(f"n{i}", type=leaf.type, description=f"{i} {words}") for i, leaf in enumerate(leaves_of(task))]


def chain(task: Task) -> list[Node]:
    leaves = leaves_of(task)
    names = [item.id for item in leaves]
    return [
        node(item.id, *names[max(0, i - 1) : i], type=item.type, description=item.description)
        for i, item in enumerate(leaves)
    ]


def no_order(task: Task) -> list[Node]:
    return [node(item.id, type=item.type, description=item.description) for item in leaves_of(task)]


def one_cheap_type(task: Task) -> list[Node]:
    return [node(item.id, *item.depends_on, type="review", description=item.description) for item in leaves_of(task)]


def padded(task: Task) -> list[Node]:
    fillers = [node(f"f{i}", type="review", description=f"Look at thing number {i} again") for i in range(30)]
    return [*leaves_of(task)[1:], *fillers] if not any(i.depends_on for i in leaves_of(task)[1:]) else fillers


def groups_only(task: Task) -> list[Node]:
    return [node(f"g{i}", type=GROUP, description=need) for i, need in enumerate(task.payload["needs"])]


def nothing_said(task: Task) -> list[Node]:
    return [
        node(f"n{i}", *item.depends_on[:0], type=item.type, description=".") for i, item in enumerate(leaves_of(task))
    ]


BAD = [
    identical,
    all_words_once,
    all_words_everywhere,
    chain,
    no_order,
    one_cheap_type,
    padded,
    groups_only,
    nothing_said,
    lambda task: [],
]


def test_references_are_full_successes_and_a_sensible_plan_is_near() -> None:
    for task in TASKS:
        turns = len(task.hidden["reference"]) + 1
        for seed in range(3):
            nodes = parse_hidden(task.hidden).reference_nodes
            result = VALIDATOR.validate(task, artifact(nodes, turns), seed=seed)
            assert (result.total, result.is_success, result.findings) == (1.0, True, []), task.task_id
        assert total(task, sensible(task), turns + 1) > 0.8, task.task_id


@pytest.mark.parametrize("make", BAD)
def test_plans_that_only_look_right_score_lower_than_a_sensible_one(make) -> None:
    for task in TASKS:
        assert total(task, make(task)) < total(task, sensible(task), len(task.hidden["reference"]) + 2) - 0.02, task


@pytest.mark.parametrize("make", [identical, all_words_once, all_words_everywhere, groups_only, nothing_said, padded])
def test_plans_without_substance_earn_little(make) -> None:
    assert max(total(task, make(task)) for task in TASKS) < 0.35


def test_rules_without_a_model_lie_between() -> None:
    values = [total(task, plan_by_rules(parse_request(task.payload))) for task in TASKS]
    assert 0.35 < sum(values) / len(values) < 0.7


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"nodes": [node_json(item) for item in (node("a", "b"), node("b", "a"))]}, "in a ring, got 'a', 'b'"),
        ({"nodes": [node_json(node(f"n{i}")) for i in range(101)]}, "at most 100 tasks, got 101"),
        ({"nodes": []}, "a plan must have tasks"),
        ({"nodes": "x"}, "nodes must be tasks"),
        ({"nodes": None}, "nodes must be tasks"),
        ({"nodes": [{"id": 1}]}, "nodes must be tasks"),
        ({"num_turns": "many"}, "nodes must be tasks"),
        ({"failure": "invalid plan: a ring", "is_valid": False}, "invalid plan: a ring"),
    ],
)
def test_an_invalid_plan_scores_0_with_its_reason(changes: dict, finding: str) -> None:
    """DG-01, DG-04."""
    weights = EnvironmentConfig(reward_weights={"shaping_answers": 1.0})
    for validator in (VALIDATOR, TaskDagValidator(weights)):
        result = validator.validate(TASK, artifact(GOOD) | changes)
        assert (result.total, result.is_success, set(result.parts.values())) == (0.0, False, {0.0})
        assert finding in result.findings[0]


def test_form_pays_only_where_the_config_says_so() -> None:
    broken = artifact(GOOD, failure="broken answer: ...", answer_share=0.75)
    assert VALIDATOR.validate(TASK, broken).total == 0.0
    shaped = TaskDagValidator(EnvironmentConfig(reward_weights={"shaping_answers": 0.25}))
    assert shaped.validate(TASK, broken).total == pytest.approx(0.25 * 0.75 / 1.25)
    assert shaped.validate(TASK, artifact(GOOD)).total == 1.0


def test_an_empty_artifact_scores_0() -> None:
    assert VALIDATOR.validate(TASK, {}).total == 0.0


def test_tokens_count_where_they_are_known() -> None:
    num_tokens = sum(map(len, reference_answers(TASK)))
    result = VALIDATOR.validate(TASK, artifact(GOOD, **{SAMPLED_TOKENS: num_tokens}))
    assert (result.parts["cost"], result.is_success) == (0.5, True)
    assert result.findings == ["cost is 0.50 of 1"]


def test_findings_name_what_is_missing() -> None:
    findings = VALIDATOR.validate(TASK, artifact(GOOD[:3])).findings
    assert findings[0] == "coverage: no task of type deliver for 'publish the download archive'"
    assert findings[1] == "order: not kept: the download archive must wait for the payment page"


def test_more_turns_than_needed_are_dear_and_still_a_success() -> None:
    result = VALIDATOR.validate(TASK, artifact(GOOD, 4))
    assert (result.total, result.is_success) == (pytest.approx(1 - 0.05 / 2), True)
    for bad in (GOOD[:3], no_order(TASK), [*GOOD, *(node(f"f{i}") for i in range(9))]):
        assert not VALIDATOR.validate(TASK, artifact(bad)).is_success


def test_weights_come_from_the_config_and_unknown_ones_are_refused() -> None:
    only = dict.fromkeys(("success", "order", "parallelism", "shape", "cost", "diversity"), 0.0)
    validator = TaskDagValidator(EnvironmentConfig(reward_weights=only))
    assert validator.validate(TASK, artifact(GOOD[:3])).total == 0.75
    with pytest.raises(ConfigError, match=r"must name parts of the family .*, got beauty"):
        TaskDagValidator(EnvironmentConfig(reward_weights={"beauty": 1.0}))


def test_a_task_without_its_hidden_half_is_not_the_policys_fault() -> None:
    with pytest.raises(DataError, match="must be whole"):
        VALIDATOR.validate(TASK.visible(), artifact(GOOD))
