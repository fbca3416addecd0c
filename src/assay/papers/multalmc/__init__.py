"""Training-free samplers by averaging, for targets of which only grad log pi is known.

    from assay.papers.multalmc import MultALMC
    result = MultALMC(target, n_steps=4000, step_size=0.005).sample(1000)

"Sampling by averaging: A multiscale approach to score estimation", Cordero-Encinar, Duncan, Reich
and Akyildiz, NeurIPS 2025.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.papers.multalmc.averaged import AveragedALMC
    from assay.papers.multalmc.base import Normal, StudentT
    from assay.papers.multalmc.cdiff import CriticallyDampedOU, OverdampedOU
    from assay.papers.multalmc.diagnostics import (
        effective_displacement,
        largest_curvature,
        stability_number,
        two_budget_agreement,
        virial,
    )
    from assay.papers.multalmc.multalmc import MultALMC
    from assay.papers.multalmc.multcdiff import MultCDiff
    from assay.papers.multalmc.sampler import Sampler, SampleResult, State, StepInfo, TooManyDead
    from assay.papers.multalmc.srock import srock_step, stability_limit, stability_polynomial
    from assay.papers.multalmc.target import Target, as_target, from_pyro_potential

__all__ = [
    "AveragedALMC",
    "CriticallyDampedOU",
    "MultALMC",
    "MultCDiff",
    "Normal",
    "OverdampedOU",
    "SampleResult",
    "Sampler",
    "State",
    "StepInfo",
    "StudentT",
    "Target",
    "TooManyDead",
    "as_target",
    "effective_displacement",
    "from_pyro_potential",
    "largest_curvature",
    "srock_step",
    "stability_limit",
    "stability_number",
    "stability_polynomial",
    "two_budget_agreement",
    "virial",
]

_HOMES = {
    "averaged": ["AveragedALMC"],
    "base": ["Normal", "StudentT"],
    "cdiff": ["CriticallyDampedOU", "OverdampedOU"],
    "multcdiff": ["MultCDiff"],
    "diagnostics": [
        "effective_displacement",
        "largest_curvature",
        "stability_number",
        "two_budget_agreement",
        "virial",
    ],
    "multalmc": ["MultALMC"],
    "sampler": ["SampleResult", "Sampler", "State", "StepInfo", "TooManyDead"],
    "srock": ["srock_step", "stability_limit", "stability_polynomial"],
    "target": ["Target", "as_target", "from_pyro_potential"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # The study lives in this package and must be readable where the extra is not installed.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
