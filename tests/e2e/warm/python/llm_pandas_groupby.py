# Sales by region: what a model writes first.
import pandas as pd, numpy as np, io
df = pd.read_csv(io.StringIO('region,product,amount,date\nnorth,a,10,2024-01-01\nsouth,b,20.5,2024-01-15\nnorth,b,,2024-02-01\nsouth,a,5,2024-02-20\n'), parse_dates=['date'])
print(df.dtypes, df.describe(include='all'), df.isna().sum(), sep='\n')
df['amount'] = df['amount'].fillna(df['amount'].mean())
g = df.groupby('region')['amount'].agg(['sum', 'mean', 'count'])
print(g); g.to_csv('/data/by_region.csv')
print(df.pivot_table(index='region', columns='product', values='amount', aggfunc='sum', fill_value=0))
print(df.resample('ME', on='date')['amount'].sum())
print(df.merge(pd.DataFrame({'region': ['north'], 'boss': ['Ada']}), how='left'))
df.to_json('/data/all.json', orient='records', date_format='iso')
df.info()
df['nope']
