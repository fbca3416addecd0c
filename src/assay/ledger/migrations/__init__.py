"""How the tables of a ledger came about, step by step (Alembic)."""
