"""Animated scenes and pictures of them that no splatting code has made."""

from assay.papers.treesplat.scenes.articulated import Articulated
from assay.papers.treesplat.scenes.capsules import Capsule, CapsuleBody
from assay.papers.treesplat.scenes.engine import BoxerEngine
from assay.papers.treesplat.scenes.gltf import GltfError, GltfScene, load_gltf
from assay.papers.treesplat.scenes.mesh import AnimatedMesh, Material, Mesh
from assay.papers.treesplat.scenes.pendulum import Pendulum
from assay.papers.treesplat.scenes.raycast import View, cast, look_at, render_capture

__all__ = [
    "AnimatedMesh",
    "Articulated",
    "BoxerEngine",
    "Capsule",
    "CapsuleBody",
    "GltfError",
    "GltfScene",
    "Material",
    "Mesh",
    "Pendulum",
    "View",
    "cast",
    "load_gltf",
    "look_at",
    "render_capture",
]
