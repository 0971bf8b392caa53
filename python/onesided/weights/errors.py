"""The one exception of this package."""


class WeightsError(RuntimeError):
    """A layout that cannot be, a publisher that is gone, or no whole version in time. Names parameter, rank and what to
    do."""
