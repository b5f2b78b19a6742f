"""The memory schedule that we write: who is saved, forwarded, preloaded and freed at which tick."""

from lamella.lang.nac.schedule.plan import plan_memory
from lamella.lang.nac.schedule.report import ScheduleReport, describe_schedule

__all__ = ["ScheduleReport", "describe_schedule", "plan_memory"]
