"""The routes, one file per subject; each is made by a function that is given what it needs, and works alone."""
