"""What tokens cost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assay.toolkits.llm.protocol import Usage


@dataclass(frozen=True)
class PriceTable:
    """List prices on a day: model -> US dollars per million (prompt, completion) tokens.

    A model that is not listed has no known price; that is not the same as costing nothing.
    """

    models: dict[str, tuple[float, float]]
    date: str = ""

    @classmethod
    def from_file(cls, path: str | Path) -> PriceTable:
        """Reads ``{"date": ..., "models": {name: [prompt, completion]}}``.

        Raises:
            ValueError: naming file and entry.
            OSError: where it cannot be read.
        """
        path = Path(path)
        try:
            data = json.loads(path.read_text("utf-8"))
            models = {
                name: (float(prompt), float(completion))
                for name, (prompt, completion) in data["models"].items()
            }
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"{path}: wants models as name: [prompt, completion]: {error}"
            ) from None
        if worst := [name for name, prices in models.items() if min(prices) < 0]:
            raise ValueError(f"{path}: models.{worst[0]}: got a price below 0")
        return cls(models, str(data.get("date", "")))

    @classmethod
    @cache
    def default(cls) -> PriceTable:
        """The table that comes with assay."""
        return cls.from_file(Path(__file__).with_name("prices.json"))

    def cost(self, model: str, usage: Usage) -> float | None:
        """US dollars; None where the model or the number of tokens is not known."""
        prices = self.models.get(model)
        if prices is None or usage.prompt_tokens is None or usage.completion_tokens is None:
            return None
        return (prices[0] * usage.prompt_tokens + prices[1] * usage.completion_tokens) / 1e6
