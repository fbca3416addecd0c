"""Animated glTF 2.0 models: skins, morph targets and moving nodes, posed with numpy.

Follows the Khronos glTF 2.0 specification; what a file needs beyond it is refused by name.
"""

from __future__ import annotations

import base64
import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from assay.papers.treesplat.datasets.images import decode_image
from assay.papers.treesplat.datasets.records import malformed
from assay.papers.treesplat.scenes.mesh import Array, Material, Mesh, to_linear
from assay.toolkits.checks import number, whole
from assay.toolkits.files import parse_json

_COMPONENTS = {5120: "i1", 5121: "u1", 5122: "<i2", 5123: "<u2", 5125: "<u4", 5126: "<f4"}
_WIDTHS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT4": 16}
_WRAPS = {33071: "clamp", 33648: "mirror", 10497: "repeat"}
_TRS = {"translation": (0, 0, 0), "rotation": (0, 0, 0, 1), "scale": (1, 1, 1)}
# Both say nothing that changes a base colour or a position read as this file reads it.
_EXTENSIONS = {"KHR_materials_unlit", "KHR_mesh_quantization"}


class GltfError(ValueError):
    """A file that is no glTF, or that needs what is not read here; the message says which."""


@dataclass(frozen=True, eq=False)
class _Channel:
    """Key frames of one property of one node."""

    node: int
    path: str
    times: Array
    values: Array  # (K, W), or (K, 3, W) for cubic splines: in-tangent, value, out-tangent
    interpolation: str

    def at(self, seconds: float) -> Array:
        """The property at a time; before the first and after the last key it stands still."""
        last = len(self.times) - 1
        k = int(np.searchsorted(self.times, seconds, side="right")) - 1
        values = self.values[:, 1] if self.interpolation == "CUBICSPLINE" else self.values
        if k < 0 or k >= last:
            return values[min(max(k, 0), last)]
        step = self.times[k + 1] - self.times[k]
        u = (seconds - self.times[k]) / step
        if self.interpolation == "STEP":
            return values[k]
        if self.interpolation == "LINEAR":
            if self.path == "rotation":
                return _slerp(values[k], values[k + 1], u)
            return (1 - u) * values[k] + u * values[k + 1]
        # Specification, appendix C.5: cubic Hermite with tangents scaled by the step.
        out_tangent, in_tangent = step * self.values[k, 2], step * self.values[k + 1, 0]
        return (
            (2 * u**3 - 3 * u**2 + 1) * values[k]
            + (u**3 - 2 * u**2 + u) * out_tangent
            + (3 * u**2 - 2 * u**3) * values[k + 1]
            + (u**3 - u**2) * in_tangent
        )


@dataclass(frozen=True, eq=False)
class _Part:
    """One primitive where a node shows it."""

    node: int
    vertices: slice
    positions: Array
    morphs: Array  # (targets, V, 3) displacements
    weights: Array  # (targets,) at rest
    skin: int | None
    joints: NDArray[np.int64] | None  # (V, J)
    joint_weights: Array | None


class GltfScene:
    """A glTF model with one of its clips; made by `load_gltf`.

    Args:
        path: the .glb or .gltf file.
        clip: name or number of the animation; None takes the only one.
        still: let a file without animations pass, as a scene that stands still.

    Attributes:
        clip: the clip's name.
        clips: the names of all.
        duration: its length in seconds; 0 for one that stands still.
        mesh_names: for each vertex, the name of the mesh it belongs to, (V,).
    """

    def __init__(self, path: str | Path, clip: str | int | None = None, still: bool = False):
        self.path = Path(path)
        with malformed(self.path, GltfError):
            self._load(clip, still)

    def _load(self, clip: str | int | None, still: bool) -> None:
        path = self.path
        self._json, self._buffers = _read(path)
        needs = set(self._json.get("extensionsRequired", ())) - _EXTENSIONS
        if needs:
            raise GltfError(f"{path}: needs {', '.join(sorted(needs))}, which is not read here")
        nodes = self._json.get("nodes", [])
        animations = self._json.get("animations", [])
        self.clips = tuple(a.get("name", f"clip {i}") for i, a in enumerate(animations))
        self._order = tuple(self._walk())
        self._rest = [_trs(f"node {i}", node) for i, node in enumerate(nodes)]
        self._channels: list[_Channel] = []
        self.clip, self.duration, self._start = "", 0.0, 0.0
        if animations or not still:
            chosen = self._choose(clip)
            self.clip = self.clips[chosen]
            self._channels = list(self._read_channels(animations[chosen]))
            moving = [channel.times for channel in self._channels]
            if not moving:
                raise GltfError(f"{path}: clip {self.clip!r} moves nothing")
            self._start = min(float(times[0]) for times in moving)
            self.duration = max(float(times[-1]) for times in moving) - self._start
        self._skins = [self._read_skin(skin) for skin in self._json.get("skins", [])]
        self._parts: list[_Part] = []
        self._mesh = self._read_meshes()
        for channel in self._channels:
            count = channel.values.shape[-1]
            for part in self._parts if channel.path == "weights" else ():
                if part.node == channel.node and len(part.morphs) != count:
                    raise GltfError(
                        f"{path}: clip {self.clip!r}: {count} weights for node {part.node}, "
                        f"which has {len(part.morphs)} morph targets"
                    )
        # What else does not fit together shows here rather than in the midst of filming.
        if not np.all(np.isfinite(self.at(0.0).vertices)):
            raise GltfError(f"{path}: places vertices at infinity")

    def _item(self, kind: str, index: Any) -> Any:
        """The entry of a list of the file that another entry names by its number."""
        items = self._json.get(kind, [])
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(items):
            raise GltfError(f"{self.path}: names number {index!r} of {len(items)} {kind}")
        return items[index]

    def at(self, t: float) -> Mesh:
        """The mesh at an instant, turned so that z is up (glTF has y up).

        Args:
            t: in [0, 1] over the clip.

        Raises:
            ValueError: t is out of range or NaN.
        """
        pose = self._pose(t)
        world = self._world(pose)
        vertices = np.empty_like(self._mesh.vertices)
        for part in self._parts:
            positions = part.positions
            if len(part.morphs):
                weights = pose[part.node].get("weights", part.weights)
                positions = positions + np.tensordot(weights, part.morphs, 1)
            if part.skin is None:
                matrix = world[part.node]
                vertices[part.vertices] = positions @ matrix[:3, :3].T + matrix[:3, 3]
                continue
            # Section 3.7.3.3: the joints alone place a skinned mesh, its own node does not.
            joints, inverse_bind = self._skins[part.skin]
            matrices = np.stack([world[j] for j in joints]) @ inverse_bind
            assert part.joints is not None
            assert part.joint_weights is not None
            blend = np.einsum("vj,vjab->vab", part.joint_weights, matrices[part.joints])
            vertices[part.vertices] = (
                np.einsum("vab,vb->va", blend[:, :3, :3], positions) + blend[:, :3, 3]
            )
        return self._mesh.moved(vertices @ _Z_UP.T)

    def node_matrices(self, t: float) -> Array:
        """(nodes, 4, 4) matrices from each node to the scene, in glTF's own axes.

        Args:
            t: in [0, 1] over the clip.
        """
        return self._world(self._pose(t))

    def _pose(self, t: float) -> list[dict[str, Array]]:
        seconds = self._start + number("t", t, least=0, most=1) * self.duration
        pose = [dict(rest) for rest in self._rest]
        for channel in self._channels:
            pose[channel.node][channel.path] = channel.at(seconds)
        return pose

    def _world(self, pose: list[dict[str, Array]]) -> Array:
        world = np.tile(np.eye(4), (len(pose), 1, 1))
        for node, parent in self._order:
            local = _matrix(pose[node])
            world[node] = local if parent < 0 else world[parent] @ local
        return world

    def _choose(self, clip: str | int | None) -> int:
        names = ", ".join(map(repr, self.clips)) or "none"
        if not self.clips:
            raise GltfError(f"{self.path}: has no animation")
        if clip is None and len(self.clips) == 1:
            return 0
        if isinstance(clip, int) and 0 <= clip < len(self.clips):
            return clip
        if clip in self.clips:
            return self.clips.index(str(clip))
        raise ValueError(f"clip: got {clip!r}, {self.path.name} has {names}")

    def _walk(self) -> Iterator[tuple[int, int]]:
        """(node, parent) of the scene shown, parents first; a node with two parents is an error."""
        nodes = self._json.get("nodes", [])
        scenes = self._json.get("scenes", [])
        if scenes:
            roots = self._item("scenes", self._json.get("scene", 0)).get("nodes", [])
        else:
            children = {child for node in nodes for child in node.get("children", ())}
            roots = [i for i in range(len(nodes)) if i not in children]
        stack, seen = [(root, -1) for root in reversed(roots)], set()
        while stack:
            node, parent = stack.pop()
            shown = self._item("nodes", node)
            if node in seen:
                raise GltfError(f"{self.path}: node {node} is reached twice, nodes must be trees")
            seen.add(node)
            yield node, parent
            stack += [(child, node) for child in reversed(shown.get("children", ()))]

    def _read_channels(self, animation: dict[str, Any]) -> Iterator[_Channel]:
        for channel in animation["channels"]:
            target, chosen = channel["target"], channel["sampler"]
            if "node" not in target or target["path"] not in (*_TRS, "weights"):
                continue
            self._item("nodes", target["node"])
            if chosen < 0:
                raise GltfError(f"{self.path}: clip {self.clip!r} has no sampler {chosen}")
            sampler = animation["samplers"][chosen]
            times = self._accessor(sampler["input"])[:, 0]
            values = self._accessor(sampler["output"])
            interpolation = sampler.get("interpolation", "LINEAR")
            if interpolation not in ("STEP", "LINEAR", "CUBICSPLINE"):
                raise GltfError(f"{self.path}: interpolation {interpolation!r} is unknown")
            if not len(times) or np.any(np.diff(times) <= 0):
                raise GltfError(f"{self.path}: clip {self.clip!r}: key times must increase")
            shape = (len(times), 3, -1) if interpolation == "CUBICSPLINE" else (len(times), -1)
            values = values.reshape(shape)
            keys = values[:, 1] if interpolation == "CUBICSPLINE" else values
            if target["path"] != "weights":
                for key in keys:
                    _check_trs(f"clip {self.clip!r}: node {target['node']}", target["path"], key)
            yield _Channel(target["node"], target["path"], times, values, interpolation)

    def _read_skin(self, skin: dict[str, Any]) -> tuple[list[int], Array]:
        joints = skin["joints"]
        for joint in joints:
            self._item("nodes", joint)
        if "inverseBindMatrices" not in skin:
            return joints, np.tile(np.eye(4), (len(joints), 1, 1))
        stored = self._accessor(skin["inverseBindMatrices"], 16).reshape(-1, 4, 4)
        if len(stored) < len(joints):
            raise GltfError(
                f"{self.path}: {len(stored)} inverse bind matrices, {len(joints)} joints"
            )
        stored = stored[: len(joints)]
        return joints, stored.transpose(0, 2, 1)  # stored column by column

    def _read_meshes(self) -> Mesh:
        nodes = self._json.get("nodes", [])
        faces, material_of, colors, uvs, n = [], [], [], [], 0
        names: list[str] = []
        for node, _ in self._order:
            if "mesh" not in nodes[node]:
                continue
            mesh = self._item("meshes", nodes[node]["mesh"])
            for primitive in mesh["primitives"]:
                if primitive.get("mode", 4) < 4:
                    continue  # points and lines have no surface
                part = self._read_part(node, mesh, primitive, n)
                count = len(part.positions)
                triangles = self._triangles(primitive, count)
                attributes = primitive["attributes"]
                color = np.ones((count, 3))
                if "COLOR_0" in attributes:
                    color = self._accessor(attributes["COLOR_0"], 3, count)[:, :3]
                uv = np.zeros((count, 2))
                if (name := self._uv_name(primitive)) in attributes:
                    uv = self._accessor(attributes[name], 2, count)
                self._parts.append(part)
                faces.append(triangles + n)
                # The last material is the specification's default one.
                last = len(self._json.get("materials", ()))
                material_of.append(np.full(len(triangles), primitive.get("material", last)))
                colors.append(color)
                uvs.append(uv)
                names += [mesh.get("name", "")] * count
                n += count
        if not faces:
            raise GltfError(f"{self.path}: its scene shows no triangles")
        self.mesh_names = np.array(names)
        return Mesh(
            np.concatenate([part.positions for part in self._parts]),
            np.concatenate(faces),
            tuple(self._materials()),
            np.concatenate(material_of),
            np.concatenate(colors),
            np.concatenate(uvs),
        )

    def _read_part(
        self, node: int, mesh: dict[str, Any], primitive: dict[str, Any], start: int
    ) -> _Part:
        attributes = primitive["attributes"]
        if "POSITION" not in attributes:
            raise GltfError(f"{self.path}: mesh {mesh.get('name', '?')!r} has no POSITION")
        positions = self._accessor(attributes["POSITION"], 3)
        morphs = np.zeros((len(primitive.get("targets", ())), *positions.shape))
        for i, target in enumerate(primitive.get("targets", ())):
            if "POSITION" in target:
                morphs[i] = self._accessor(target["POSITION"], 3, len(positions))
        at_rest = self._json["nodes"][node].get("weights", mesh.get("weights"))
        weights = np.zeros(len(morphs)) if at_rest is None else np.asarray(at_rest, float)
        if weights.shape != (len(morphs),):
            raise GltfError(f"{self.path}: weights {at_rest} for {len(morphs)} morph targets")
        skin = self._json["nodes"][node].get("skin")
        joints = joint_weights = None
        if skin is not None:
            self._item("skins", skin)
            sets = sorted(name[7:] for name in attributes if name.startswith("JOINTS_"))
            if not sets:
                raise GltfError(f"{self.path}: a skinned mesh has no JOINTS_0")
            joints = np.concatenate(
                [self._accessor(attributes[f"JOINTS_{k}"], 4, len(positions)) for k in sets], 1
            ).astype(np.int64)
            joint_weights = np.concatenate(
                [self._accessor(attributes[f"WEIGHTS_{k}"], 4, len(positions)) for k in sets], 1
            )
            wrong = joints[(joints < 0) | (joints >= len(self._skins[skin][0]))]
            if len(wrong):
                raise GltfError(f"{self.path}: JOINTS_0 names joint {wrong[0]} of {skin=}")
            total = joint_weights.sum(1, keepdims=True)
            joint_weights = joint_weights / np.where(total > 0, total, 1)
        span = slice(start, start + len(positions))
        return _Part(node, span, positions, morphs, weights, skin, joints, joint_weights)

    def _triangles(self, primitive: dict[str, Any], count: int) -> NDArray[np.int64]:
        index = np.arange(count)
        if "indices" in primitive:
            index = self._accessor(primitive["indices"])[:, 0].astype(np.int64)
            wrong = index[(index < 0) | (index >= count)]
            if len(wrong):
                raise GltfError(f"{self.path}: index {wrong[0]} of {count} vertices")
        mode = primitive.get("mode", 4)
        if mode not in (4, 5, 6):
            raise GltfError(f"{self.path}: mode {mode!r} of a primitive is unknown")
        if mode == 5:  # strip: every other triangle turns the other way
            faces = np.stack([index[:-2], index[1:-1], index[2:]], 1)
            faces[1::2] = faces[1::2, [1, 0, 2]]
            return faces
        if mode == 6:  # fan
            return np.stack([np.full(len(index) - 2, index[0]), index[1:-1], index[2:]], 1)
        return index[: len(index) // 3 * 3].reshape(-1, 3)

    def _uv_name(self, primitive: dict[str, Any]) -> str:
        material = self._item("materials", primitive["material"]) if "material" in primitive else {}
        texture = material.get("pbrMetallicRoughness", {}).get("baseColorTexture", {})
        return f"TEXCOORD_{texture.get('texCoord', 0)}"

    def _materials(self) -> Iterator[Material]:
        for material in self._json.get("materials", []):
            surface = material.get("pbrMetallicRoughness", {})
            factor = surface.get("baseColorFactor", (1, 1, 1, 1))
            color = _floats("baseColorFactor", factor, 4)[:3]
            if "baseColorTexture" not in surface:
                yield Material(color)
                continue
            texture = self._item("textures", surface["baseColorTexture"]["index"])
            sampler = {}
            if "sampler" in texture:
                sampler = self._item("samplers", texture["sampler"])
            yield Material(
                color,
                self._image(texture["source"]),
                (_WRAPS[sampler.get("wrapS", 10497)], _WRAPS[sampler.get("wrapT", 10497)]),
            )
        yield Material(np.ones(3))

    def _image(self, index: int) -> NDArray[np.float32]:
        image = self._item("images", index)
        if "bufferView" in image:
            view = self._item("bufferViews", image["bufferView"])
            start = view.get("byteOffset", 0)
            self._item("buffers", view["buffer"])
            content = self._buffers[view["buffer"]][start : start + view["byteLength"]]
        else:
            content = _resource(self.path, image["uri"])
        pixels = decode_image(io.BytesIO(content), f"{self.path}: image {index}")
        return to_linear(pixels[..., :3].astype(np.float32) / 255).astype(np.float32)

    def _accessor(self, index: int, least: int = 1, rows: int | None = None) -> Array:
        """(count, width) values as float64, normalised integers already divided.

        Refused unless they are at least so wide and, where it is said, as many as the rows.
        """
        accessor = self._item("accessors", index)
        width, count = _WIDTHS[accessor["type"]], whole("count", accessor["count"], 0)
        if width < least or rows not in (None, count):
            raise GltfError(
                f"{self.path}: accessor {index} holds {count} x {width} numbers, wants "
                f"{'some' if rows is None else rows} x {least}"
            )
        kind = np.dtype(_COMPONENTS[accessor["componentType"]])
        if "bufferView" in accessor:
            offset = accessor.get("byteOffset", 0)
            values = self._view(accessor["bufferView"], offset, count, width, kind)
        else:
            values = np.zeros((count, width), kind)
        if sparse := accessor.get("sparse"):
            at, new = sparse["indices"], sparse["values"]
            index_kind = np.dtype(_COMPONENTS[at["componentType"]])
            at_rows = self._view(
                at["bufferView"], at.get("byteOffset", 0), sparse["count"], 1, index_kind
            )[:, 0]
            values = values.copy()
            values[at_rows] = self._view(
                new["bufferView"], new.get("byteOffset", 0), sparse["count"], width, kind
            )
        found = values.astype(np.float64)
        if accessor.get("normalized"):
            found = np.maximum(found / np.iinfo(kind).max, -1)
        if not np.all(np.isfinite(found)):
            raise GltfError(f"{self.path}: accessor {index} holds NaN or infinity")
        return found

    def _view(
        self, index: int, offset: int, count: int, width: int, kind: np.dtype[Any]
    ) -> NDArray[Any]:
        view = self._item("bufferViews", index)
        self._item("buffers", view["buffer"])
        row = kind.itemsize * width
        stride = view.get("byteStride", row)
        start = view.get("byteOffset", 0) + offset
        buffer = self._buffers[view["buffer"]]
        if count and start + stride * (count - 1) + row > len(buffer):
            raise GltfError(f"{self.path}: buffer view {index} ends after its buffer")
        return np.ndarray((count, width), kind, buffer, start, (stride, kind.itemsize))


def load_gltf(path: str | Path, clip: str | int | None = None, still: bool = False) -> GltfScene:
    """An animated glTF 2.0 model, as .glb or .gltf (with its .bin or data URIs).

    Skins, morph targets and moving nodes; STEP, LINEAR and CUBICSPLINE keys. Its colour is the
    base colour (factor, texture, vertex colours), without light, and opaque.

    Args:
        path: the file.
        clip: name or number of the animation; None takes the only one.
        still: let a file without animations pass, as a scene that stands still.

    Returns:
        The scene; `.at(t)` poses it.

    Raises:
        GltfError: it is broken, or needs an extension that is not read; a ValueError.
        ValueError: there is no such clip; the message lists those there are.
        OSError: it cannot be read.
    """
    return GltfScene(path, clip, still)


# glTF: y up, towards the viewer +z. Here, as in Blender and D-NeRF: z up.
_Z_UP = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])


def _read(path: Path) -> tuple[dict[str, Any], list[bytes]]:
    content = path.read_bytes()
    binary: bytes | None = None
    if content[:4] == b"glTF":
        if len(content) < 20:
            raise GltfError(f"{path}: ends within its header")
        _, version, length = struct.unpack("<III", content[:12])
        if version != 2:
            raise GltfError(f"{path}: glTF version {version}, only 2 is read")
        if length > len(content):
            raise GltfError(f"{path}: {len(content)} of {length} bytes, it was cut off")
        chunks: dict[int, bytes] = {}
        at = 12
        while at + 8 <= length:
            size, kind = struct.unpack("<II", content[at : at + 8])
            chunks.setdefault(kind, content[at + 8 : at + 8 + size])
            at += 8 + size
        text, binary = chunks.get(0x4E4F534A, b""), chunks.get(0x004E4942)
    else:
        text = content
    try:
        tree = parse_json(text.decode())
    except ValueError as error:
        raise GltfError(f"{path}: no glTF: {error}") from None
    if not isinstance(tree, dict) or not str(tree.get("asset", {}).get("version", "")).startswith(
        "2"
    ):
        raise GltfError(f"{path}: no glTF 2 asset")
    buffers = []
    for buffer in tree.get("buffers", []):
        data = binary if "uri" not in buffer else _resource(path, buffer["uri"])
        if data is None or len(data) < buffer["byteLength"]:
            raise GltfError(f"{path}: a buffer is shorter than it says")
        buffers.append(data)
    return tree, buffers


def _resource(path: Path, uri: str) -> bytes:
    if uri.startswith("data:"):
        return base64.b64decode(uri.partition(",")[2])
    target = (path.parent / unquote(uri)).resolve()
    if not target.is_relative_to(path.parent.resolve()):
        raise GltfError(f"{path}: refers to {uri!r}, which lies outside its folder")
    return target.read_bytes()


def _trs(where: str, node: dict[str, Any]) -> dict[str, Array]:
    if "matrix" in node:
        return {"matrix": _floats(f"{where}: matrix", node["matrix"], 16).reshape(4, 4).T}
    return {name: _check_trs(where, name, node.get(name, value)) for name, value in _TRS.items()}


def _check_trs(where: str, name: str, value: Any) -> Array:
    found = _floats(f"{where}: {name}", value, len(_TRS[name]))
    if name == "rotation" and not found.any():
        raise GltfError(
            f"{where}: rotation: got {found.tolist()}, wants a quaternion that is not 0"
        )
    return found


def _floats(where: str, value: Any, count: int) -> Array:
    found = np.asarray(value, float)
    if found.shape != (count,) or not np.all(np.isfinite(found)):
        raise GltfError(f"{where}: got {value}, wants {count} finite numbers")
    return found


def _matrix(pose: dict[str, Array]) -> Array:
    if "matrix" in pose:
        return pose["matrix"]
    matrix = np.eye(4)
    matrix[:3, :3] = _rotation(pose["rotation"]) * pose["scale"]
    matrix[:3, 3] = pose["translation"]
    return matrix


def _rotation(quaternion: Array) -> Array:
    """(3, 3) from x, y, z, w; glTF's order is not gsplat's."""
    x, y, z, w = quaternion / np.linalg.norm(quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def _slerp(a: Array, b: Array, u: float) -> Array:
    """Specification, appendix C.4: along the shorter arc; near-equal ones linearly."""
    cosine = float(a @ b)
    if cosine < 0:
        b, cosine = -b, -cosine
    if cosine > 1 - 1e-9:
        return (1 - u) * a + u * b
    angle = np.arccos(cosine)
    return (np.sin((1 - u) * angle) * a + np.sin(u * angle) * b) / np.sin(angle)
