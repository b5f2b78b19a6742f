"""A simulation told to people: a summary in text, a trace for Perfetto, a page for the browser."""

from lamella.plan.picture.labels import find_named
from lamella.plan.picture.page import html_page
from lamella.plan.picture.summary import summary
from lamella.plan.picture.trace import chrome_trace

__all__ = ["chrome_trace", "find_named", "html_page", "summary"]
