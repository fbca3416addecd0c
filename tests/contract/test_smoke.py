"""The smoke scale of every study runs, quickly, and decides or explains every claim."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SECONDS = 90  # of which a fresh machine may spend half a minute on compiling kernels


@pytest.fixture(scope="module")
def events(request, tmp_path_factory):
    cache = {}

    def run(slug: str) -> list[dict]:
        if slug not in cache:
            home = tmp_path_factory.mktemp(slug)
            answer = subprocess.run(
                [sys.executable, "-m", "assay", "run", slug, "--scale", "smoke", "--json"],
                capture_output=True,
                text=True,
                timeout=600,
                env={**os.environ, "ASSAY_HOME": str(home)},
            )
            assert answer.returncode == 0, answer.stdout + answer.stderr
            cache[slug] = [json.loads(line) for line in answer.stdout.splitlines()]
        return cache[slug]

    return run


def test_no_trial_fails_and_it_is_quick(slug, events):
    finished = next(e for e in events(slug) if e["event"] == "run-finished")
    assert finished["failed"] == 0
    assert finished["seconds"] < SECONDS


def test_every_claim_gets_a_verdict(slug, study, events):
    found = {e["claim"]: e for e in events(slug) if e["event"] == "verdict"}
    assert list(found) == [claim.id for claim in study.claims]
    for verdict in found.values():
        assert verdict["verdict"] != "failed", verdict
        assert verdict["reason"], verdict


def test_a_report_is_written(slug, events):
    path = next(e["path"] for e in events(slug) if e["event"] == "report")
    with open(path, encoding="utf-8") as page:  # noqa: PTH123
        assert "<html" in page.read()
