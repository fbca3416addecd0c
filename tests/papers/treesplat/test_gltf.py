import json
import re

import numpy as np
import pytest
from PIL import Image
from scipy.spatial.transform import Rotation
from tests.papers.treesplat.gltf_files import TRIANGLE, Builder, arm, triangle

from assay.papers.treesplat.scenes import GltfError, load_gltf


def z_up(points):
    points = np.asarray(points, float)
    return np.stack([points[:, 0], -points[:, 2], points[:, 1]], 1)


@pytest.mark.parametrize("suffix", [".glb", ".gltf"])
@pytest.mark.parametrize("t", [0.0, 0.3, 1.0])
def test_two_bones_bend_as_on_paper(tmp_path, suffix, t):
    scene = load_gltf(arm().write(tmp_path / f"arm{suffix}"))
    angle = t * np.pi / 2
    c, s = np.cos(angle), np.sin(angle)
    # The middle vertex sits on the joint, which turning leaves where it is.
    wanted = [[0, 0, 0], [1, 0, 0], [1 + c, s, 0], [1 + c - 0.5 * s, s + 0.5 * c, 0]]
    np.testing.assert_allclose(scene.at(t).vertices, z_up(wanted), atol=1e-6)
    assert scene.duration == 2
    assert scene.clip == "move"


def test_skin_against_scipy_on_a_random_chain(tmp_path):
    rng = np.random.default_rng(0)
    n = 5
    positions, weights = rng.normal(size=(40, 3)), rng.uniform(0.1, 1, (40, 4))
    joints = rng.integers(0, n, (40, 4))
    weights /= weights.sum(1, keepdims=True)
    offsets, turns = rng.normal(size=(n, 3)), Rotation.random(n, random_state=0)
    scales = rng.uniform(0.5, 1.5, (n, 3))
    bind = np.tile(np.eye(4), (n, 1, 1))
    bind[:, :3] = rng.normal(size=(n, 3, 4))
    file = Builder()
    attributes = {
        "POSITION": file.floats(positions),
        "JOINTS_0": file.accessor(joints.astype(np.uint16)),
        "WEIGHTS_0": file.floats(weights),
    }
    file.tree["meshes"] = [{"primitives": [{"attributes": attributes}]}]
    stored = file.floats(bind.transpose(0, 2, 1).reshape(n, 16))
    file.tree["skins"] = [{"joints": list(range(1, n + 1)), "inverseBindMatrices": stored}]
    file.tree["nodes"] = [{"mesh": 0, "skin": 0}]
    for k in range(n):
        file.tree["nodes"].append({"translation": offsets[k].tolist(), "scale": scales[k].tolist()})
        if k + 1 < n:
            file.tree["nodes"][-1]["children"] = [k + 2]
        still = turns[k].as_quat()
        file.animate(k + 1, "rotation", [0, 1], [still, still])
    found = load_gltf(file.write(tmp_path / "chain.glb")).at(0.5).vertices

    # Point by point and joint by joint, through scipy and plain loops.
    def from_joint(k, point):
        for i in range(k, -1, -1):
            point = turns[i].apply(scales[i] * point) + offsets[i]
        return point

    for vertex in range(0, 40, 7):
        wanted = sum(
            weights[vertex, j]
            * from_joint(
                joints[vertex, j],
                (bind[joints[vertex, j]] @ np.append(positions[vertex], 1))[:3],
            )
            for j in range(4)
        )
        np.testing.assert_allclose(found[vertex], z_up([wanted])[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("interpolation", "values", "at_a_quarter"),
    [
        ("STEP", [[0, 0, 0], [4, 0, 0]], 0.0),
        ("LINEAR", [[0, 0, 0], [4, 0, 0]], 1.0),
        # Tangents of zero: 3 u^2 - 2 u^3 = 0.15625 of the way.
        ("CUBICSPLINE", [[0] * 3, [0] * 3, [0] * 3, [0] * 3, [4, 0, 0], [0] * 3], 0.625),
        # Tangents that equal the slope give back the line; the step is 2 seconds.
        ("CUBICSPLINE", [[0] * 3, [0] * 3, [2, 0, 0], [2, 0, 0], [4, 0, 0], [0] * 3], 1.0),
    ],
)
def test_interpolation(tmp_path, interpolation, values, at_a_quarter):
    file = triangle()
    file.animate(0, "translation", [1, 3], values, interpolation)
    scene = load_gltf(file.write(tmp_path / "a.glb"))
    assert scene.at(0.25).vertices[0, 0] == pytest.approx(at_a_quarter)
    assert scene.at(1).vertices[0, 0] == pytest.approx(4)


def test_rotations_take_the_shorter_arc_at_constant_speed(tmp_path):
    file = triangle()
    angle = np.radians(120) / 2
    # The same turn with its sign flipped, which a careless mean would send the long way round.
    file.animate(0, "rotation", [0, 1], [[0, 0, 0, 1], [0, 0, -np.sin(angle), -np.cos(angle)]])
    corner = load_gltf(file.write(tmp_path / "a.glb")).at(0.25).vertices[1]
    np.testing.assert_allclose(corner, [np.cos(np.pi / 6), 0, np.sin(np.pi / 6)], atol=1e-6)


def test_nodes_carry_their_children(tmp_path):
    file = triangle()
    half = np.sqrt(0.5)
    file.tree["nodes"] = [
        {"mesh": 0, "translation": [2, 0, 0]},
        {"children": [0], "matrix": [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 5, 0, 1]},
        {"children": [1], "scale": [2, 2, 2]},
    ]
    file.tree["scenes"] = [{"nodes": [2]}]
    file.animate(2, "rotation", [0, 1], [[0, 0, 0, 1], [0, 0, half, half]])
    scene = load_gltf(file.write(tmp_path / "a.glb"))
    np.testing.assert_allclose(scene.at(0).vertices[0], [4, 0, 10], atol=1e-6)
    np.testing.assert_allclose(scene.at(1).vertices[0], [-10, 0, 4], atol=1e-5)
    np.testing.assert_allclose(scene.node_matrices(1)[0] @ [0, 0, 0, 1], [-10, 4, 0, 1], atol=1e-5)


def test_rest_pose_agrees_with_trimesh(tmp_path):
    trimesh = pytest.importorskip("trimesh")
    rng = np.random.default_rng(4)
    file = triangle()
    file.tree["nodes"] = []
    for k in range(4):
        file.tree["nodes"].append(
            {
                "mesh": 0,
                "translation": rng.normal(size=3).tolist(),
                "rotation": Rotation.random(random_state=k).as_quat().tolist(),
                "scale": rng.uniform(0.5, 2, 3).tolist(),
                "children": [k + 1] if k < 3 else [],
            }
        )
    path = file.write(tmp_path / "chain.glb")
    wanted = trimesh.load(path, force="scene").to_geometry().vertices
    found = load_gltf(path, still=True).at(0).vertices
    order = [np.lexsort(np.round(v, 5).T) for v in (z_up(wanted), found)]
    np.testing.assert_allclose(found[order[1]], z_up(wanted)[order[0]], atol=1e-6)


def test_morph_targets_with_animated_weights(tmp_path):
    file = triangle()
    primitive = file.tree["meshes"][0]["primitives"][0]
    primitive["targets"] = [
        {"POSITION": file.floats([[0, 0, 0], [1, 0, 0], [0, 0, 0]])},
        {"POSITION": file.floats([[0, 0, 0], [0, 0, 0], [0, 3, 0]])},
    ]
    file.tree["meshes"][0]["weights"] = [0.0, 0.0]
    file.animate(0, "weights", [0, 1], [[1], [0], [0], [1]])  # two weights a key
    scene = load_gltf(file.write(tmp_path / "a.glb"))
    np.testing.assert_allclose(scene.at(0).vertices, z_up([[0, 0, 0], [2, 0, 0], [0, 1, 0]]))
    np.testing.assert_allclose(scene.at(0.5).vertices, z_up([[0, 0, 0], [1.5, 0, 0], [0, 2.5, 0]]))


def test_sparse_and_normalised_accessors_strips_and_strides(tmp_path):
    file = Builder()
    # Positions interleaved with something else, and one of them replaced.
    packed = np.zeros((4, 5), np.float32)
    packed[:, :3] = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [9, 9, 9]]
    position = file.accessor(packed[:, :3])
    file.tree["bufferViews"].append(dict(file.tree["bufferViews"][file.view(packed)]))
    file.tree["bufferViews"][-1]["byteStride"] = 20
    file.tree["accessors"][position]["bufferView"] = len(file.tree["bufferViews"]) - 1
    file.tree["accessors"][position]["sparse"] = {
        "count": 1,
        "indices": {"bufferView": file.view(np.array([3], np.uint8)), "componentType": 5121},
        "values": {"bufferView": file.view(np.array([[1, 1, 0]], np.float32))},
    }
    color = file.accessor(np.array([[0, 255, 51, 255]] * 4, np.uint8), normalized=True)
    primitive = {"attributes": {"POSITION": position, "COLOR_0": color}, "mode": 5}
    file.tree["meshes"] = [{"primitives": [primitive]}]
    file.tree["nodes"] = [{"mesh": 0}]
    file.animate(0, "scale", [0, 1], [[1, 1, 1], [1, 1, 1]])
    mesh = load_gltf(file.write(tmp_path / "a.glb")).at(0)
    np.testing.assert_allclose(mesh.vertices[3], [1, 0, 1])
    # Both triangles of the strip face the same way.
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    np.testing.assert_allclose(normals[0], normals[1])
    found = mesh.base_color(np.array([1]), np.array([[0.2, 0.3, 0.5]]))
    np.testing.assert_allclose(found, [[0, 1, 0.2]], atol=1e-6)


def test_texture_factor_and_external_files(tmp_path):
    Image.fromarray(np.array([[[255, 0, 0], [0, 0, 255]]], np.uint8)).save(tmp_path / "a b.png")
    file = triangle()
    primitive = file.tree["meshes"][0]["primitives"][0]
    primitive["attributes"]["TEXCOORD_0"] = file.floats([[0.25, 0.5], [0.75, 0.5], [1.25, 0.5]])
    primitive["material"] = 0
    file.tree["materials"] = [
        {
            "pbrMetallicRoughness": {
                "baseColorTexture": {"index": 0},
                "baseColorFactor": [0.5, 1, 1, 1],
            }
        }
    ]
    file.tree["textures"], file.tree["images"] = [{"source": 0}], [{"uri": "a%20b.png"}]
    file.animate(0, "scale", [0, 1], [[1, 1, 1], [1, 1, 1]])
    path = file.write(tmp_path / "a.gltf")
    (tmp_path / "a.bin").write_bytes(file.buffer)
    tree = json.loads(path.read_text())
    tree["buffers"][0]["uri"] = "a.bin"
    path.write_text(json.dumps(tree))
    mesh = load_gltf(path).at(0)
    # At texel centres; a coordinate beyond 1 repeats.
    np.testing.assert_allclose(
        mesh.base_color(np.zeros(3, int), np.eye(3)), [[0.5, 0, 0], [0, 0, 1], [0.5, 0, 0]]
    )


def refused(file, path, pattern, error=GltfError):
    with pytest.raises(error, match=pattern):
        load_gltf(file.write(path))


def test_what_it_does_not_read_is_named(tmp_path):
    path = tmp_path / "a.glb"
    refused(triangle(), path, "has no animation")
    two = triangle()
    for name in ("walk", "run"):
        two.animate(0, "scale", [0, 1], [[1, 1, 1], [2, 2, 2]], name=name)
    refused(two, path, "clip: got None, a.glb has 'walk', 'run'", ValueError)
    with pytest.raises(ValueError, match=re.escape("clip: got 'fly', a.glb has 'walk', 'run'")):
        load_gltf(path, "fly")
    assert load_gltf(path, "run").clip == load_gltf(path, 1).clip == "run"
    two.tree["extensionsRequired"] = ["KHR_draco_mesh_compression"]
    refused(two, path, "needs KHR_draco_mesh_compression")


@pytest.mark.parametrize(
    ("spoil", "pattern"),
    [
        (lambda tree: tree["nodes"][0].update(children=[0]), "reached twice"),
        (lambda tree: tree["meshes"].clear(), "names number 0 of 0 meshes"),
        (lambda tree: tree["accessors"][0].update(count=900), "ends after its buffer"),
        (lambda tree: tree["accessors"][0].update(componentType=7), "missing or malformed"),
        (lambda tree: tree["meshes"][0]["primitives"][0].update(mode=1), "no triangles"),
        (lambda tree: tree["asset"].update(version="1.0"), "no glTF 2"),
        (
            lambda tree: tree["animations"][0]["samplers"][0].update(interpolation="WAVY"),
            "'WAVY' is unknown",
        ),
        (lambda tree: tree["animations"][0]["channels"][0]["target"].update(node=99), "99 of 1 n"),
        (lambda tree: tree["animations"][0]["channels"][0].update(sampler=9), "malformed"),
        (lambda tree: tree["animations"][0]["channels"][0].update(sampler=-1), "no sampler -1"),
        (
            lambda tree: tree["animations"][0]["samplers"][0].update(output=0),
            "node 0: scale: got|reshape",
        ),
        (lambda tree: tree["nodes"][0].update(rotation=[0, 0, 0, 0]), "node 0: rotation: got"),
        (lambda tree: tree["nodes"][0].update(scale=[1, 1, float("nan")]), "node 0: scale: got"),
        (lambda tree: tree["nodes"][0].update(scale=[1, 1]), "node 0: scale: got .* wants 3 fin"),
        (lambda tree: tree["accessors"][0].update(count=-1), "count: got -1"),
        (lambda tree: tree["accessors"][0].update(type="VEC2"), "holds 3 x 2 .* wants some x 3"),
        (lambda tree: tree["meshes"][0]["primitives"][0].update(mode=9), "mode 9"),
        (lambda tree: tree.update(scene=-1), "number -1 of 1 scenes"),
        (lambda tree: tree["meshes"][0].update(weights=[1]), r"weights \[1\] for 0 morph"),
    ],
)
def test_broken_files(tmp_path, spoil, pattern):
    file = triangle()
    file.animate(0, "scale", [0, 1], [[1, 1, 1], [2, 2, 2]])
    spoil(file.tree)
    refused(file, tmp_path / "a.glb", rf"a\.glb: .*{pattern}")


@pytest.mark.parametrize(
    ("spoil", "pattern"),
    [
        (lambda tree: tree["skins"][0].update(joints=[1, 999]), "number 999 of 3 nodes"),
        (lambda tree: tree["skins"][0].update(joints=[-1, 2]), "number -1 of 3 nodes"),
        (lambda tree: tree["skins"][0].update(joints=[1]), "JOINTS_0 names joint 1"),
        (
            lambda tree: tree["skins"][0].update(joints=[1, 2, 2]),
            "2 inverse bind matrices, 3 joints",
        ),
        (lambda tree: tree["nodes"][0].update(skin=-1), "number -1 of 1 skins"),
    ],
)
def test_broken_skins_are_found_on_loading(tmp_path, spoil, pattern):
    file = arm()
    spoil(file.tree)
    refused(file, tmp_path / "a.glb", rf"a\.glb: .*{pattern}")


def test_cut_off_files_and_files_outside_the_folder(tmp_path):
    file = triangle()
    file.animate(0, "scale", [0, 1], [[1, 1, 1], [2, 2, 2]])
    path = file.write(tmp_path / "a.glb")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(GltfError, match="cut off"):
        load_gltf(path)
    path.write_bytes(b"solid mesh")
    with pytest.raises(GltfError, match="no glTF"):
        load_gltf(path)
    gltf = file.write(tmp_path / "a.gltf")
    tree = json.loads(gltf.read_text())
    tree["buffers"][0]["uri"] = "../secret.bin"
    gltf.write_text(json.dumps(tree))
    with pytest.raises(GltfError, match="outside its folder"):
        load_gltf(gltf)


def test_non_finite_positions_and_times(tmp_path):
    file = Builder()
    bad = np.array(TRIANGLE, np.float32)
    bad[1, 1] = np.nan
    file.tree["meshes"] = [{"primitives": [{"attributes": {"POSITION": file.accessor(bad)}}]}]
    file.tree["nodes"] = [{"mesh": 0}]
    file.animate(0, "scale", [0, 1], [[1, 1, 1], [2, 2, 2]])
    refused(file, tmp_path / "a.glb", "NaN or infinity")
    fine = triangle()
    fine.animate(0, "scale", [0, 1], [[1, 1, 1], [2, 2, 2]])
    scene = load_gltf(fine.write(tmp_path / "b.glb"))
    for t in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="t: got"):
            scene.at(t)
    fine.animate(0, "translation", [1, 0], [[1, 1, 1], [2, 2, 2]])
    refused(fine, tmp_path / "c.glb", "key times must increase")
