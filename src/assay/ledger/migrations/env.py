"""Runs the ledger's migrations on the connection that `Ledger.open` hands over."""

from alembic import context

from assay.ledger.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    # With hand-made BEGINs SQLite undoes a half-made table like any other change.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
