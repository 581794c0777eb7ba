"""A text that arrives as it is wherever words are passed on, or does not."""

import shlex

from skyrl_nat.config.overrides import _quoted

SIGNS = "a#b =c(d)%e@f\\g,h i é ü{j}[k]$l;m&n'o*p!q~r|s:t\"u"
"""Every sign that a shell or Hydra's grammar may take for something else."""


def signs_of(key: str) -> str:
    """Return the override that gives a key this text, as a shell hands it over."""
    [word] = shlex.split(_quoted(key, SIGNS))
    return word
