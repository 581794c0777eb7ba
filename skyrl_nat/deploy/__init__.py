"""Production: a checkpoint behind a server, agents written on request, feedback that becomes training data.

`material.py` says what is served, `server.py` starts and supervises it, `pipeline.py` turns a request into an agent,
`app.py` is the HTTP front. May import everything below `service`; no Ray. Start at `running.py`.
"""
