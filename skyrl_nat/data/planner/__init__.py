"""A planner: an LLM behind an API that is asked for JSON, within limits of rate and money. Start at `ask.py`.

    async with Planner(config, folder) as planner:
        result = await planner.ask(prompt, schema)

`backends.py` speaks HTTP, `limits.py` waits, `ledger.py` counts and remembers, `schema.py` and `parsing.py` check.
"""
