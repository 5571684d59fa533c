"""What sold, where, and what it cost: a table, a chart and a PDF report from /data/sales.csv."""

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.dates import DateFormatter
from matplotlib.ticker import FuncFormatter
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle, getSampleStyleSheet
from reportlab.lib.units import mm
from reportlab.platypus import Image, Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

sales = pd.read_csv("/data/sales.csv", parse_dates=["date"])
blank = int(sales.isna().any(axis=1).sum())
sales["discount"] = sales["discount"].fillna(0)
sales["campaign"] = sales["campaign"].fillna("Always On")
known = sales.dropna(subset="cost")
sales["cost"] = sales["cost"].fillna(sales["revenue"] * known["cost"].sum() / known["revenue"].sum())
sales["profit"] = sales["revenue"] - sales["cost"]
sales["month"] = sales["date"].dt.to_period("M").dt.to_timestamp()

# The figures ---------------------------------------------------------------------------------------------------------
by_channel = (
    sales.groupby("channel")[["units", "revenue", "profit", "new_customers"]].sum().sort_values("revenue", ascending=False)
)
by_channel["margin"] = by_channel["profit"] / by_channel["revenue"]
by_channel["share"] = by_channel["revenue"] / by_channel["revenue"].sum()

total = sales["revenue"].sum()
margin = sales["profit"].sum() / total
half = sales["date"].max() - pd.DateOffset(years=1)
growth = sales.loc[sales["date"] > half, "revenue"].sum() / sales.loc[sales["date"] <= half, "revenue"].sum() - 1
best = sales.groupby("month")["revenue"].sum().idxmax()
campaign_days = sales.groupby("campaign").agg(revenue=("revenue", "sum"), days=("date", "nunique"))
strongest = (campaign_days["revenue"] / campaign_days["days"]).drop("Always On").idxmax()

print(f"{len(sales):,} sales, {sales['date'].min():%b %Y} to {sales['date'].max():%b %Y}; {blank} rows had a blank")
print(f"revenue {total:,.0f}, margin {margin:.1%}, second year {growth:+.1%} on the first; best month {best:%b %Y}\n")
print(
    by_channel.to_string(
        formatters={
            "units": "{:,.0f}".format,
            "revenue": "{:,.0f}".format,
            "profit": "{:,.0f}".format,
            "new_customers": "{:,.0f}".format,
            "margin": "{:.1%}".format,
            "share": "{:.1%}".format,
        }
    )
)

# The chart -----------------------------------------------------------------------------------------------------------
sns.set_theme(style="whitegrid", context="notebook", palette="deep", rc={"axes.titleweight": "bold", "axes.titlelocation": "left"})
thousands = FuncFormatter(lambda value, _: f"{value / 1000:,.0f}k" if value else "0")
figure, axes = plt.subplots(2, 2, figsize=(13, 8.5), height_ratios=[1.15, 1], layout="constrained")
figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12, wspace=0.03, hspace=0.04)
over_time, campaigns, map_, customers = axes.flat

monthly = sales.pivot_table(index="month", columns="channel", values="revenue", aggfunc="sum")[by_channel.index]
over_time.stackplot(monthly.index, monthly.T.to_numpy(), labels=monthly.columns, alpha=0.9, linewidth=0)
over_time.set(title="Revenue by month and channel", ylim=(0, monthly.sum(axis=1).max() * 1.25), xlim=(monthly.index[0], monthly.index[-1]))
over_time.yaxis.set_major_formatter(thousands)
over_time.legend(loc="upper left", ncols=3, fontsize=9, frameon=True, framealpha=0.9)
over_time.xaxis.set_major_formatter(DateFormatter("%b %y"))

per_day = (campaign_days["revenue"] / campaign_days["days"]).sort_values(ascending=False).reset_index(name="value")
sns.barplot(per_day, x="value", y="campaign", hue="campaign", palette="crest_r", legend=False, ax=campaigns)
campaigns.set(title="Revenue per day of a campaign", xlabel="", ylabel="")
campaigns.xaxis.set_major_formatter(thousands)
for bars in campaigns.containers:  # each bar carries its figure, so that nobody has to measure
    campaigns.bar_label(bars, fmt="{:,.0f}", padding=4, fontsize=9)
campaigns.margins(x=0.14)

heat = sales.pivot_table(index="region", columns="product", values="profit", aggfunc="sum") / 1000
sns.heatmap(heat, annot=True, fmt=".0f", cmap="YlGnBu", linewidths=1, cbar=False, ax=map_, annot_kws={"size": 10})
map_.set(title="Profit by region and product, thousands", xlabel="", ylabel="")
map_.tick_params(axis="x", labelsize=8.5, rotation=0)
map_.tick_params(axis="y", rotation=0)

winners = by_channel.reset_index()
sns.scatterplot(winners, x="new_customers", y="margin", size="revenue", hue="channel", sizes=(120, 900), legend=False, ax=customers)
for row in winners.itertuples():
    customers.annotate(row.channel, (row.new_customers, row.margin), xytext=(0, -24), textcoords="offset points", ha="center", fontsize=10)
customers.set(title="New customers against margin (size: revenue)", xlabel="new customers", ylabel="")
customers.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
customers.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
customers.set(xlim=(-600, winners["new_customers"].max() * 1.15))
customers.margins(y=0.22)
figure.savefig("/data/sales.png", dpi=110)

# The report ----------------------------------------------------------------------------------------------------------
ink, pale = colors.HexColor("#1f3b4d"), colors.HexColor("#eef3f6")
styles = getSampleStyleSheet()
title = ParagraphStyle("title", parent=styles["Title"], alignment=0, textColor=ink, fontSize=22, spaceAfter=2)
quiet = ParagraphStyle("quiet", parent=styles["BodyText"], textColor=colors.HexColor("#667782"), spaceAfter=10)
body = ParagraphStyle("body", parent=styles["BodyText"], fontSize=10.5, leading=15)

rows = [["Channel", "Units", "Revenue", "Profit", "Margin", "Share", "New customers"]] + [
    [name, f"{r.units:,.0f}", f"{r.revenue:,.0f}", f"{r.profit:,.0f}", f"{r.margin:.1%}", f"{r.share:.1%}", f"{r.new_customers:,.0f}"]
    for name, r in by_channel.iterrows()
]
table = Table(rows, colWidths=[width * mm for width in (30, 20, 26, 25, 20, 20, 33)], rowHeights=7.5 * mm)
table.setStyle(
    TableStyle(
        [
            ("BACKGROUND", (0, 0), (-1, 0), ink),
            ("TEXTCOLOR", (0, 0), (-1, 0), colors.white),
            ("FONTNAME", (0, 0), (-1, 0), "Helvetica-Bold"),
            ("FONTSIZE", (0, 0), (-1, -1), 9),
            ("ALIGN", (1, 0), (-1, -1), "RIGHT"),
            ("VALIGN", (0, 0), (-1, -1), "MIDDLE"),
            ("ROWBACKGROUNDS", (0, 1), (-1, -1), [colors.white, pale]),
            ("LINEBELOW", (0, -1), (-1, -1), 0.6, ink),
        ]
    )
)
wide = A4[0] - 36 * mm
SimpleDocTemplate(
    "/data/sales-report.pdf", pagesize=A4, title="Sales report", author="paddock",
    leftMargin=18 * mm, rightMargin=18 * mm, topMargin=18 * mm, bottomMargin=16 * mm,
).build(
    [
        Paragraph("Sales report", title),
        Paragraph(f"{sales['date'].min():%d %B %Y} to {sales['date'].max():%d %B %Y}, {len(sales):,} sales", quiet),
        Paragraph(
            f"Revenue came to <b>{total:,.0f}</b> at a margin of <b>{margin:.1%}</b>; the second year brought <b>{growth:+.1%}</b> "
            f"on the first. <b>{by_channel.index[0]}</b> leads the channels with {by_channel['share'].iloc[0]:.0%} of revenue, "
            f"<b>{by_channel['margin'].idxmax()}</b> has the best margin, and a day of <b>{strongest}</b> sells more than a day of any "
            f"other campaign. The best month was {best:%B %Y}.",
            body,
        ),
        Spacer(1, 6 * mm),
        table,
        Spacer(1, 8 * mm),
        Image("/data/sales.png", width=wide, height=wide * 8.5 / 13),
        Spacer(1, 5 * mm),
        Paragraph(f"{blank} rows had a blank: a missing cost was estimated from the average, a missing discount counts as none.", quiet),
    ]
)
print("\nwrote sales.png and sales-report.pdf")
