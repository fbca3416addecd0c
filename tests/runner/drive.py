"""Runs trials of the fake room in a process of its own.

Called with a JSON list of the arguments of `Trial`; prints the events as JSON lines. There is no
`if __name__ == "__main__"` on purpose: workers must not run a main module again.
"""

import json
import sys

import fake_room

from assay.ledger import Ledger
from assay.runner import Plan, Planned, execute
from assay.study import Scale, Trial

print(json.dumps({"event": "main"}), flush=True)


def planned(trial: Trial) -> Planned:
    key = trial.key("fake", 3, Scale.SMOKE)
    return Planned("fake", 3, Scale.SMOKE, trial, key, "fake_room:study")


with Ledger.open() as ledger:
    trials = [planned(Trial(**arguments)) for arguments in json.loads(sys.argv[1])]
    done = ledger.done(p.key for p in trials)
    plan = Plan(
        "fake",
        fake_room.study,
        Scale.SMOKE,
        todo=tuple(p for p in trials if p.key not in done),
        done=tuple(p for p in trials if p.key in done),
    )
    try:
        execute([plan], ledger, on_event=lambda e: print(json.dumps(e.to_json()), flush=True))
    except KeyboardInterrupt:
        sys.exit(130)
