"""Runs, trials, metrics, files."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Makes the four tables."""
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("command", sa.JSON, nullable=False),
        sa.Column("environment", sa.JSON, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("started", sa.DateTime, nullable=False),
        sa.Column("finished", sa.DateTime),
    )
    op.create_table(
        "trials",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.Integer, sa.ForeignKey("runs.id"), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("slug", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("scale", sa.String(16), nullable=False),
        sa.Column("params", sa.JSON, nullable=False),
        sa.Column("seed", sa.Integer, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("started", sa.DateTime, nullable=False),
        sa.Column("finished", sa.DateTime, nullable=False),
        sa.Column("series", sa.String(64)),
    )
    op.create_index("ix_trials_key", "trials", ["key"])
    op.create_index("ix_trials_study", "trials", ["slug", "scale", "version"])
    op.create_table(
        "metrics",
        sa.Column("trial_id", sa.Integer, sa.ForeignKey("trials.id"), primary_key=True),
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("value", sa.Double),
    )
    op.create_table(
        "files",
        sa.Column("trial_id", sa.Integer, sa.ForeignKey("trials.id"), primary_key=True),
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("sha256", sa.String(64), nullable=False),
    )


def downgrade() -> None:
    """Drops them."""
    for table in ("files", "metrics", "trials", "runs"):
        op.drop_table(table)
