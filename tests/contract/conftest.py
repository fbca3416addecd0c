"""Every test of this folder is run for every paper of the registry."""

from __future__ import annotations

import pytest

from assay import registry


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "slug" in metafunc.fixturenames:
        metafunc.parametrize("slug", registry.slugs())


@pytest.fixture
def study(slug):
    return registry.study(slug)


@pytest.fixture
def room(slug):
    return registry.room(slug)
