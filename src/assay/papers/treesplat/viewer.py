"""A model in the web browser: a camera to move, a slider for time."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from assay.papers.treesplat.motion_tree import MotionTree
from assay.papers.treesplat.playback import FOV, draw, intrinsics, orbit, surroundings
from assay.papers.treesplat.tree_splat import SH_C0, TreeSplat
from assay.toolkits.checks import whole

if TYPE_CHECKING:
    from viser import ClientHandle

SERVER, BROWSER = "server (exact)", "browser (approximate)"


class Viewer:
    """Serves a page that shows a model; pictures follow its camera and its time.

    The pictures are drawn here, by the same rasterizer as in training, and sent as they become
    ready; or the browser draws the Gaussians of the instant, which is smoother to move around in
    but leaves out all harmonics but the constant one.

    Args:
        model: Any `TreeSplat`; merged ones are faster. It must not be trained meanwhile.
        port: Of the page; 0 for any that is free.
        host: Address to listen on; "0.0.0.0" lets other machines in.
        background: (3,) colour in [0, 1] behind the model.
        height: Rows of the pictures at first, in pixels.
        backend: Of `rasterize`.
        title: Of the page.
        up: (3,) the direction away from the ground.
        viewmat: (4, 4) world-to-camera of the first view; None for one that sees the whole model.

    Raises:
        ValueError: For arguments out of range.
        OSError: Where the port is taken.
    """

    def __init__(
        self,
        model: TreeSplat,
        port: int = 8080,
        host: str = "127.0.0.1",
        background: Sequence[float] = (1.0, 1.0, 1.0),
        height: int = 400,
        backend: str = "auto",
        title: str = "treesplat",
        up: Sequence[float] = (0.0, 0.0, 1.0),
        viewmat: torch.Tensor | None = None,
    ) -> None:
        import viser

        self.model, self.backend = model, backend
        self.background = torch.tensor(background, dtype=torch.float32)
        whole("height", height, 16)
        self.port = _free_port(host, port)
        with redirect_stdout(io.StringIO()):  # its banner
            self.server = viser.ViserServer(host, self.port, label=title, verbose=False)
        self.server.gui.configure_theme(show_share_button=False)
        self.server.gui.main_panel.dock_right()  # beside the picture, not over it
        self.server.scene.set_up_direction(np.asarray(up, float))
        self._first_view(orbit(model, 1, up=up)[0] if viewmat is None else viewmat)
        self._controls(title, height)
        self._wake, self._closed = threading.Event(), threading.Event()
        self._shown: dict[int, Any] = {}
        self._moment: float | None = None
        for control in (self.time, self.height, self.renderer, self.playing):
            control.on_update(lambda _: self._wake.set())
        self.server.on_client_connect(self._greet)
        self.server.on_client_disconnect(lambda client: self._shown.pop(client.client_id, None))
        self._thread = threading.Thread(target=self._run, name="viewer", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{self.server.get_host()}:{self.port}"

    def wait(self) -> None:
        """Returns when the page is closed from elsewhere, or at Ctrl-C."""
        try:
            while not self._closed.wait(3600):
                pass
        except KeyboardInterrupt:
            return

    def close(self) -> None:
        """Ends the page."""
        self._closed.set()
        self._wake.set()
        self._thread.join()
        self.server.stop()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _first_view(self, viewmat: torch.Tensor) -> None:
        pose = np.linalg.inv(viewmat.double().cpu().numpy())
        middle, _ = surroundings(self.model)
        ahead = max(float((middle.numpy() - pose[:3, 3]) @ pose[:3, 2]), 1e-3)
        camera = self.server.initial_camera
        camera.position = tuple(pose[:3, 3])
        camera.look_at = tuple(pose[:3, 3] + ahead * pose[:3, 2])
        camera.fov = FOV

    def _controls(self, title: str, height: int) -> None:
        gui = self.server.gui
        gui.add_markdown(f"**{title}**\n\n{describe(self.model)}")
        self.time = gui.add_slider("time", 0.0, 1.0, 0.005, 0.0)
        self.playing = gui.add_checkbox("play", False)
        self.seconds = gui.add_slider("seconds per loop", 0.5, 20.0, 0.5, 4.0)
        self.renderer = gui.add_dropdown("renderer", (SERVER, BROWSER), initial_value=SERVER)
        self.height = gui.add_slider("resolution", 64, 1080, 8, height - height % 8)

    def _greet(self, client: ClientHandle) -> None:
        client.camera.on_update(lambda _: self._wake.set())
        self._wake.set()

    def _run(self) -> None:
        before = time.monotonic()
        while True:
            self._wake.wait(0.02 if self.playing.value else None)
            self._wake.clear()
            if self._closed.is_set():
                return
            now = time.monotonic()
            if self.playing.value and self.server.get_clients():
                self.time.value = (self.time.value + (now - before) / self.seconds.value) % 1.0  # type: ignore[misc]
            before = now
            self._show()

    def _show(self) -> None:
        in_browser, moment = self.renderer.value == BROWSER, float(self.time.value)
        if in_browser and self._moment != moment:
            self._send_gaussians(moment)
        elif not in_browser and self._moment is not None:
            self.server.scene.remove_by_name("/gaussians")
        self._moment = moment if in_browser else None
        for name, client in self.server.get_clients().items():
            height = int(self.height.value)
            wanted = (in_browser, in_browser or (moment, height, client.camera.update_timestamp))
            if self._shown.get(name) == wanted:
                continue
            self._shown[name] = wanted
            client.scene.set_background_image(
                None if in_browser else self.picture(client, moment, height)
            )

    def picture(self, client: ClientHandle, t: float, height: int) -> NDArray[np.uint8]:
        """What the camera of a page sees.

        Args:
            client: The page.
            t: Time in [0, 1].
            height: Rows; the page's shape gives the columns.

        Returns:
            uint8 (height, columns, 3).
        """
        camera = client.camera
        width = max(1, round(height * camera.aspect))
        pose = np.eye(4)
        pose[:3, :3] = _rotations(np.asarray(camera.wxyz)[None])[0]
        pose[:3, 3] = camera.position
        viewmat = torch.from_numpy(np.linalg.inv(pose)).float()
        K = intrinsics(width, height, camera.fov)
        return draw(self.model, viewmat, K, width, height, t, self.background, self.backend)

    def _send_gaussians(self, t: float) -> None:
        now = {name: value.detach().cpu().numpy() for name, value in self.model.at(t).items()}
        axes = _rotations(now["quats"]) * np.exp(now["scales"])[:, None]
        self.server.scene.add_gaussian_splats(
            "/gaussians",
            centers=now["means"],
            covariances=axes @ axes.swapaxes(1, 2),
            rgbs=np.clip(0.5 + SH_C0 * now["sh0"].reshape(-1, 3), 0, 1),
            opacities=1 / (1 + np.exp(-now["opacities"].reshape(-1, 1))),
        )


def describe(model: TreeSplat) -> str:
    """What a model is, in one line: how many Gaussians, and what moves them."""
    motion = model.motion
    parts = [f"{model.n:,} Gaussians", f"motion: {motion.kind}"]
    if isinstance(motion, MotionTree):
        parts.append(f"{motion.n_nodes:,} nodes, {motion.depth()} levels, not merged")
    return ", ".join(parts)


def _rotations(wxyz: NDArray[Any]) -> NDArray[Any]:
    """(N, 3, 3) of quaternions (N, 4) of any length but 0."""
    from viser.transforms import SO3

    return SO3(wxyz / np.linalg.norm(wxyz, axis=1, keepdims=True)).as_matrix()


def _free_port(host: str, port: int) -> int:
    """The port, once it is known that it can be had; viser would silently take another one."""
    import socket

    with socket.create_server((host, port)) as probe:
        return int(probe.getsockname()[1])
