# Makes an interactive chart with plotly and saves it as one HTML file that needs no network.
# prints: Traces: 3
# prints: The page contains plotly itself: True
# makes: chart.html
import pandas as pd
import plotly.express as px

df = pd.DataFrame({"year": [2022, 2023, 2024] * 3, "country": ["Chile"] * 3 + ["Kenya"] * 3 + ["Nepal"] * 3, "growth": [2.1, 0.2, 2.6, 4.9, 5.6, 4.7, 5.6, 2.0, 3.9]})
fig = px.line(df, x="year", y="growth", color="country", markers=True, title="Growth by year")
fig.update_layout(xaxis=dict(dtick=1))
fig.write_html("/data/chart.html", include_plotlyjs=True)
print("Traces:", len(fig.data))
with open("/data/chart.html", encoding="utf-8") as file:
    print("The page contains plotly itself:", "Plotly.newPlot" in file.read())
