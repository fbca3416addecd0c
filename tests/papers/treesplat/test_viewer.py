from __future__ import annotations

import io
import math
import shutil
import socket
import time
import urllib.request

import numpy as np
import pytest
import torch
from PIL import Image

from assay.papers.treesplat.playback import orbit
from assay.papers.treesplat.tree_splat import TreeSplat
from assay.papers.treesplat.viewer import BROWSER, SERVER, Viewer, describe

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture
def model():
    """A red ball that stands still."""
    points = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)) * 0.2
    model = TreeSplat.from_points(
        points, torch.tensor([[0.9, 0.0, 0.0]]).expand(60, 3), sh_degree=0
    )
    with torch.no_grad():
        model.splats["opacities"].fill_(4.0)
        model.splats["scales"].fill_(math.log(0.2))
    return model


def test_a_model_is_described(model):
    assert describe(model) == "60 Gaussians, motion: tree, 60 nodes, 1 levels, not merged"
    assert describe(model.merge()) == "60 Gaussians, motion: merged"


def test_the_page_is_served_and_its_port_is_free_afterwards(model, capsys):
    with Viewer(model, 0) as viewer:
        assert capsys.readouterr().out == ""
        assert viewer.url == f"http://127.0.0.1:{viewer.port}"
        page = urllib.request.urlopen(viewer.url, timeout=10).read()
        assert b"<html" in page
        with pytest.raises(OSError, match="in use"):
            Viewer(model, viewer.port)
    with socket.create_server(("127.0.0.1", viewer.port)):
        pass


def middle(page) -> np.ndarray:
    """Mean colour of the middle of the picture, which the panel of 324 pixels leaves room for."""
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        return np.asarray(picture.convert("RGB"))[190:210, 278:298].mean((0, 1))


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the page does not show what it should"
        time.sleep(0.1)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH: apt-get install chromium")
def test_the_page_shows_the_model_and_follows_its_time(model):
    playwright = pytest.importorskip("playwright.sync_api")
    first = orbit(model, 1)[0]
    with torch.no_grad():  # at t = 1 it has left the picture
        basis = model.motion.basis
        for parameter in basis.parameters():
            parameter.zero_()
        basis.mlp[0].weight[0, 0] = basis.mlp[2].weight[0, 0] = 1
        basis.mlp[-1].weight[2, 0] = 1
        model.motion.field_mu[:, 0] = 30
        assert float(model.at(1.0)["means"].mean(0)[2]) > 20
    with (
        Viewer(model, 0, height=128, viewmat=first) as viewer,
        playwright.sync_playwright() as tool,
    ):
        browser = tool.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 900, "height": 400})
        page.goto(viewer.url)
        wait_for(lambda: middle(page) @ [1, -1, -1] > 150)
        assert page.get_by_text("60 Gaussians").is_visible()
        viewer.time.value = 1.0
        wait_for(lambda: middle(page).min() > 240)
        viewer.renderer.value = BROWSER
        viewer.time.value = 0.0
        wait_for(lambda: middle(page) @ [1, -1, -1] > 150)
        viewer.renderer.value = SERVER
        viewer.playing.value = True
        wait_for(lambda: 0 < viewer.time.value < 1)
        viewer.playing.value = False
        browser.close()
