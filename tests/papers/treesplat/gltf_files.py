"""Small glTF files, written by the tests that read them."""

import base64
import json
import struct

import numpy as np

WIDTHS = {1: "SCALAR", 2: "VEC2", 3: "VEC3", 4: "VEC4", 16: "MAT4"}
KINDS = {"float32": 5126, "uint32": 5125, "uint16": 5123, "uint8": 5121, "int16": 5122}


class Builder:
    """Collects arrays into one buffer and writes a .glb, or a .gltf with data URIs."""

    def __init__(self):
        self.tree = {"asset": {"version": "2.0"}, "accessors": [], "bufferViews": []}
        self.buffer = b""

    def view(self, array):
        self.buffer += b"\0" * (-len(self.buffer) % 4)
        content = np.ascontiguousarray(array).tobytes()
        self.tree["bufferViews"].append(
            {"buffer": 0, "byteOffset": len(self.buffer), "byteLength": len(content)}
        )
        self.buffer += content
        return len(self.tree["bufferViews"]) - 1

    def accessor(self, array, **more):
        array = np.asarray(array)
        array = array.reshape(len(array), -1)
        self.tree["accessors"].append(
            {
                "bufferView": self.view(array),
                "componentType": KINDS[str(array.dtype)],
                "count": len(array),
                "type": WIDTHS[array.shape[1]],
                **more,
            }
        )
        return len(self.tree["accessors"]) - 1

    def floats(self, array):
        return self.accessor(np.asarray(array, np.float32))

    def animate(self, node, path, times, values, interpolation="LINEAR", name="move"):
        sampler = {
            "input": self.floats(times),
            "output": self.floats(values),
            "interpolation": interpolation,
        }
        for animation in self.tree.setdefault("animations", []):
            if animation["name"] == name:
                break
        else:
            animation = {"name": name, "channels": [], "samplers": []}
            self.tree["animations"].append(animation)
        animation["channels"].append(
            {"sampler": len(animation["samplers"]), "target": {"node": node, "path": path}}
        )
        animation["samplers"].append(sampler)

    def write(self, path):
        if path.suffix == ".gltf":
            uri = "data:application/octet-stream;base64," + base64.b64encode(self.buffer).decode()
            self.tree["buffers"] = [{"byteLength": len(self.buffer), "uri": uri}]
            path.write_text(json.dumps(self.tree))
            return path
        self.tree["buffers"] = [{"byteLength": len(self.buffer)}]
        text = json.dumps(self.tree).encode()
        text += b" " * (-len(text) % 4)
        binary = self.buffer + b"\0" * (-len(self.buffer) % 4)
        chunks = struct.pack("<II", len(text), 0x4E4F534A) + text
        chunks += struct.pack("<II", len(binary), 0x004E4942) + binary
        path.write_bytes(struct.pack("<4sIII", b"glTF", 2, 12 + len(chunks), 0)[:12] + chunks)
        return path


TRIANGLE = [[0, 0, 0], [1, 0, 0], [0, 1, 0]]


def triangle(**node):
    """One triangle shown by node 0, which is given `node`'s properties."""
    file = Builder()
    position = file.floats(TRIANGLE)
    file.tree["meshes"] = [{"primitives": [{"attributes": {"POSITION": position}}]}]
    file.tree["nodes"] = [{"mesh": 0, **node}]
    file.tree["scenes"] = [{"nodes": [0]}]
    return file


def arm():
    """Two bones along x, each of length 1; the second turns about z at its joint, by t * 90 deg.

    Vertices: (0, 0, 0) on bone 0; (1, 0, 0) on both by half; (2, 0, 0) and (2, 0.5, 0) on bone 1.
    """
    file = Builder()
    attributes = {
        "POSITION": file.floats([[0, 0, 0], [1, 0, 0], [2, 0, 0], [2, 0.5, 0]]),
        "JOINTS_0": file.accessor(
            np.array([[0, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]], np.uint8)
        ),
        "WEIGHTS_0": file.floats([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]),
    }
    indices = file.accessor(np.array([[0], [1], [3], [1], [2], [3]], np.uint16))
    file.tree["meshes"] = [{"primitives": [{"attributes": attributes, "indices": indices}]}]
    inverse_bind = np.tile(np.eye(4), (2, 1, 1))
    inverse_bind[1, 0, 3] = -1
    file.tree["skins"] = [
        {
            "joints": [1, 2],
            "inverseBindMatrices": file.floats(inverse_bind.transpose(0, 2, 1).reshape(2, 16)),
        }
    ]
    # The skinned node's own translation must not matter.
    file.tree["nodes"] = [
        {"mesh": 0, "skin": 0, "translation": [50, 50, 50]},
        {"children": [2]},
        {"translation": [1, 0, 0]},
    ]
    file.tree["scenes"] = [{"nodes": [0, 1]}]
    half = np.sqrt(0.5)
    file.animate(2, "rotation", [0, 2], [[0, 0, 0, 1], [0, 0, half, half]])
    return file
