"""The Rust driver `scylla` with the example `driver` of the crate `batcher`. It is built beforehand and found in the folder
`FAIRLANE_EXAMPLES`.
"""

import os
import pathlib

from _drivers import run

if __name__ == "__main__":
    run([pathlib.Path(os.environ["FAIRLANE_EXAMPLES"], "driver")])
