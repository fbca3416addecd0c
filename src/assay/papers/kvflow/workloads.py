"""Traces of workflows: random tokens of the paper's sizes, and PEER on financial questions."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from assay.papers.kvflow.step_graph import StepGraph
from assay.papers.kvflow.trace import Tokenize, TraceRequest, merge_traces
from assay.toolkits.checks import number, one_of, whole
from assay.toolkits.data import find_data

Prompter = Callable[[str, int], tuple[Sequence[int], Sequence[int]]]


@dataclass(frozen=True)
class Sizes:
    """Lengths in tokens; the paper has 4096/32/32 and 8192/32/32, and 512-1024/256/256.

    Attributes:
        fixed: Of an agent's fixed prompt, >= 1.
        dynamic: Of what changes from call to call, >= 0.
        output: Of what is generated, >= 1.
    """

    fixed: int = 4096
    dynamic: int = 32
    output: int = 32

    def __post_init__(self) -> None:
        whole("fixed", self.fixed)
        whole("dynamic", self.dynamic, 0)
        whole("output", self.output)


def sequential_graph(n_agents: int = 10, n_branches: int = 1) -> StepGraph:
    """Stages in a cycle; each is one agent, or one of several that the stage before chooses.

    Args:
        n_agents: Number of stages, >= 2.
        n_branches: Agents to choose from in each stage (the paper has 1 and 2).

    Returns:
        A graph of `n_agents * n_branches` agents named `a0`, `a1`, ... or `a0.0`, `a0.1`, ...
    """
    whole("n_agents", n_agents, 2)
    whole("n_branches", n_branches)
    stages = [
        [f"a{i}" if n_branches == 1 else f"a{i}.{j}" for j in range(n_branches)]
        for i in range(n_agents)
    ]
    graph = StepGraph()
    for i, stage in enumerate(stages):
        for agent in stage:
            graph.add(agent, join="any" if i else None)
    for before, stage in pairwise(stages):
        for agent in before:
            graph.branch(agent, stage)
    for last in stages[-1]:
        for first in stages[0]:
            graph.loop(last, first)
    return graph


def parallel_graph(n_workers: int = 4, join: str = "all") -> StepGraph:
    """A planner, workers that run at the same time, and a writer that joins them; in a cycle.

    Args:
        n_workers: Number of workers, >= 1.
        join: "all" or "any": what the writer waits for.

    Returns:
        A graph of the agents `plan`, `work0`, `work1`, ..., `write`.
    """
    whole("n_workers", n_workers)
    one_of("join", join, ("all", "any"))
    workers = [f"work{i}" for i in range(n_workers)]
    graph = StepGraph().add("plan")
    for worker in workers:
        graph.add(worker, ["plan"])
    graph.add("write", workers, "all" if join == "all" else "any")
    return graph.loop("write", "plan")


def peer_graph() -> StepGraph:
    """PEER's agents in a cycle: one question a round.

    Returns:
        A graph of the agents `plan`, `execute`, `express`, `review`.
    """
    graph = StepGraph().add("plan").add("execute", ["plan"]).add("express", ["execute"])
    return graph.add("review", ["express"]).loop("review", "plan")


def run_graph(
    graph: StepGraph,
    prompt: Prompter,
    output_len: int,
    n_rounds: int,
    client: str = "workflow",
    seed: int | np.random.SeedSequence = 0,
    t: float = 0.0,
) -> list[TraceRequest]:
    """The calls of a workflow, one step after the other.

    All agents that are ready start together; the step ends when they have ended. Where a branch
    or a loop leaves a choice, one target is drawn with equal chances.

    Args:
        graph: Its agents. Where several entries are alternatives (each is reached by a loop
            edge), one of them is drawn as well.
        prompt: Called with an agent and the number of its call (from 0); returns the ids of its
            fixed prompt and of what follows.
        output_len: Tokens that each call generates.
        n_rounds: Times that the workflow goes round, >= 1: loop edges are followed
            `n_rounds - 1` times.
        client: Name of the application.
        seed: Of the choices.
        t: Seconds from the start of the trace at which it begins.

    Returns:
        Its requests; each waits for those whose results it takes.

    Raises:
        ValueError: The graph is wrong, or a number is out of range.
    """
    whole("n_rounds", n_rounds)
    rng = np.random.default_rng(seed)
    entries = list(graph.entries)
    back = {dst for src in graph.agents for dst in graph.loop_targets(src)}
    if len(entries) > 1 and set(entries) <= back:
        entries = [entries[int(rng.integers(len(entries)))]]
    run = graph.run(entries)
    trace: list[TraceRequest] = []
    last: dict[str, int] = {}
    calls: dict[str, int] = {}
    laps = 0
    while run.ready:
        started = [(agent, run.inputs(agent)) for agent in run.ready]
        for agent, _ in started:
            run.start(agent)
        steps = run.steps()
        next_use = run.next_use()
        places = {}
        for agent, inputs in started:
            fixed, dynamic = prompt(agent, calls.get(agent, 0))
            places[agent] = len(trace)
            trace.append(
                TraceRequest(
                    client=client,
                    agent=agent,
                    prompt_ids=(*fixed, *dynamic),
                    fixed_len=len(fixed),
                    output_len=output_len,
                    steps=steps,
                    t=t,
                    after=tuple(last[before] for before in inputs),
                    next_use=next_use[agent],
                )
            )
            calls[agent] = calls.get(agent, 0) + 1
        last |= places
        for agent, _ in started:
            loops = graph.loop_targets(agent)
            if loops and laps < n_rounds - 1:
                laps += 1
                run.finish(agent, [loops[int(rng.integers(len(loops)))]])
            else:
                chosen = {
                    targets[int(rng.integers(len(targets)))]
                    for targets in graph.branch_targets(agent)
                }
                run.finish(agent, sorted(chosen))
    return trace


def synthetic_workflow(
    graph: StepGraph,
    sizes: Sizes | None = None,
    n_rounds: int = 3,
    client: str = "workflow",
    seed: int = 0,
    n_vocab: int = 32_000,
    t: float = 0.0,
) -> list[TraceRequest]:
    """Random tokens for a workflow: fixed prompts once per agent, the rest for every call.

    Args:
        graph: Its agents.
        sizes: Lengths of prompts and outputs; None: 4096/32/32.
        n_rounds: Times that it goes round, >= 1.
        client: Name of the application; it takes part in the seed.
        seed: Of tokens and choices.
        n_vocab: Token ids are below it.
        t: Seconds from the start of the trace at which it begins.

    Returns:
        Its requests.
    """
    sizes = sizes or Sizes()
    whole("seed", seed, 0)
    whole("n_vocab", n_vocab, 2)
    tokens, choices = np.random.SeedSequence([seed, *client.encode()]).spawn(2)
    rng = np.random.default_rng(tokens)
    fixed = {
        agent: tuple(rng.integers(n_vocab, size=sizes.fixed).tolist()) for agent in graph.agents
    }

    def prompt(agent: str, call: int) -> tuple[Sequence[int], Sequence[int]]:
        return fixed[agent], rng.integers(n_vocab, size=sizes.dynamic).tolist()

    return run_graph(graph, prompt, sizes.output, n_rounds, client, choices, t)


def concurrent_workflows(
    graph: StepGraph,
    n_workflows: int,
    sizes: Sizes | None = None,
    n_rounds: int = 3,
    seed: int = 0,
    spread: float = 0.0,
    n_vocab: int = 32_000,
) -> list[TraceRequest]:
    """Independent workflows at the same time, each with fixed prompts of its own.

    Args:
        graph: The agents of each.
        n_workflows: How many; their clients are `w0`, `w1`, ...
        sizes: Lengths of prompts and outputs; None: 4096/32/32.
        n_rounds: Times that each goes round.
        seed: Of tokens, choices and starts.
        spread: Seconds over which their starts are drawn evenly; 0: all at once.
        n_vocab: Token ids are below it.

    Returns:
        The requests of all.
    """
    whole("n_workflows", n_workflows)
    number("spread", spread, least=0)
    starts = np.random.default_rng([whole("seed", seed, 0), 1]).uniform(0, spread, n_workflows)
    return merge_traces(
        synthetic_workflow(graph, sizes, n_rounds, f"w{i}", seed, n_vocab, float(start))
        for i, start in enumerate(starts)
    )


ROLES = (
    "You work for an equity research desk and compare companies by their reported figures.",
    "You work for a macroeconomics desk and explain what indicators mean for markets.",
    "You work for a fund adviser and weigh risk against return for private savers.",
    "You work for a bank's risk office and look for what could go wrong.",
    "You work for an investor helpline and explain finance in everyday words.",
)
"""One line per application group, by which their prompts differ."""

_HEADER = (
    "You are one of four assistants who answer a financial question together: one plans the "
    "sub-questions, one executes them, one expresses the answer, one reviews it.\n"
)

_TEMPLATES = {
    "plan": "planning_en_prompt.yaml",
    "execute": "executing_en_prompt.yaml",
    "express": "expressing_en_prompt.yaml",
    "review": "reviewing_en_prompt.yaml",
}


@dataclass(frozen=True)
class PeerApplication:
    """One application that runs PEER (paper, section 4: its five groups of a real workflow).

    Attributes:
        client: Its name.
        fixed: The fixed prompt of each agent of `peer_graph`: a header that all share, the
            group's role, the agent's own template without its changing fields, and examples.
    """

    client: str
    fixed: Mapping[str, str]

    def dynamic(self, agent: str, question: str, background: str = "") -> str:
        """The changing end of a prompt.

        Args:
            agent: One of `peer_graph`.
            question: What the user asks.
            background: What the agent before has found.
        """
        one_of("agent", agent, self.fixed)
        label = "The provided answer is" if agent == "review" else "Background information"
        return f"\n{label}:\n{background}\nThe question is: {question}\n"


def peer_questions() -> list[str]:
    """The 100 questions of the PEER data set.

    Returns:
        Their texts, in the order of the file.

    Raises:
        MissingData: `kvflow/FinQA.jsonl` is nowhere to be found.
    """
    return [record["text"] for record in _records(find_data("kvflow", "FinQA.jsonl"))]


def peer_applications(
    n_groups: int = 5, n_examples: int = 2, example_chars: int = 240, seed: int = 0
) -> list[PeerApplication]:
    """Application groups that run PEER with prompts of their own.

    The paper had a language model vary roles and instructions; here a role comes from `ROLES`
    and the examples are drawn from the data set's sample records (which are in Chinese).

    Args:
        n_groups: How many, from 1 to 5.
        n_examples: Examples in each fixed prompt, from 0 to 10.
        example_chars: Characters after which an example is cut.
        seed: Of the draw.

    Returns:
        One application per group, named `peer0`, `peer1`, ...

    Raises:
        MissingData: The data are nowhere to be found.
        ValueError: A number is out of range.
    """
    import yaml

    number("n_groups", whole("n_groups", n_groups), least=1, most=len(ROLES))
    number("n_examples", whole("n_examples", n_examples, 0), least=0, most=10)
    whole("example_chars", example_chars)
    planned = _examples(find_data("kvflow", "planning_agent_data.jsonl"))
    expressed = _examples(find_data("kvflow", "expressing_agent_data.jsonl"))
    templates = {
        agent: _fixed_part(yaml.safe_load(find_data("kvflow", name).read_text("utf-8")))
        for agent, name in _TEMPLATES.items()
    }
    rng = np.random.default_rng(whole("seed", seed, 0))
    applications = []
    for group in range(n_groups):
        fixed = {}
        for agent, template in templates.items():
            records = planned if agent == "plan" else expressed
            drawn = rng.choice(len(records), size=min(n_examples, len(records)), replace=False)
            examples = [
                f"Example question: {records[i][0]}\n{records[i][1]}"[:example_chars] + "\n"
                for i in drawn
            ]
            fixed[agent] = "".join([_HEADER, ROLES[group], "\n", template, *examples])
        applications.append(PeerApplication(f"peer{group}", fixed))
    return applications


def peer_workflows(
    tokenize: Tokenize,
    n_groups: int = 5,
    n_questions: int = 10,
    output_len: int = 32,
    n_examples: int = 2,
    seed: int = 0,
) -> list[TraceRequest]:
    """PEER on the financial questions: groups at the same time, one question a round.

    Args:
        tokenize: Turns text into token ids; fixed and changing parts are tokenised apart.
        n_groups: Application groups, from 1 to 5.
        n_questions: Questions that each group draws, from 1 to 100.
        output_len: Tokens that each call generates. A sample answer cut to as many stands in
            the next agent's prompt for what was generated.
        n_examples: Examples in each fixed prompt.
        seed: Of questions and examples.

    Returns:
        The requests of all groups.

    Raises:
        MissingData: The data are nowhere to be found.
        ValueError: A number is out of range.
    """
    questions = peer_questions()
    number("n_questions", whole("n_questions", n_questions), least=1, most=len(questions))
    whole("output_len", output_len)
    answers = [
        _first_tokens(answer, output_len, tokenize)
        for _, answer in _examples(find_data("kvflow", "expressing_agent_data.jsonl"))
    ]
    traces = []
    for group, application in enumerate(peer_applications(n_groups, n_examples, seed=seed)):
        rng = np.random.default_rng([seed, group])
        asked = [questions[i] for i in rng.permutation(len(questions))[:n_questions]]
        fixed = {agent: tuple(tokenize(text)) for agent, text in application.fixed.items()}

        def prompt(
            agent: str,
            call: int,
            application: PeerApplication = application,
            asked: Sequence[str] = asked,
            fixed: Mapping[str, Sequence[int]] = fixed,
            rng: np.random.Generator = rng,
        ) -> tuple[Sequence[int], Sequence[int]]:
            background = "" if agent == "plan" else answers[int(rng.integers(len(answers)))]
            return fixed[agent], tokenize(application.dynamic(agent, asked[call], background))

        traces.append(
            run_graph(peer_graph(), prompt, output_len, n_questions, application.client, seed)
        )
    return merge_traces(traces)


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def _examples(path: Path) -> list[tuple[str, str]]:
    """Questions and answers of a file of sample records, of either agent."""
    found = []
    for record in _records(path):
        if "messages" in record:
            asked, answer = (message["content"] for message in record["messages"][:2])
        else:
            asked, answer = record["instruction"], record["output"]
        question = re.search("问题是：(.*)", asked)
        found.append((question.group(1).strip() if question else "", answer))
    return found


def _first_tokens(text: str, n_tokens: int, tokenize: Tokenize) -> str:
    """The longest beginning of a text that has no more tokens."""
    ends = range(len(text) + 1)
    return text[: bisect_right(ends, n_tokens, key=lambda end: len(tokenize(text[:end]))) - 1]


def _fixed_part(template: Mapping[str, str]) -> str:
    """A prompt template without its changing fields, nor the lines that announce them."""
    kept: list[str] = []
    for line in template["instruction"].splitlines():
        text = line.strip()
        if not re.search(r"(?<!\{)\{\w+\}", text):
            kept.append(line)
        elif text.startswith("{"):
            while kept and not kept[-1].strip():
                kept.pop()
            if kept:
                kept.pop()
    instruction = "\n".join(kept).replace("{{", "{").replace("}}", "}")
    parts = (template["introduction"], template["target"], instruction)
    return re.sub(r"\n\s*\n+", "\n", "\n".join(parts)) + "\n"
