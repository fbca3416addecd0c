"""Q_C as the paper's definition reads: one pass for each context. Short, obviously right, slow."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.papers.rac.network import RACNet


def contextual_by_passes(net: RACNet, obs: Tensor, h: Tensor | None = None) -> Tensor:
    """Q_C in every context, ``(B, T, m, A)``, the trunk run anew for each.

    Args:
        net: With either head.
        obs: Inputs of T steps, ``(B, T, obs_dim)``.
        h: State of the context trunk before the first of them, ``(B, hidden)``.

    Source: the paper's section on the method and appendix C.
    """
    passes = []
    for context in torch.eye(net.n_contexts, dtype=obs.dtype, device=obs.device):
        x, _ = net.context_trunk(obs, h)
        if net.context_head == "concat":
            joined = torch.cat([x, context.expand(*x.shape[:-1], -1)], dim=-1)
            passes.append(net.concat(joined))
        else:
            weight = net.hyper_weight(context).view(x.shape[-1], -1)
            passes.append(F.linear(x, weight.T, net.hyper_bias(context)))
    return torch.stack(passes, dim=-2)
