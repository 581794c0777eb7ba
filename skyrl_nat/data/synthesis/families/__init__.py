"""One module per family of tools, each with a `FAMILY`."""
