# Resamples daily temperatures by month and finds the warmest week with a rolling mean.
# prints: 2025-07-31    21.8
# prints: Warmest week ends on 2025-07-06
import numpy as np
import pandas as pd

days = pd.date_range("2025-01-01", "2025-12-31", freq="D")
rng = np.random.default_rng(42)
season = 10 - 12 * np.cos(2 * np.pi * (days.dayofyear - 15) / 365)
temperature = pd.Series(season + rng.normal(0, 1.5, len(days)), index=days, name="temperature")

monthly = temperature.resample("ME").mean().round(1)
print(monthly.to_string())
week = temperature.rolling(7).mean()
print(f"Warmest week ends on {week.idxmax().date()}")
print(f"Days above 20 degrees: {(temperature > 20).sum()}")
