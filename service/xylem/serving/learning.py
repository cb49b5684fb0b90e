"""The parts that online learning of thresholds needs: the database, its writer and its follower."""

from xylem.base import Database, Settings
from xylem.serving.feedback.tokens import Tokens
from xylem.thresholds import (
    FeedbackRows,
    FeedbackWriter,
    Follower,
    ServedThresholds,
    find_secret,
    shared_secret,
)

_DAY_SECONDS = 86_400
_TOKEN_KEY = "token-key"


class OnlineLearning:
    """Writes feedback to the database, and follows the thresholds in it.

    tokens   signs and reads prediction ids; None until the key is known
    """

    def __init__(self, settings: Settings) -> None:
        """Take the settings; nothing is opened yet.

        Raises BadParameter for a database that cannot exist.
        """
        self.database = Database.from_settings(settings)
        self.days_max = settings.feedback_days_max
        self.writer = FeedbackWriter(
            self.database,
            queue_max=settings.limits.event_queue_max,
            days_max=self.days_max + 1,
            halve_events=settings.feedback_halve_events,
        )
        self.follower = Follower(
            self.database, settings.threshold_refresh_ms / 1000, self._find_key
        )
        self.rows = FeedbackRows(self.database, settings)
        self.tokens: Tokens | None = None
        if settings.token_key is not None:
            self.tokens = Tokens(
                settings.token_key.get_secret_value().encode().split(b","),
                self.days_max * _DAY_SECONDS,
            )

    def start(self) -> None:
        """Begin to follow the database."""
        self.follower.start()
        self.rows.start()

    def close(self) -> None:
        """Write the feedback that waits, stop following, close the database. Blocking."""
        self.writer.close()
        self.follower.close()
        self.rows.close()
        self.database.close()

    def catch_up(self, live: ServedThresholds) -> None:
        """Update the thresholds of a version to those in the database.

        Blocking. Raises DatabaseUnavailable.
        """
        with live.lock, self.database.read() as connection:
            live.catch_up(connection)

    def _find_key(self) -> None:
        if self.tokens is None:
            with self.database.read() as connection:
                key = find_secret(connection, _TOKEN_KEY)
            if key is None:
                with self.database.write() as connection:
                    key = shared_secret(connection, _TOKEN_KEY, 32)
            self.tokens = Tokens([key], self.days_max * _DAY_SECONDS)
