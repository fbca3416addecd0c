"""What people use today for such targets, from kept libraries or written out, on equal budgets."""

from assay.papers.multalmc.baselines.jax_densities import jax_log_prob
from assay.papers.multalmc.baselines.langevin import ula, ulmc
from assay.papers.multalmc.baselines.nuts import nuts
from assay.papers.multalmc.baselines.rdmc import rdmc
from assay.papers.multalmc.baselines.smc import tempered_smc
from assay.papers.multalmc.baselines.tempering import parallel_tempering

__all__ = [
    "jax_log_prob",
    "nuts",
    "parallel_tempering",
    "rdmc",
    "tempered_smc",
    "ula",
    "ulmc",
]
