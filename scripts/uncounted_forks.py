"""A pytest plugin of `coverage.sh`: what forked children run is not counted.

slipcover takes their counts through temporary files, and ends with an error where a child has closed its own.
"""

import os

os.fork, os._exit = os.fork.__wrapped__, os._exit.__wrapped__  # pyright: ignore[reportFunctionMemberAccess] - put there by slipcover
