"""Every metric of the view."""

from typing import Final

from prometheus_client import Counter, Histogram

QUESTIONS: Final = Counter(
    "sunk_view_questions_total",
    "Questions of people that were answered, by path and status.",
    ("what", "status"),
)
SECONDS: Final = Histogram(
    "sunk_view_answer_seconds",
    "Time until a question of a person was answered.",
    ("what",),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)
REVIEWS: Final = Counter(
    "sunk_view_access_reviews_total",
    "Decisions of the API server about the rights of callers.",
    ("decision",),
)
