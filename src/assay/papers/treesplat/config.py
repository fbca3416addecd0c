"""What a training is told: every number of the schedule, with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from assay.toolkits.checks import flag, number, one_of, whole

MOTIONS = ("none", "flat", "tree", "mlp", "polynomial")
BACKENDS = ("auto", "gsplat", "cpu", "reference")


@dataclass(frozen=True)
class TrainConfig:
    """How a `TreeSplat` is trained.

    The defaults are the full schedule of dynamic peers on a GPU; `TrainConfig.short` scales it to
    a few thousand steps. "3DGS" names a rate of 3D Gaussian splatting and of gsplat's trainer;
    "own" a choice of ours, where the paper's summary gives none.

    Args:
        motion: "tree" (the paper's), "flat" (the same basis, a coefficient row for each
            Gaussian), "mlp" (Deformable-3DGS), "polynomial" (a cubic for each Gaussian) or
            "none".
        steps: Optimisation steps; each renders one training frame.
        static_steps: First steps, in which time is off and the Gaussians stand (Section 3.5).
        seed: Of the initial points, the order of frames, splits and random backgrounds.
        backend: Of `rasterize`: "auto", "gsplat", "cpu" or "reference". Training runs on the GPU
            where gsplat does, else on the CPU.
        n_points: Most Gaussians at the start, `cap_max` at most: a capture's own points, some drawn
            at random where it has more; where it has none, so many random points within its bounds
            (D-NeRF in peers: 100,000).
        sh_degree: Of the colours, 0 to 3.
        sh_every: Steps after which one more degree is used (3DGS: 1,000).
        motion_options: Options of the motion, as `TreeSplat.from_points` takes them: ``n_basis``,
            ``max_depth``, ``init``, ``decay``, ...
        l2_weight: Of the mean squared error (own: 0.8).
        l1_weight: Of the mean absolute error (own: 0; 3DGS has 0.8 here and no L2).
        ssim_weight: Of 1 - SSIM (3DGS: 0.2).
        random_background: Composite each target and rendering on a random colour, which keeps
            Gaussians from posing as background; needs frames with alpha.
        means_lr: Adam's rate of the centres, times the extent of the scene (3DGS: 1.6e-4) ...
        means_lr_final: ... and what it falls to exponentially over all steps (3DGS: 1.6e-6).
        quats_lr: Rate of the quaternions (3DGS: 1e-3).
        scales_lr: Rate of the log-scales (3DGS: 5e-3).
        opacities_lr: Rate of the logit opacities (3DGS: 5e-2).
        sh0_lr: Rate of the base colours (3DGS: 2.5e-3).
        sh_rest_lr: Rate of the other harmonics (3DGS: a twentieth of it).
        field_lr: Rate of the motion coefficients of means, times the extent (own: 1e-3).
        field_quat_lr: Rate of those of quaternions (own: 2e-3).
        scale_field_rate: Divide both by the mean over Gaussians of sum_k beta^k, the weight of a
            path: Adam takes full steps whatever the size of a gradient, so a Gaussian at depth l
            would otherwise move that many times as fast as one of a flat model (own: on).
        basis_lr: Rate of the basis network, or of the deformation network (Deformable-3DGS: 8e-4)
            ...
        basis_lr_final: ... and what it falls to exponentially over all steps.
        beta_lr: Rate of the decays' logits (own: 1e-2).
        grow_from: Step after which growth begins, with the next of its rounds (3DGS: 500).
        grow_until: Step from which there is none (3DGS: 15,000).
        grow_every: Steps between growths (3DGS: 100).
        promote_every: Every so many growths is a promotion, which deepens the tree (the paper's
            example: each 500 steps, so 5); 0 for never.
        grow_grad2d: Mean screen gradient above which a Gaussian is cloned or split, in half image
            widths (3DGS: 2e-4).
        grow_scale3d: Largest scale that is cloned rather than split, over the extent
            (3DGS: 0.01).
        prune_opacity: Opacity below which Gaussians go (3DGS: 0.005).
        prune_scale3d: Scale above which they go, over the extent (3DGS: 0.1); as there, not
            before the first reset of opacities.
        reset_every: Steps between resets of opacities (3DGS: 3,000); 0 for never.
        cap_max: Most Gaussians, at the start too.
        eval_every: Steps between evaluations on the validation split, or the test split where
            there is none; 0 for none.

    Raises:
        TypeError, ValueError: Naming the field, what it got and what it wants.
    """

    motion: str = "tree"
    steps: int = 30_000
    static_steps: int = 3_000
    seed: int = 0
    backend: str = "auto"
    n_points: int = 100_000
    sh_degree: int = 3
    sh_every: int = 1_000
    motion_options: dict[str, Any] = field(default_factory=dict)
    l2_weight: float = 0.8
    l1_weight: float = 0.0
    ssim_weight: float = 0.2
    random_background: bool = False
    means_lr: float = 1.6e-4
    means_lr_final: float = 1.6e-6
    quats_lr: float = 1e-3
    scales_lr: float = 5e-3
    opacities_lr: float = 5e-2
    sh0_lr: float = 2.5e-3
    sh_rest_lr: float = 2.5e-3 / 20
    field_lr: float = 1e-3
    field_quat_lr: float = 2e-3
    scale_field_rate: bool = True
    basis_lr: float = 8e-4
    basis_lr_final: float = 8e-6
    beta_lr: float = 1e-2
    grow_from: int = 500
    grow_until: int = 15_000
    grow_every: int = 100
    promote_every: int = 5
    grow_grad2d: float = 2e-4
    grow_scale3d: float = 0.01
    prune_opacity: float = 0.005
    prune_scale3d: float = 0.1
    reset_every: int = 3_000
    cap_max: int = 300_000
    eval_every: int = 0

    def __post_init__(self) -> None:
        one_of("motion", self.motion, MOTIONS)
        one_of("backend", self.backend, BACKENDS)
        for name in ("steps", "n_points", "sh_every", "grow_every", "cap_max"):
            whole(name, getattr(self, name))
        for name in ("static_steps", "seed", "sh_degree", "grow_from", "grow_until"):
            whole(name, getattr(self, name), 0)
        if self.seed >= 2**63:
            raise ValueError(f"seed: got {self.seed}, wants one below 2**63")
        for name in ("promote_every", "reset_every", "eval_every"):
            whole(name, getattr(self, name), 0)
        for one in fields(self):
            if one.type == "float":
                number(one.name, getattr(self, one.name), least=0.0)
        flag("random_background", self.random_background)
        flag("scale_field_rate", self.scale_field_rate)
        if not isinstance(self.motion_options, dict):
            raise TypeError(f"motion_options: got {self.motion_options!r}, wants a dictionary")
        if self.sh_degree > 3:
            raise ValueError(f"sh_degree: got {self.sh_degree}, wants 0 to 3")
        if not self.l2_weight + self.l1_weight + self.ssim_weight > 0:
            raise ValueError("l2_weight, l1_weight, ssim_weight: got 0 for all, wants one > 0")
        for name in ("means_lr", "basis_lr"):
            rate, final = getattr(self, name), getattr(self, f"{name}_final")
            if not (0 < final <= rate or rate == final == 0):
                raise ValueError(f"{name}_final: got {final:g}, wants > 0, <= {name} ({rate:g})")

    @classmethod
    def short(cls, steps: int = 2_500, **changes: Any) -> TrainConfig:
        """A schedule of a few thousand steps for small pictures, as a CPU trains in a minute.

        An eighth of the steps is static, growth runs from a sixth to seven tenths of them, every
        third growth promotes, opacities are never reset, and at most 2,500 Gaussians come of 1,000.
        So few steps want higher rates: three times that of means, ten times that of a basis (not
        of a deformation network). Those of the motion are near the best that the study's search
        on validation views found.

        Args:
            steps: Optimisation steps.
            **changes: Other fields of the configuration.

        Raises:
            TypeError, ValueError: For fields as the class refuses them.
        """
        motion = {"field_lr": 3e-4, "field_quat_lr": 6e-4, "basis_lr": 8e-3, "basis_lr_final": 8e-5}
        if changes.get("motion") == "mlp":
            motion |= {"basis_lr": 8e-4}
        elif changes.get("motion") == "polynomial":
            motion |= {"field_lr": 1.2e-3, "field_quat_lr": 2.4e-3}
        return cls(**{
            "steps": steps,
            "static_steps": steps * 12 // 100,
            "n_points": 1_000,
            "sh_degree": 1,
            "sh_every": max(1, steps // 5),
            "grow_from": steps * 16 // 100,
            "grow_until": steps * 70 // 100,
            "grow_every": max(1, min(100, steps // 25)),
            "promote_every": 3,
            "reset_every": 0,
            "cap_max": 2_500,
            "means_lr": 5e-4,
            "means_lr_final": 5e-6,
            **motion,
            **changes,
        })  # fmt: skip
