"""Densities to sample from, with their scores and, where there are any, exact draws and modes."""

from assay.papers.multalmc.targets.base import AnalyticTarget
from assay.papers.multalmc.targets.logistic import (
    LogisticRegression,
    breast_cancer,
    digits,
    ionosphere,
    sonar,
    wine,
)
from assay.papers.multalmc.targets.mixtures import (
    GaussianMixture,
    StudentMixture,
    eight_gaussians,
    forty_gaussians,
    ten_students,
)
from assay.papers.multalmc.targets.phi_four import PhiFour
from assay.papers.multalmc.targets.posteriordb import posteriordb_target
from assay.papers.multalmc.targets.shapes import DoubleWell, Funnel, Rings

__all__ = [
    "AnalyticTarget",
    "DoubleWell",
    "Funnel",
    "GaussianMixture",
    "LogisticRegression",
    "PhiFour",
    "Rings",
    "StudentMixture",
    "breast_cancer",
    "digits",
    "eight_gaussians",
    "forty_gaussians",
    "ionosphere",
    "posteriordb_target",
    "sonar",
    "ten_students",
    "wine",
]
