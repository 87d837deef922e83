"""Names for what the functions take."""

from __future__ import annotations

import os
from typing import Any, Union

from ._native import Scenario

#: What a scenario can be made of: text, the name of one that is shipped, a path, a dict of its keys, another scenario.
Source = Union[str, "os.PathLike[str]", dict[str, Any], Scenario]

#: A pool, a Dask client, the module ``ray`` or its name; nothing of them is imported unless it is given.
Client = Any
