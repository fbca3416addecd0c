"""One room per paper. `ASSAY_PAPERS` names further folders that hold rooms, as PATH does."""

import os

__path__ += [folder for folder in os.environ.get("ASSAY_PAPERS", "").split(os.pathsep) if folder]
