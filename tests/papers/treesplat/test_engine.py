import numpy as np
import pytest
from tests.papers.treesplat.gltf_files import triangle

from assay.papers.treesplat.scenes import BoxerEngine, GltfError, catalogue
from assay.papers.treesplat.scenes.engine import _AT_REST, _pose, _slider_crank
from assay.toolkits.data import MissingData

CRANK, CAMSHAFT, RIGHT_ROD, LEFT_ROD, RIGHT_PISTON, LEFT_PISTON = range(6)


@pytest.mark.parametrize("t", [0.0, 0.13, 0.4, 0.77])
def test_joints_hold_together(t):
    pin, wrist_x, _ = _slider_crank(_AT_REST)
    pin, wrist = np.array([pin[0], 0, pin[1], 1]), np.array([wrist_x, 0, 0, 1])
    moved = _pose(t)
    for side, rod, piston in ((1, RIGHT_ROD, RIGHT_PISTON), (-1, LEFT_ROD, LEFT_PISTON)):
        at = np.array([side, 1, side, 1])
        np.testing.assert_allclose(moved[rod] @ (at * pin), moved[CRANK] @ (at * pin), atol=1e-9)
        np.testing.assert_allclose(
            moved[rod] @ (at * wrist), moved[piston] @ (at * wrist), atol=1e-9
        )
        np.testing.assert_array_equal(moved[piston][:3, :3], np.eye(3))  # it slides, no more
    np.testing.assert_allclose(np.linalg.det(moved), 1)


def test_camshaft_turns_once_the_other_way_while_the_crank_turns_twice():
    def angle(matrix):
        return np.arctan2(matrix[2, 0], matrix[0, 0])

    moved = _pose(0.05)
    assert angle(moved[CRANK]) == pytest.approx(0.2 * np.pi)
    assert angle(moved[CAMSHAFT]) == pytest.approx(-0.1 * np.pi)
    np.testing.assert_allclose(moved[CAMSHAFT] @ [0, 7, -100, 1], [0, 7, -100, 1])
    np.testing.assert_allclose(_pose(1.0), _pose(0.0), atol=1e-9)


def test_model_is_the_one_that_was_measured():
    try:
        engine = catalogue.load("engine")
    except MissingData as error:
        pytest.skip(str(error))
    assert set(engine.bone_of) == set(range(6))
    assert engine.parents == (-1, -1, 0, 0, 2, 3)
    # Piston pins (the cylinders within the pistons) lie where the linkage has the wrists.
    mesh = engine.at(0.0)
    piston = mesh.vertices[mesh.faces[engine.bone_of == RIGHT_PISTON]].reshape(-1, 3)
    wrist = _slider_crank(_AT_REST)[1]
    pin = piston[np.hypot(piston[:, 0] - wrist, piston[:, 2]) < 11.5]
    np.testing.assert_allclose((pin.min(0) + pin.max(0))[[0, 2]] / 2, [wrist, 0], atol=0.2)
    # Pistons stay clear of the crank's axis, and opposite to each other.
    for t in np.linspace(0, 1, 9):
        vertices = engine.at(t).vertices[mesh.faces]
        right = vertices[engine.bone_of == RIGHT_PISTON][..., 0]
        left = vertices[engine.bone_of == LEFT_PISTON][..., 0]
        assert right.min() > 40
        assert right.max() == pytest.approx(-left.min(), abs=0.1)


def test_other_models_are_refused(tmp_path):
    with pytest.raises(GltfError, match="has no part 'body_22'"):
        BoxerEngine(triangle().write(tmp_path / "a.glb"))
