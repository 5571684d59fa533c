# Fits a linear regression with statsmodels and explains its coefficients.
# prints: R-squared: 0.99
# prints: Significant: ['size', 'rooms']
import numpy as np
import pandas as pd
import statsmodels.formula.api as smf

rng = np.random.default_rng(11)
df = pd.DataFrame({"size": rng.uniform(40, 200, 150), "rooms": rng.integers(1, 7, 150), "noise": rng.normal(size=150)})
df["price"] = 50 + 2.5 * df["size"] + 12 * df["rooms"] + rng.normal(0, 15, 150)

model = smf.ols("price ~ size + rooms + noise", data=df).fit()
print(model.summary().tables[1])
print(f"R-squared: {model.rsquared:.2f}")
print("Significant:", [name for name, p in model.pvalues.items() if p < 0.01 and name != "Intercept"])
