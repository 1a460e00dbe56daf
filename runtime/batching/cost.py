"""How long a batch of n rows runs: a·n + b, learned from recent executions."""

MEMORY = 0.95
"""Weight of an execution relative to the next one: the last twenty or so count."""
FIRST_MEMORY = 0.5
"""The same for the first executions, which warm caches and say little."""
WARM = 4
"""Executions after which an odd one is told from a change."""
OUTLIER = 4.0
"""An execution further off than this many usual errors is clipped to that."""
LEAST_SPREAD = 0.01
"""Least variance of the rows, as a share of their mean square, that tells a from b."""
USUAL_ERROR = 0.05
"""Least usual error, as a share of the prediction."""
ERROR_RATE = 0.2
"""Weight of the last error in the usual one."""


class CostModel:
    """Weighted least squares over past executions. Times in ns."""

    def __init__(self) -> None:
        self.samples = 0
        self.per_row = 0.0
        """a, 0 before the first sample."""
        self.fixed = 0.0
        """b. As long as all samples had the same number of rows nothing tells it from a·n: 0 then.

        Once it is known it keeps its part of the whole while all samples have the same number of rows.
        """
        self._high = 0
        self._weight = self._n = self._nn = self._y = self._ny = 0.0
        self._error = 0.0
        self._low = 1 << 30

    @property
    def tells_fixed(self) -> bool:
        """Whether runs of different sizes have been seen."""
        return self._low < self._high

    def predict(self, rows: int) -> float:
        """Return the expected run time in ns, 0 before the first sample."""
        return self.per_row * rows + self.fixed

    def rows_within(self, budget: float) -> int:
        """Return the most rows whose expected run time is at most `budget`; 0 if not even one."""
        if self.per_row <= 0:
            return 1 << 30 if self.fixed <= budget else 0
        return max(0, int((budget - self.fixed) / self.per_row * (1 + 1e-9)))

    def learn(self, rows: int, run_ns: float) -> None:
        """Take in one execution."""
        keep = FIRST_MEMORY
        if self.samples >= WARM:
            keep = MEMORY
            if self._low <= rows <= self._high:
                run_ns = self._clipped(self.per_row * rows + self.fixed, run_ns)
        if rows > self._high:
            self._high = rows
        if rows < self._low:
            self._low = rows
        self.samples += 1
        self._weight = self._weight * keep + 1
        self._n = self._n * keep + rows
        self._nn = self._nn * keep + rows * rows
        self._y = self._y * keep + run_ns
        self._ny = self._ny * keep + rows * run_ns
        self._solve()

    def _clipped(self, expected: float, run_ns: float) -> float:
        """Bound how far one execution moves the model; the bound widens if they keep coming."""
        error = run_ns - expected
        usual = max(self._error, USUAL_ERROR * expected)
        if abs(error) > OUTLIER * usual:
            error = OUTLIER * usual if error > 0 else -OUTLIER * usual
        self._error += (abs(error) - self._error) * ERROR_RATE
        return expected + error

    def _solve(self) -> None:
        weight, n, nn = self._weight, self._n, self._nn
        spread = weight * nn - n * n
        if spread <= LEAST_SPREAD * weight * nn:
            self._scale()
            return
        per_row = (weight * self._ny - n * self._y) / spread
        fixed = (self._y - per_row * n) / weight
        if per_row < 0:
            per_row, fixed = 0.0, self._y / weight
        elif fixed < 0:
            per_row, fixed = self._ny / nn, 0.0
        self.per_row, self.fixed = per_row, fixed

    def _scale(self) -> None:
        """Follow the mean run time, and leave open how much of it is fixed."""
        known = self.per_row * self._n + self.fixed * self._weight
        if known > 0:
            change = self._y / known
            self.per_row *= change
            self.fixed *= change
        else:
            self.per_row = self._ny / self._nn
