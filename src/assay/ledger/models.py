"""The tables of the ledger."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, Double, ForeignKey, Index, String, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from sqlalchemy.types import TypeDecorator


class UtcDateTime(TypeDecorator[datetime]):
    """Aware datetimes, kept in UTC: SQLite has no time zones."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


class Base(DeclarativeBase):
    """All tables."""


class Run(Base):
    """One call of the runner: what was asked, on which machine."""

    __tablename__ = "runs"

    id: Mapped[int] = mapped_column(primary_key=True)
    command: Mapped[list[str]] = mapped_column(JSON)
    environment: Mapped[dict[str, Any]] = mapped_column(JSON)
    status: Mapped[str] = mapped_column(String(16))
    started: Mapped[datetime] = mapped_column(UtcDateTime)
    finished: Mapped[datetime | None] = mapped_column(UtcDateTime)


class TrialRow(Base):
    """One trial that ended, well or not; a key has as many rows as it was run."""

    __tablename__ = "trials"
    __table_args__ = (
        Index("ix_trials_key", "key"),
        Index("ix_trials_study", "slug", "scale", "version"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    key: Mapped[str] = mapped_column(String(64))
    slug: Mapped[str] = mapped_column(String(64))
    version: Mapped[int]
    scale: Mapped[str] = mapped_column(String(16))
    params: Mapped[dict[str, Any]] = mapped_column(JSON)
    seed: Mapped[int]
    status: Mapped[str] = mapped_column(String(16))
    error: Mapped[str] = mapped_column(Text)
    seconds: Mapped[float] = mapped_column(Double)
    started: Mapped[datetime] = mapped_column(UtcDateTime)
    finished: Mapped[datetime] = mapped_column(UtcDateTime)
    series: Mapped[str | None] = mapped_column(String(64))  # sha256 of a JSON file

    run: Mapped[Run] = relationship()
    metrics: Mapped[list[MetricRow]] = relationship(order_by="MetricRow.position")
    files: Mapped[list[FileRow]] = relationship(order_by="FileRow.name")


class MetricRow(Base):
    """One number of a trial. NULL stands for NaN, which SQLite cannot hold."""

    __tablename__ = "metrics"

    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    position: Mapped[int]
    value: Mapped[float | None] = mapped_column(Double)


class FileRow(Base):
    """A file that a trial saved."""

    __tablename__ = "files"

    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64))
