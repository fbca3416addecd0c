"""A room for tests: its trials break in every way there is."""

__all__ = ["nothing"]

nothing = None
